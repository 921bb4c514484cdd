#include "ops/lane_geometry.h"

#include <algorithm>
#include <utility>

namespace backops {

LaneAxis::LaneAxis(const ConvShape& s, int axis)
    : in(s.in[axis]),
      out(s.out[axis]),
      kernel(s.kernel[axis]),
      stride(s.stride[axis]),
      padding(s.padding[axis]),
      dilation(s.dilation[axis]) {
  reach = (kernel - 1) * dilation;
  most_shift = reach / stride;
  low_pad = std::max<std::int64_t>(0, (reach - padding + stride - 1) / stride);
  padded_out = low_pad + std::max(out, output_of(in - 1) + 1);
  padded_in = (out - 1) * stride + reach + 1;
  used_in = std::clamp<std::int64_t>(padded_in - padding, 0, in);
  for (std::int64_t first = 0; first < std::min(stride, in); ++first) {
    const std::int64_t residue = (first + padding) % stride;
    ResidueClass own{first, (in - first + stride - 1) / stride, {}, {}};
    for (std::int64_t k = 0; k < kernel; ++k) {
      if (k * dilation % stride != residue) continue;
      own.taps.push_back(k);
      own.shifts.push_back(k * dilation / stride);
    }
    classes.push_back(std::move(own));
  }
}

Range LaneAxis::finished_by(const Range& outputs) const {
  const auto first_input = [this](std::int64_t output) {
    return std::clamp<std::int64_t>(output * stride - padding, 0, in);
  };
  return {outputs.begin == 0 ? 0 : first_input(outputs.begin),
          outputs.end == out ? in : first_input(outputs.end)};
}

}  // namespace backops

#include "ops/conv/axes.h"

#include <algorithm>

namespace backops {

ConvAxis::ConvAxis(const ConvShape& s, int axis)
    : in(s.in[axis]),
      out(s.out[axis]),
      kernel(s.kernel[axis]),
      stride(s.stride[axis]),
      padding(s.padding[axis]),
      dilation(s.dilation[axis]) {
  reach = (kernel - 1) * dilation;
  most_shift = reach / stride;
  const std::int64_t count = std::min(stride, in);
  for (std::int64_t first = 0; first < count; ++first) {
    classes.push_back({first, ceil_divide(in - first, stride), {}, {}});
  }
  for (std::int64_t k = 0; k < kernel; ++k) {
    // The first input, at or behind 0, that the tap reaches from some output.
    const std::int64_t first = ((k * dilation - padding) % stride + stride) % stride;
    if (first >= count) continue;
    ResidueClass& own = classes[static_cast<std::size_t>(first)];
    own.taps.push_back(k);
    own.shifts.push_back(k * dilation / stride);
  }
}

Range ConvAxis::finished_by(const Range& outputs) const {
  const auto first_input = [this](std::int64_t output) {
    return std::clamp<std::int64_t>(output * stride - padding, 0, in);
  };
  return {outputs.begin == 0 ? 0 : first_input(outputs.begin),
          outputs.end == out ? in : first_input(outputs.end)};
}

}  // namespace backops

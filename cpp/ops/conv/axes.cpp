#include "ops/conv/axes.h"

#include <algorithm>
#include <utility>

#include "base/ints.h"

namespace backops {

ConvShape turned(const ConvShape& shape) {
  ConvShape s = shape;
  std::swap(s.inputs, s.outputs);
  std::swap(s.in, s.out);
  s.is_turned = !shape.is_turned;
  return s;
}

ConvShape without_skipped(const ConvShape& shape) {
  ConvShape own = shape;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    if (shape.is_turned || shape.kernel[axis] != 1 || shape.padding[axis] != 0) continue;
    // Outputs behind the input meet zeros.
    own.in[axis] = std::min(shape.out[axis], ceil_divide(shape.in[axis], shape.stride[axis]));
    own.input_step[axis] = shape.stride[axis];
    own.stride[axis] = 1;
  }
  return own;
}

ConvShape with_columns(const ConvShape& shape) {
  constexpr std::int64_t kLeastImages = 48;  // fewer are shared by threads better one by one
  ConvShape own = shape;
  if (!shape.is_pointwise() || shape.in_positions() != 1 || shape.batch < kLeastImages) return own;
  constexpr int kColumns = kMaxConvRank - 1;
  own.in[kColumns] = own.out[kColumns] = shape.batch;
  own.batch = 1;
  own.images_are_columns = true;
  return own;
}

ConvShape without_kernel(const ConvShape& shape) {
  ConvShape s = shape;
  s.inputs = s.groups = 1;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    s.in[axis] = s.out[axis];
    s.kernel[axis] = s.stride[axis] = s.dilation[axis] = 1;
    s.padding[axis] = 0;
  }
  s.is_turned = false;
  return s;
}

ConvAxis::ConvAxis(const ConvShape& s, int axis)
    : in(s.in[axis]),
      out(s.out[axis]),
      kernel(s.kernel[axis]),
      stride(s.stride[axis]),
      padding(s.padding[axis]),
      dilation(s.dilation[axis]),
      all_outputs(out),
      plane_stride(1) {
  s.is_turned ? list_planes() : list_classes();
}

void ConvAxis::list_classes() {
  reach = (kernel - 1) * dilation;
  most_shift = reach / stride;
  planes = {0};
  least_plane = out;
  const std::int64_t count = std::min(stride, in);
  for (std::int64_t first = 0; first < count; ++first) {
    classes.push_back({first, ceil_divide(in - first, stride), {}, {}, {}, {}});
  }
  for (std::int64_t k = 0; k < kernel; ++k) {
    // The first input, at or behind 0, that the tap reaches from some output.
    const std::int64_t first = ((k * dilation - padding) % stride + stride) % stride;
    if (first >= count) continue;
    ResidueClass& own = classes[static_cast<std::size_t>(first)];
    own.taps.push_back(k);
    own.shifts.push_back(k * dilation / stride);
    own.planes.push_back(0);
  }
  for (ResidueClass& own : classes) own.backs = own.shifts;
}

// Tap k of input i is output (i + ahead) * plane_stride + first of the plane.
void ConvAxis::list_planes() {
  plane_stride = std::exchange(stride, 1);
  const auto ahead_of = [this](std::int64_t k) {
    return floor_divide(k * dilation - padding, plane_stride);
  };
  const auto first_of = [&](std::int64_t k) {
    return k * dilation - padding - ahead_of(k) * plane_stride;
  };
  for (std::int64_t k = 0; k < kernel; ++k) {
    const auto at = std::lower_bound(planes.begin(), planes.end(), first_of(k));
    if (at == planes.end() || *at != first_of(k)) planes.insert(at, first_of(k));
  }
  const std::int64_t most_ahead = ahead_of(kernel - 1);
  classes.push_back({0, in, {}, {}, {}, {}});
  ResidueClass& all = classes.front();
  for (std::int64_t k = kernel - 1; k >= 0; --k) {
    const auto own = std::lower_bound(planes.begin(), planes.end(), first_of(k));
    all.taps.push_back(k);
    all.shifts.push_back(most_ahead - ahead_of(k));
    all.planes.push_back(static_cast<std::size_t>(own - planes.begin()));
    all.backs.push_back(most_ahead * plane_stride + padding - k * dilation);
  }
  padding = most_ahead;
  reach = most_shift = all.shifts.back();
  out = least_plane = plane_size(0);
  for (std::size_t plane = 1; plane < planes.size(); ++plane) {
    out = std::max(out, plane_size(plane));
    least_plane = std::min(least_plane, plane_size(plane));
  }
  // Tiles have outputs, be they those of windows that see nothing but padding.
  out = std::max<std::int64_t>(out, 1);
}

Range ConvAxis::finished_by(const Range& outputs) const {
  const auto first_input = [this](std::int64_t output) {
    return std::clamp<std::int64_t>(output * stride - padding, 0, in);
  };
  return {outputs.begin == 0 ? 0 : first_input(outputs.begin),
          outputs.end == out ? in : first_input(outputs.end)};
}

OutputPlanes::OutputPlanes(const ConvShape& s) {
  const ConvAxis d(s, 0), h(s, 1), w(s, 2);
  const ConvAxis* const axes[] = {&d, &h, &w};
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    sizes_[axis] = axes[axis]->planes.size();
    strides_[axis] = axes[axis]->plane_stride;
  }
  columns_ = w.all_outputs;
  for (std::size_t i = 0; i < sizes_[0]; ++i) {
    for (std::size_t j = 0; j < sizes_[1]; ++j) {
      for (std::size_t k = 0; k < sizes_[2]; ++k) {
        planes_.push_back({{d.planes[i], h.planes[j], w.planes[k]},
                           {d.plane_size(i), h.plane_size(j), w.plane_size(k)}});
      }
    }
  }
}

}  // namespace backops

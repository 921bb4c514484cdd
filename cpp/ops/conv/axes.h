// The axes of a convolution by the taps that reach each input position.
//
// Outputs that lie a stride apart in a turned problem are one plane: positions of a plane are
// reached like the outputs of a problem without strides. Other problems have one plane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ints.h"
#include "ops/conv/engine.h"
#include "ops/conv/shape.h"

namespace backops {

// Input positions of one axis that the same taps reach, `stride` apart.
struct ResidueClass {
  std::int64_t first_input, count;
  std::vector<std::int64_t> taps;    // kernel positions
  std::vector<std::int64_t> shifts;  // outputs of its plane back, per tap, in ascending order
  std::vector<std::size_t> planes;   // of each tap
  std::vector<std::int64_t> backs;   // outputs of all planes back, likewise
};

struct ConvAxis {
  ConvAxis(const ConvShape& s, int axis);

  // `out` and what follows from it count positions of the largest plane.
  std::int64_t in, out, kernel, stride, padding, dilation;
  bool is_trivial() const { return in == 1 && all_outputs == 1 && kernel == 1 && padding == 0; }
  // The last output whose window could reach input `i`, were there that many. Asked for each row:
  // no division where there is no stride.
  std::int64_t output_of(std::int64_t i) const {
    return stride == 1 ? i + padding : (i + padding) / stride;
  }
  std::int64_t class_of(std::int64_t i) const { return stride == 1 ? 0 : i % stride; }
  bool has_output(std::int64_t i, std::int64_t shift, std::size_t plane) const {
    const std::int64_t output = output_of(i) - shift;
    return output >= 0 && output < plane_size(plane);
  }
  // Whether all taps of an input have one, in every plane.
  bool has_all_outputs(std::int64_t i) const {
    const std::vector<std::int64_t>& shifts = classes[static_cast<std::size_t>(class_of(i))].shifts;
    const std::int64_t output = output_of(i);
    return shifts.empty() || (output - shifts.back() >= 0 && output - shifts.front() < least_plane);
  }
  // The output that `backs` of input i are counted from, in all planes.
  std::int64_t start_of(std::int64_t i) const { return output_of(i) * plane_stride; }
  // Inputs that no window reaches but those of these outputs and of earlier ones.
  Range finished_by(const Range& outputs) const;

  std::int64_t reach;                 // from the first tap to the last, in inputs
  std::int64_t most_shift;            // the same in outputs
  std::vector<ResidueClass> classes;  // position i is in class i % stride

  std::int64_t all_outputs, plane_stride;  // of the tensor
  std::vector<std::int64_t> planes;        // the first output of each, in ascending order
  std::int64_t least_plane;                // positions of the smallest plane
  std::int64_t plane_size(std::size_t plane) const {
    return planes[plane] < all_outputs ? (all_outputs - planes[plane] - 1) / plane_stride + 1 : 0;
  }

 private:
  void list_classes();
  void list_planes();
};

// Of all axes together.
class OutputPlanes {
 public:
  explicit OutputPlanes(const ConvShape& s);

  std::int64_t count() const { return static_cast<std::int64_t>(planes_.size()); }
  std::int64_t index(std::size_t d, std::size_t h, std::size_t w) const {
    return static_cast<std::int64_t>((d * sizes_[1] + h) * sizes_[2] + w);
  }
  // Planes that differ along the last axis only follow each other. If those of a row have all its
  // columns, they can be read together.
  std::int64_t row_planes() const { return static_cast<std::int64_t>(sizes_[2]); }
  bool have_whole_rows() const { return strides_[2] > 1 && row_planes() == strides_[2]; }
  std::int64_t columns() const { return columns_; }  // of the tensor
  Activation rows_view(const Activation& output, std::int64_t first_plane) const {
    Activation rows = view(output, first_plane);
    rows.stride_bytes[2] = output.stride_bytes[2];
    return rows;
  }

  // A plane as a tensor of its own.
  struct Plane {
    std::int64_t first[kMaxConvRank], shape[kMaxConvRank];
  };
  const std::int64_t (&shape(std::int64_t plane) const)[kMaxConvRank] { return own(plane).shape; }
  Activation view(const Activation& output, std::int64_t plane) const {
    Activation view = output;
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      view.data += own(plane).first[axis] * output.stride_bytes[axis];
      view.stride_bytes[axis] *= strides_[axis];
    }
    return view;
  }

 private:
  const Plane& own(std::int64_t plane) const { return planes_[static_cast<std::size_t>(plane)]; }

  std::size_t sizes_[kMaxConvRank] = {};
  std::int64_t strides_[kMaxConvRank] = {};
  std::int64_t columns_ = 0;
  std::vector<Plane> planes_;
};

}  // namespace backops

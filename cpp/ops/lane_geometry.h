// The axes of a convolution as our own engines see them: padded, and by the taps that reach each
// input position.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/conv_engine.h"

namespace backops {

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// Input positions of one axis that the same taps reach, `stride` apart.
struct ResidueClass {
  std::int64_t first_input, count;
  std::vector<std::int64_t> taps;    // kernel positions
  std::vector<std::int64_t> shifts;  // outputs back, per tap
};

// One axis of grad_output, padded by what taps reach beyond it, and of the input, padded as the
// problem says and cut to what windows reach.
struct LaneAxis {
  LaneAxis(const ConvShape& s, int axis);

  std::int64_t in, out, kernel, stride, padding, dilation;
  bool is_trivial() const { return in == 1 && out == 1 && kernel == 1 && padding == 0; }
  // The last output whose window could reach input `i`, were there that many.
  std::int64_t output_of(std::int64_t i) const { return (i + padding) / stride; }
  std::int64_t class_of(std::int64_t i) const { return i % stride; }
  bool has_output(std::int64_t i, std::int64_t shift) const {
    return output_of(i) - shift >= 0 && output_of(i) - shift < out;
  }
  // Inputs that no window reaches but those of these outputs and of earlier ones.
  Range finished_by(const Range& outputs) const;

  std::int64_t reach, most_shift;
  std::int64_t low_pad, padded_out;
  std::int64_t used_in, padded_in;
  std::vector<ResidueClass> classes;  // position i is in class i % stride
};

// What one axis is to the engine, and where a tensor's stride along it stands.
struct Geometry {
  explicit Geometry(const ConvShape& s)
      : slab_axis(LaneAxis(s, 0).is_trivial() ? 1 : 0),
        mid_axis(1 - slab_axis),
        slab(s, slab_axis),
        mid(s, mid_axis),
        row(s, 2) {}

  int slab_axis, mid_axis;
  LaneAxis slab;  // cut into chunks
  LaneAxis mid;   // trivial unless there are three axes
  LaneAxis row;
};

}  // namespace backops

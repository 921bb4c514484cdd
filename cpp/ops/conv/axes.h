// The axes of a convolution by the taps that reach each input position.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ints.h"
#include "ops/conv/shape.h"

namespace backops {

// Input positions of one axis that the same taps reach, `stride` apart.
struct ResidueClass {
  std::int64_t first_input, count;
  std::vector<std::int64_t> taps;    // kernel positions
  std::vector<std::int64_t> shifts;  // outputs back, per tap
};

struct ConvAxis {
  ConvAxis(const ConvShape& s, int axis);

  std::int64_t in, out, kernel, stride, padding, dilation;
  bool is_trivial() const { return in == 1 && out == 1 && kernel == 1 && padding == 0; }
  // The last output whose window could reach input `i`, were there that many.
  std::int64_t output_of(std::int64_t i) const { return (i + padding) / stride; }
  std::int64_t class_of(std::int64_t i) const { return i % stride; }
  bool has_output(std::int64_t i, std::int64_t shift) const {
    return output_of(i) - shift >= 0 && output_of(i) - shift < out;
  }
  // Whether all taps of an input have one.
  bool has_all_outputs(std::int64_t i) const {
    const std::vector<std::int64_t>& shifts = classes[static_cast<std::size_t>(class_of(i))].shifts;
    return shifts.empty() || (has_output(i, shifts.front()) && has_output(i, shifts.back()));
  }
  // Inputs that no window reaches but those of these outputs and of earlier ones.
  Range finished_by(const Range& outputs) const;

  std::int64_t reach;                 // from the first tap to the last, in inputs
  std::int64_t most_shift;            // the same in outputs
  std::vector<ResidueClass> classes;  // position i is in class i % stride
};

}  // namespace backops

// Weight products that take some rows of outputs at a time, and the rows of the input that their
// windows have.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ints.h"
#include "ops/conv/shape.h"

namespace backops {

// Rows of outputs of a slice of an image, and of the input the first that their windows have.
struct RowCut {
  std::int64_t image, d;
  Range h;
  std::int64_t first_row;
};

class RowCuts {
 public:
  // All rows of a slice at once, until that is changed.
  explicit RowCuts(const ConvShape& shape) : rows_at_once(shape.out[1]), s_(shape) {}

  std::int64_t rows_at_once;

  std::int64_t slices() const { return s_.batch * s_.out[0]; }
  std::int64_t count() const { return slices() * of_slice(); }
  // No more at once than leave this many cuts, if there are as many rows.
  void make(std::int64_t wanted) {
    rows_at_once = std::min(rows_at_once, ceil_divide(s_.out[1], ceil_divide(wanted, slices())));
  }

  RowCut cut(std::int64_t index) const {
    RowCut cut{};
    cut.h.begin = index % of_slice() * rows_at_once;
    cut.h.end = std::min(cut.h.begin + rows_at_once, s_.out[1]);
    cut.d = index / of_slice() % s_.out[0];
    cut.image = index / of_slice() / s_.out[0];
    cut.first_row = cut.h.begin * s_.stride[1] - s_.padding[1];
    return cut;
  }

  // Rows of one slice of the input, from first_row on.
  std::int64_t source_rows() const {
    return (rows_at_once - 1) * s_.stride[1] + (s_.kernel[1] - 1) * s_.dilation[1] + 1;
  }
  // The slice of the input that a slice of the kernel meets.
  std::int64_t input_slice(const RowCut& cut, std::int64_t tap) const {
    return cut.d * s_.stride[0] - s_.padding[0] + tap * s_.dilation[0];
  }
  bool is_inside(int axis, std::int64_t input) const { return input >= 0 && input < s_.in[axis]; }

 private:
  std::int64_t of_slice() const { return ceil_divide(s_.out[1], rows_at_once); }

  const ConvShape s_;
};

}  // namespace backops

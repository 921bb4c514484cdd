// A tensor whose data is given anew for each run, as the C interfaces describe one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/export.h"
#include "base/tensor.h"

namespace backops {

enum class Sizes : std::uint8_t { positive, not_negative };

class BACKOPS_API Operand {
 public:
  // `strides` has as many elements as `shape`, or is null: contiguous. Strides and offset count
  // elements. Throws Error, naming `argument`, for what no operator takes: too many axes, sizes
  // other than `sizes` says, sizes, strides or offsets beyond any memory.
  Operand(DType dtype, const std::int64_t* shape, std::size_t ndim, const std::int64_t* strides,
          std::int64_t offset, const char* argument, Sizes sizes = Sizes::positive);

  const TensorView& view() const { return view_; }  // without data
  bool is_empty() const { return range_.size() == 0; }
  TensorView at(const void* data) const;

  // The memory from the lowest to the highest element.
  ByteRange range(const void* data) const;

 private:
  TensorView view_{};
  std::int64_t offset_ = 0;  // bytes from the data pointer
  ByteRange range_;          // the same
};

}  // namespace backops

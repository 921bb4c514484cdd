// A tensor as a client describes it, and as the core sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tensor.h"
#include "infiniop/tensor_descriptor.h"

// As it was given: what an operator cannot use, the operator refuses.
struct InfiniopTensorDescriptor {
  infiniDtype_t dtype;
  std::vector<std::size_t> shape;
  std::vector<std::ptrdiff_t> strides;  // empty: contiguous
};

namespace backops::infini {

// A tensor whose data is given anew for each run.
class Operand {
 public:
  // Throws Error, naming `argument`, for what no operator takes: another dtype than F16, F32 and
  // BF16, too many axes, empty tensors, sizes or strides beyond any memory.
  Operand(const InfiniopTensorDescriptor& descriptor, const char* argument);

  const TensorView& view() const { return view_; }  // without data
  TensorView at(const void* data) const;

  // Whether the memory from the lowest to the highest element has a byte of `memory`.
  bool reaches_into(const void* data, const void* memory, std::size_t bytes) const;

  // Whether two operands have an element's byte in common.
  static bool share_memory(const Operand& a, const void* a_data, const Operand& b,
                           const void* b_data);

 private:
  std::uintptr_t lowest(const void* data) const;
  std::uintptr_t end(const void* data) const;

  TensorView view_{};
  std::int64_t lowest_ = 0, end_ = 0;  // bytes from the data pointer
};

}  // namespace backops::infini

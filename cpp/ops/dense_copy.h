// Between tensors of any strides and dense arrays in the type of the sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor.h"
#include "kernels/pool/pool.h"
#include "ops/precision.h"

namespace backops {

// The axes of a tensor in the order they have in the dense array. The first one counts items, which
// are copied one at a time.
struct DenseAxes {
  static constexpr int kItemAxes = 4;
  std::int64_t items, item_stride_bytes;
  std::int64_t shape[kItemAxes];
  std::int64_t stride_bytes[kItemAxes];

  std::int64_t item_elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  // Whether the tensor is the dense array already, as far as its strides go.
  bool is_dense(std::int64_t element_bytes) const;
  // Neighbouring axes that lie one after the other become one: longer loops.
  void merge();
};

// Scratch memory that one copy needs.
constexpr std::size_t kDenseCopyBytes = 16384;

// `kernels` are those of the tensor's dtype: its conversions are used.
void copy_to_dense(const DenseAxes& axes, const char* tensor, std::int64_t item, void* dense_item,
                   const PoolKernels& kernels, char* scratch);
void copy_from_dense(const DenseAxes& axes, char* tensor, std::int64_t item, const void* dense_item,
                     const PoolKernels& kernels, char* scratch);

void round_operands(float* values, std::int64_t count, Rounding rounding,
                    const PoolKernels& kernels);

}  // namespace backops

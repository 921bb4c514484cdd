// Between tensors of any strides and dense arrays in the type of the sums.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/pool/pool.h"
#include "ops/precision.h"

namespace backops {

// The axes of a tensor in the order they have in the dense array.
struct DenseAxes {
  static constexpr int kAxes = 5;
  std::int64_t shape[kAxes];
  std::int64_t stride_bytes[kAxes];

  // Whether the tensor is the dense array already, as far as its strides go.
  bool is_dense(std::int64_t element_bytes) const;
};

// A copy in pieces of a few thousand elements, which may be made in any order, at the same time.
class DenseCopy {
 public:
  DenseCopy() = default;
  explicit DenseCopy(const DenseAxes& axes);

  std::int64_t pieces() const { return outer_pieces() * slices_; }
  // `kernels` are those of the tensor's dtype. What is read is rounded.
  void to_dense(std::int64_t piece, const char* tensor, char* dense, const ConvKernels& kernels,
                Rounding rounding, const PoolKernels& roundings) const;
  void from_dense(std::int64_t piece, char* tensor, const char* dense,
                  const ConvKernels& kernels) const;

 private:
  std::int64_t outer_pieces() const { return axes_.shape[0] * axes_.shape[1] * axes_.shape[2]; }
  LaneCopy lanes_of(std::int64_t piece, const char* tensor, const char* dense,
                    const ConvKernels& kernels) const;

  DenseAxes axes_{};
  int cut_axis_ = 3;
  std::int64_t slice_ = 1, slices_ = 0;  // of that axis
};

void round_operands(float* values, std::int64_t count, Rounding rounding,
                    const PoolKernels& kernels);

}  // namespace backops

#include "kernels/pool/pool.h"

namespace backops {

#define BACKOPS_POOL_KERNELS(isa, dtype) extern const PoolKernels pool_##dtype##_##isa;
#include "kernels/pool/kernels.inc"
#undef BACKOPS_POOL_KERNELS

const PoolKernels& pool_kernels(Isa isa, DType dtype) {
#define BACKOPS_POOL_KERNELS(isa_, dtype_) \
  if (Isa::isa_ <= isa && DType::dtype_ == dtype) return pool_##dtype_##_##isa_;
#include "kernels/pool/kernels.inc"
#undef BACKOPS_POOL_KERNELS
  __builtin_unreachable();  // every dtype has a generic row
}

}  // namespace backops

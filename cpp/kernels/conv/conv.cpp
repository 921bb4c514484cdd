#include "kernels/conv/conv.h"

namespace backops {

#define BACKOPS_CONV_KERNELS(isa, dtype) extern const ConvKernels conv_##dtype##_##isa;
#include "kernels/conv/kernels.inc"
#undef BACKOPS_CONV_KERNELS

const ConvKernels& conv_kernels(Isa isa, DType dtype) {
#define BACKOPS_CONV_KERNELS(isa_, dtype_) \
  if (Isa::isa_ <= isa && DType::dtype_ == dtype) return conv_##dtype_##_##isa_;
#include "kernels/conv/kernels.inc"
#undef BACKOPS_CONV_KERNELS
  __builtin_unreachable();  // every dtype has a generic row
}

}  // namespace backops

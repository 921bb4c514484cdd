#include "kernels/conv/conv.h"

namespace backops {

#define BACKOPS_CONV_KERNELS(isa, width, dtype) \
  extern const ConvKernels conv_##dtype##_##isa##_##width;
#include "kernels/conv/kernels.inc"
#undef BACKOPS_CONV_KERNELS

namespace {

constexpr const ConvKernels* kTable[] = {
#define BACKOPS_CONV_KERNELS(isa, width, dtype) &conv_##dtype##_##isa##_##width,
#include "kernels/conv/kernels.inc"
#undef BACKOPS_CONV_KERNELS
};

}  // namespace

const ConvKernels& conv_kernels(Isa isa, DType dtype, Width width) {
  const ConvKernels* best = nullptr;
  for (const ConvKernels* row : kTable) {
    if (row->isa > isa || row->dtype != dtype) continue;
    if (best == nullptr || (row->isa == best->isa && row->width == width)) best = row;
  }
  return *best;  // every dtype has a generic row
}

}  // namespace backops

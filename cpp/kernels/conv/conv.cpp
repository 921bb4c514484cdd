#include "kernels/conv/conv.h"

namespace backops {

#define BACKOPS_CONV_KERNELS(isa, size, dtype) \
  extern const ConvKernels conv_##dtype##_##isa##_##size;
#include "kernels/conv/kernels.inc"
#undef BACKOPS_CONV_KERNELS

namespace {

constexpr const ConvKernels* kTable[] = {
#define BACKOPS_CONV_KERNELS(isa, size, dtype) &conv_##dtype##_##isa##_##size,
#include "kernels/conv/kernels.inc"
#undef BACKOPS_CONV_KERNELS
};

}  // namespace

const ConvKernels& conv_kernels(Isa isa, DType dtype, VectorSize size) {
  const ConvKernels* best = nullptr;
  for (const ConvKernels* row : kTable) {
    if (row->isa > isa || row->dtype != dtype) continue;
    if (best == nullptr || (row->isa == best->isa && row->size == size)) best = row;
  }
  return *best;  // every dtype has a generic row
}

}  // namespace backops

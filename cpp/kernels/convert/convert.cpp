#include "kernels/convert/convert.h"

namespace backops {

#define BACKOPS_CONVERT_KERNELS(isa) extern const ConvertKernels convert_##isa;
#include "kernels/convert/kernels.inc"
#undef BACKOPS_CONVERT_KERNELS

const ConvertKernels& convert_kernels(Isa isa) {
#define BACKOPS_CONVERT_KERNELS(isa_) \
  if (Isa::isa_ <= isa) return convert_##isa_;
#include "kernels/convert/kernels.inc"
#undef BACKOPS_CONVERT_KERNELS
  __builtin_unreachable();  // there is a generic row
}

}  // namespace backops

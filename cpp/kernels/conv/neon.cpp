// NEON of AArch64.
#include "kernels/conv/body.h"
#include "kernels/vectors/neon_vector.h"

namespace backops {

BACKOPS_DEFINE_CONV_KERNELS(neon, full, float32, float, NeonVector)
BACKOPS_DEFINE_CONV_KERNELS(neon, full, float16, Float16, NeonVector)
BACKOPS_DEFINE_CONV_KERNELS(neon, full, bfloat16, BFloat16, NeonVector)
BACKOPS_DEFINE_CONV_KERNELS(neon, full, float64, double, NeonDoubleVector)

}  // namespace backops

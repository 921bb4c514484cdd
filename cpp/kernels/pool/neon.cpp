// NEON of AArch64.
#include "kernels/pool/body.h"
#include "kernels/vectors/neon_vector.h"

namespace backops {

BACKOPS_DEFINE_POOL_KERNELS(neon, float32, float, NeonVector)
BACKOPS_DEFINE_POOL_KERNELS(neon, float16, Float16, NeonVector)
BACKOPS_DEFINE_POOL_KERNELS(neon, bfloat16, BFloat16, NeonVector)
BACKOPS_DEFINE_POOL_KERNELS(neon, float64, double, NeonDoubleVector)

}  // namespace backops

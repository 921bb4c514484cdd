// NEON of AArch64.
#include "kernels/convert/body.h"
#include "kernels/vectors/neon_vector.h"

namespace backops {

BACKOPS_DEFINE_CONVERT_KERNELS(neon, NeonVector, NeonDoubleVector)

}  // namespace backops

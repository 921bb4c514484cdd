// AVX2 with FMA and F16C. Sums of float64 use the portable vector, compiled for this instruction
// set.
#include "kernels/conv/body.h"
#include "kernels/vectors/array_vector.h"
#include "kernels/vectors/avx2_vector.h"

namespace backops {

BACKOPS_DEFINE_CONV_KERNELS(avx2, full, float32, float, Avx2Vector)
BACKOPS_DEFINE_CONV_KERNELS(avx2, full, float16, Float16, Avx2Vector)
BACKOPS_DEFINE_CONV_KERNELS(avx2, full, bfloat16, BFloat16, Avx2Vector)
BACKOPS_DEFINE_CONV_KERNELS(avx2, full, float64, double, ArrayVector<double>)

}  // namespace backops

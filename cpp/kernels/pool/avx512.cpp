// AVX-512 F, BW, DQ, VL.
#include "kernels/pool/body.h"
#include "kernels/vectors/avx512_vector.h"

namespace backops {

BACKOPS_DEFINE_POOL_KERNELS(avx512, float32, float, Avx512Vector)
BACKOPS_DEFINE_POOL_KERNELS(avx512, float16, Float16, Avx512Vector)
BACKOPS_DEFINE_POOL_KERNELS(avx512, bfloat16, BFloat16, Avx512Vector)
BACKOPS_DEFINE_POOL_KERNELS(avx512, float64, double, Avx512DoubleVector)

}  // namespace backops

// AVX-512 F, BW, DQ, VL.
#include "kernels/conv/body.h"
#include "kernels/vectors/avx2_vector.h"
#include "kernels/vectors/avx512_bfloat16.h"
#include "kernels/vectors/avx512_transpose.h"
#include "kernels/vectors/avx512_vector.h"

namespace backops {

BACKOPS_DEFINE_CONV_KERNELS(avx512, full, float32, float, Avx512Vector)
BACKOPS_DEFINE_CONV_KERNELS(avx512, full, float16, Float16, Avx512Vector)
BACKOPS_DEFINE_CONV_KERNELS(avx512, full, bfloat16, BFloat16, Avx512Vector)
BACKOPS_DEFINE_CONV_KERNELS(avx512, full, float64, double, Avx512DoubleVector)
BACKOPS_DEFINE_CONV_KERNELS(avx512, half, float32, float, HalfAvx512Vector)
BACKOPS_DEFINE_CONV_KERNELS(avx512, half, float16, Float16, HalfAvx512Vector)
BACKOPS_DEFINE_CONV_KERNELS(avx512, half, bfloat16, BFloat16, HalfAvx512Vector)

}  // namespace backops

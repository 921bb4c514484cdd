// AVX-512 F, BW, DQ, VL.
#include "kernels/convert/body.h"
#include "kernels/vectors/avx512_vector.h"

namespace backops {

BACKOPS_DEFINE_CONVERT_KERNELS(avx512, Avx512Vector, Avx512DoubleVector)

}  // namespace backops

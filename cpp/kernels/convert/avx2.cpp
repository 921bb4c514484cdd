// AVX2 with F16C.
#include "kernels/convert/body.h"
#include "kernels/vectors/array_vector.h"
#include "kernels/vectors/avx2_vector.h"

namespace backops {

BACKOPS_DEFINE_CONVERT_KERNELS(avx2, Avx2Vector, ArrayVector<double>)

}  // namespace backops

// Any CPU: vectors are small arrays that the compiler may turn into whatever it has.
#include "kernels/conv/body.h"
#include "kernels/vectors/array_vector.h"

namespace backops {

BACKOPS_DEFINE_CONV_KERNELS(generic, full, float32, float, ArrayVector<float>)
BACKOPS_DEFINE_CONV_KERNELS(generic, full, float16, Float16, ArrayVector<float>)
BACKOPS_DEFINE_CONV_KERNELS(generic, full, bfloat16, BFloat16, ArrayVector<float>)
BACKOPS_DEFINE_CONV_KERNELS(generic, full, float64, double, ArrayVector<double>)

}  // namespace backops

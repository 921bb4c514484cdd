// Any CPU: vectors are small arrays that the compiler may turn into whatever it has.
#include "kernels/convert/body.h"
#include "kernels/vectors/array_vector.h"

namespace backops {

BACKOPS_DEFINE_CONVERT_KERNELS(generic, ArrayVector<float>, ArrayVector<double>)

}  // namespace backops

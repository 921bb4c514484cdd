#include "kernels/matrix/matrix.h"

namespace backops {

#ifdef BACKOPS_X86
extern const MatrixKernels matrix_amx;

const MatrixKernels* matrix_kernels(Isa isa) { return isa >= Isa::amx ? &matrix_amx : nullptr; }
#else
const MatrixKernels* matrix_kernels(Isa) { return nullptr; }
#endif

}  // namespace backops

#include "kernels/matrix/matrix.h"

#ifdef BACKOPS_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace backops {

#ifdef BACKOPS_AMX
extern const MatrixKernels matrix_amx;

namespace {

// Linux keeps tiles only for processes that asked for them, and refuses those with small signal
// stacks.
bool ask_for_tiles() {
  constexpr int kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

}  // namespace

const MatrixKernels* tile_kernels(Isa isa) {
  if (isa < Isa::amx) return nullptr;
  static const bool may_use = ask_for_tiles();
  return may_use ? &matrix_amx : nullptr;
}
#else
const MatrixKernels* tile_kernels(Isa) { return nullptr; }
#endif

#ifdef BACKOPS_PLAIN_MATRICES
extern const MatrixKernels matrix_generic;
const MatrixKernels* matrix_kernels(Isa) { return &matrix_generic; }
bool has_matrices(const Cpu&) { return true; }
#else
const MatrixKernels* matrix_kernels(Isa isa) { return tile_kernels(isa); }
bool has_matrices(const Cpu& cpu) { return cpu.has(Capability::amx); }
#endif

}  // namespace backops

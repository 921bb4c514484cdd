#include "kernels/matrix/matrix.h"

#ifdef BACKOPS_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace backops {

#ifdef BACKOPS_AMX
extern const MatrixKernels matrix_amx;
#endif
#ifdef BACKOPS_AVX512_BF16
extern const MatrixKernels matrix_avx512_bf16;
#endif
#ifdef BACKOPS_PLAIN_MATRICES
extern const MatrixKernels matrix_generic;
#endif

namespace {

// Linux keeps tiles only for processes that asked for them, and refuses those with small signal
// stacks.
[[maybe_unused]] bool may_use_tiles() {
#ifdef BACKOPS_AMX
  constexpr int kRequest = 0x1023, kTileData = 18;
  static const bool may_use = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return may_use;
#else
  return false;
#endif
}

}  // namespace

std::vector<const MatrixKernels*> matrix_instructions([[maybe_unused]] const Cpu& cpu) {
  std::vector<const MatrixKernels*> found;
#ifdef BACKOPS_AMX
  if (cpu.has(Capability::amx) && may_use_tiles()) found.push_back(&matrix_amx);
#endif
#ifdef BACKOPS_AVX512_BF16
  if (cpu.has(Capability::avx512_bf16)) found.push_back(&matrix_avx512_bf16);
#endif
  return found;
}

#ifdef BACKOPS_PLAIN_MATRICES
const MatrixKernels* matrix_kernels(const Cpu&) { return &matrix_generic; }
bool has_matrices(const Cpu&) { return true; }
#else
const MatrixKernels* matrix_kernels(const Cpu& cpu) {
  const auto found = matrix_instructions(cpu);
  return found.empty() ? nullptr : found.front();
}
bool has_matrices(const Cpu& cpu) {
  return cpu.has(Capability::amx) || cpu.has(Capability::avx512_bf16);
}
#endif

}  // namespace backops

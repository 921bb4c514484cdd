#include "kernels/pairs/pairs.h"

namespace backops {

#if defined(BACKOPS_PLAIN_MATRICES)
#define BACKOPS_PAIRS generic
#elif defined(BACKOPS_AVX512_BF16)
#define BACKOPS_PAIRS avx512_bf16
#endif

#ifdef BACKOPS_PAIRS
#define BACKOPS_PAIR_ROW_OF(isa, size) pairs_##isa##_##size
#define BACKOPS_PAIR_ROW(isa, size) BACKOPS_PAIR_ROW_OF(isa, size)
extern const PairKernels BACKOPS_PAIR_ROW(BACKOPS_PAIRS, full);
extern const PairKernels BACKOPS_PAIR_ROW(BACKOPS_PAIRS, half);
#endif

namespace {

constexpr const PairKernels* kTable[] = {
#ifdef BACKOPS_PAIRS
    &BACKOPS_PAIR_ROW(BACKOPS_PAIRS, full), &BACKOPS_PAIR_ROW(BACKOPS_PAIRS, half),
#endif
    nullptr};

}  // namespace

const PairKernels* pair_kernels(const Cpu& cpu, int width) {
  if (!has_pairs(cpu)) return nullptr;
  for (const PairKernels* row : kTable) {
    if (row != nullptr && row->conv.width == width) return row;
  }
  return nullptr;
}

bool has_pairs([[maybe_unused]] const Cpu& cpu) {
#ifdef BACKOPS_PLAIN_MATRICES
  return true;
#else
  return cpu.has(Capability::avx512_bf16);
#endif
}

}  // namespace backops

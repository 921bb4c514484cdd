// AVX-512 with products of bfloat16 pairs: each lane of a vector of sums gets the products of a
// pair of numbers, the left ones the same for all lanes.
#include <immintrin.h>

#include "kernels/matrix/packing.h"

namespace backops {
namespace {

void begin() {}
void end() {}

constexpr int kRowsAtOnce = 8;  // two vectors each leave registers for both sides

__m512bh bfloat16_pairs(const BFloat16Bits* from) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from));
}

__m512bh same_pair(const BFloat16Bits* from) {
  int pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

// The sums of some rows. Members rather than arrays: compilers keep these in registers.
template <int kRows, int kColumns>
struct PairSums {
  __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
  PairSums<kRows - 1, kColumns> rest;

  BACKOPS_INLINE void load(const MatrixProducts& a, const float* from) {
    first = _mm512_loadu_ps(from);
    if constexpr (kColumns == 2) second = _mm512_loadu_ps(from + a.sum_tile);
    rest.load(a, from + a.sum_step);
  }
  BACKOPS_INLINE void store(const MatrixProducts& a, float* to) const {
    _mm512_storeu_ps(to, first);
    if constexpr (kColumns == 2) _mm512_storeu_ps(to + a.sum_tile, second);
    rest.store(a, to + a.sum_step);
  }
  BACKOPS_INLINE void add_products(const BFloat16Bits* left, __m512bh right,
                                   __m512bh right_second) {
    const __m512bh pair = same_pair(left);
    first = _mm512_dpbf16_ps(first, pair, right);
    if constexpr (kColumns == 2) second = _mm512_dpbf16_ps(second, pair, right_second);
    rest.add_products(left + kTileDepth, right, right_second);
  }
};

template <int kColumns>
struct PairSums<0, kColumns> {
  BACKOPS_INLINE void load(const MatrixProducts&, const float*) {}
  BACKOPS_INLINE void store(const MatrixProducts&, float*) const {}
  BACKOPS_INLINE void add_products(const BFloat16Bits*, __m512bh, __m512bh) {}
};

template <int kColumns>
BACKOPS_INLINE void add_step(PairSums<kRowsAtOnce, kColumns>& sums, const BFloat16Bits* left,
                             const BFloat16Bits* right, std::int64_t right_tile, int pairs) {
  for (int pair = 0; pair < pairs; ++pair, left += 2, right += kTileDepth) {
    const __m512bh first = bfloat16_pairs(right);
    const __m512bh second = kColumns == 2 ? bfloat16_pairs(right + right_tile) : first;
    sums.add_products(left, first, second);
  }
}

template <int kPieces, int kColumns>
void multiply_rows(const MatrixProducts& args, const BFloat16Bits* left_rows, float* to) {
  const MatrixProducts a = args;
  PairSums<kRowsAtOnce, kColumns> sums;
  if (a.adds) sums.load(a, to);
  for (const MatrixRun *run = a.runs, *last = run + a.run_count; run != last; ++run) {
    const BFloat16Bits* left = left_rows + run->left;
    const BFloat16Bits* right = a.right + run->right;
    std::int64_t left_over = (a.steps * kTileDepth - (last - run > a.short_runs ? 0 : a.spare)) / 2;
    for (; left_over > 0; left_over -= kTileDepth / 2, left += kTileSize, right += kTileSize) {
      const auto pairs = static_cast<int>(left_over < kTileDepth / 2 ? left_over : kTileDepth / 2);
      for (int piece = 0; piece < kPieces * kPieces; ++piece) {
        add_step<kColumns>(sums, left + piece / kPieces * a.left_pitch,
                           right + piece % kPieces * a.right_pitch, a.right_tile, pairs);
      }
    }
  }
  sums.store(a, to);
}

template <int kPieces, int kColumns>
void multiply_tiles(const MatrixProducts& a) {
  for (std::int64_t row = 0; row < a.rows; row += kRowsAtOnce) {
    const BFloat16Bits* const left =
        a.left + row / kTileRows * a.left_tile + row % kTileRows * kTileDepth;
    multiply_rows<kPieces, kColumns>(a, left, a.sums + row * a.sum_step);
  }
}

void multiply(const MatrixProducts& a) {
  if (a.pieces == 2) {
    a.column_tiles == 2 ? multiply_tiles<2, 2>(a) : multiply_tiles<2, 1>(a);
  } else {
    a.column_tiles == 2 ? multiply_tiles<1, 2>(a) : multiply_tiles<1, 1>(a);
  }
}

}  // namespace

extern const MatrixKernels matrix_avx512_bf16;
const MatrixKernels matrix_avx512_bf16 = {
    Isa::avx512_bf16, pack_channels, pack_pairs, pack_rows, begin, end, multiply};

}  // namespace backops

// Thirty-two sums whose elements are bfloat16: a register has those of even places, another those
// of odd ones. Widening takes an instruction for sixteen, not two, and there are half as many loads
// and stores.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/vectors/avx512_vector.h"
#include "kernels/vectors/loops.h"
#include "kernels/vectors/scalar.h"

namespace backops {
namespace {

struct Avx512BFloat16Vector {
  using Sum = float;
  static constexpr int width = 32;
  static constexpr int registers = 32;
  static constexpr bool has_masked_stores = true;
  __m512 even, odd;

  static Avx512BFloat16Vector fill(float x) { return {_mm512_set1_ps(x), _mm512_set1_ps(x)}; }

  static Avx512BFloat16Vector widen(__m512i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-0x10000)))};
  }
  static Avx512BFloat16Vector load(const BFloat16* from) { return widen(_mm512_loadu_si512(from)); }
  static Avx512BFloat16Vector load_some(const BFloat16* from, int count) {
    return widen(_mm512_maskz_loadu_epi16(first(count), from));
  }
  static __mmask32 first(int count) {
    return static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
  }

  // Two vectors of sums in the order of their channels.
  static Avx512BFloat16Vector load_blocks(const float* low, const float* high) {
    const __m512 a = _mm512_loadu_ps(low), b = _mm512_loadu_ps(high);
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return {_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)};
  }

  __m512i as_bfloat16() const {
    const __m512i low = _mm512_srli_epi32(Avx512Vector::rounded_to_bfloat16(even), 16);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, Avx512Vector::rounded_to_bfloat16(odd));
  }
  void store(BFloat16* to) const { _mm512_storeu_si512(to, as_bfloat16()); }
  void store_some(BFloat16* to, int count) const {
    _mm512_mask_storeu_epi16(to, first(count), as_bfloat16());
  }

  Avx512BFloat16Vector plus_product(Avx512BFloat16Vector a, Avx512BFloat16Vector b) const {
    return {_mm512_fmadd_ps(a.even, b.even, even), _mm512_fmadd_ps(a.odd, b.odd, odd)};
  }
};

template <>
constexpr int kBlocks<Avx512BFloat16Vector> = 2;
template <>
struct WideFor<Avx512Vector, BFloat16> {
  using Type = Avx512BFloat16Vector;
};

}  // namespace
}  // namespace backops

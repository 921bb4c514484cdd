// AVX-512 with products of bfloat16 pairs.
#include <immintrin.h>

#include "kernels/pairs/body.h"
#include "kernels/vectors/avx2_vector.h"
#include "kernels/vectors/avx512_transpose.h"
#include "kernels/vectors/avx512_vector.h"

namespace backops {
namespace {

int pair_bits(const void* from) {
  int bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

template <class Left_>
struct WidePairs {
  using Sum = float;
  using Left = Left_;
  static constexpr int width = Avx512Vector::width;
  static constexpr int registers = Avx512Vector::registers;
  __m512 value;

  static WidePairs fill(float x) { return {_mm512_set1_ps(x)}; }
  static WidePairs spread(const Left* pair) {
    return {_mm512_castsi512_ps(_mm512_set1_epi32(pair_bits(pair)))};
  }
  static WidePairs load(const float* from) { return {_mm512_loadu_ps(from)}; }
  void store(float* to) const { _mm512_storeu_ps(to, value); }
  void store(BFloat16* to) const { Avx512Vector{value}.store(to); }
  WidePairs operator+(WidePairs other) const { return {_mm512_add_ps(value, other.value)}; }
  WidePairs plus_product(WidePairs a, WidePairs b) const {
    return {_mm512_dpbf16_ps(value, reinterpret_cast<__m512bh>(a.value),
                             reinterpret_cast<__m512bh>(b.value))};
  }
};

template <class Left_>
struct HalfPairs {
  using Sum = float;
  using Left = Left_;
  static constexpr int width = HalfAvx512Vector::width;
  static constexpr int registers = HalfAvx512Vector::registers;
  __m256 value;

  static HalfPairs fill(float x) { return {_mm256_set1_ps(x)}; }
  static HalfPairs spread(const Left* pair) {
    return {_mm256_castsi256_ps(_mm256_set1_epi32(pair_bits(pair)))};
  }
  static HalfPairs load(const float* from) { return {_mm256_loadu_ps(from)}; }
  void store(float* to) const { _mm256_storeu_ps(to, value); }
  void store(BFloat16* to) const { HalfAvx512Vector{value}.store(to); }
  HalfPairs operator+(HalfPairs other) const { return {_mm256_add_ps(value, other.value)}; }
  HalfPairs plus_product(HalfPairs a, HalfPairs b) const {
    return {_mm256_dpbf16_ps(value, reinterpret_cast<__m256bh>(a.value),
                             reinterpret_cast<__m256bh>(b.value))};
  }
};

void watch_numbers(const WatchNumbers& a) {
  const auto* const numbers = static_cast<const char*>(a.numbers);
  __m512i least = _mm512_load_si512(a.found->least), most = _mm512_load_si512(a.found->most);
  const auto look = [&](__m512i some) {
    const __m512i magnitude = _mm512_and_si512(some, _mm512_set1_epi16(0x7fff));
    // Zero less one is more than all others.
    least = _mm512_min_epu16(least, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)));
    most = _mm512_max_epu16(most, magnitude);
  };
  std::int64_t i = 0;
  for (; i + PairMagnitudes::kLanes <= a.count; i += PairMagnitudes::kLanes) {
    look(_mm512_loadu_si512(numbers + 2 * i));
  }
  if (i < a.count) {
    look(_mm512_maskz_loadu_epi16((1u << (a.count - i)) - 1u, numbers + 2 * i));
  }
  _mm512_store_si512(a.found->least, least);
  _mm512_store_si512(a.found->most, most);
}

template <>
struct PairOps<Avx512Vector> {
  static Avx512Vector pair(Avx512Vector even, Avx512Vector odd) {
    return {_mm512_castsi512_ps(_mm512_or_si512(
        _mm512_srli_epi32(_mm512_castps_si512(even.value), 16), _mm512_castps_si512(odd.value)))};
  }
  static Avx512Vector join(Avx512Vector low, bool low_is_upper, Avx512Vector high,
                           bool high_is_upper) {
    const __m512i mask = _mm512_set1_epi32(0xffff);
    const __m512i a = _mm512_castps_si512(low.value), b = _mm512_castps_si512(high.value);
    const __m512i first = low_is_upper ? _mm512_srli_epi32(a, 16) : _mm512_and_si512(a, mask);
    const __m512i second = high_is_upper ? _mm512_andnot_si512(mask, b) : _mm512_slli_epi32(b, 16);
    return {_mm512_castsi512_ps(_mm512_or_si512(first, second))};
  }
  static void copy(const char* from, float* to, int count) {
    if (count == 32) return _mm512_storeu_si512(to, _mm512_loadu_si512(from));
    const __m512i some = _mm512_maskz_loadu_epi16((1u << count) - 1u, from);
    _mm512_mask_storeu_epi32(to, Avx512Vector::first((count + 1) / 2), some);
  }
  static constexpr auto watch = watch_numbers;
};

template <>
struct PairOps<HalfAvx512Vector> {
  static HalfAvx512Vector pair(HalfAvx512Vector even, HalfAvx512Vector odd) {
    return {_mm256_castsi256_ps(_mm256_or_si256(
        _mm256_srli_epi32(_mm256_castps_si256(even.value), 16), _mm256_castps_si256(odd.value)))};
  }
  static HalfAvx512Vector join(HalfAvx512Vector low, bool low_is_upper, HalfAvx512Vector high,
                               bool high_is_upper) {
    const __m256i mask = _mm256_set1_epi32(0xffff);
    const __m256i a = _mm256_castps_si256(low.value), b = _mm256_castps_si256(high.value);
    const __m256i first = low_is_upper ? _mm256_srli_epi32(a, 16) : _mm256_and_si256(a, mask);
    const __m256i second = high_is_upper ? _mm256_andnot_si256(mask, b) : _mm256_slli_epi32(b, 16);
    return {_mm256_castsi256_ps(_mm256_or_si256(first, second))};
  }
  static void copy(const char* from, float* to, int count) {
    const __m256i some = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1u), from);
    _mm256_mask_storeu_epi32(to, static_cast<__mmask8>((1u << (count + 1) / 2) - 1u), some);
  }
  static constexpr auto watch = watch_numbers;
};

}  // namespace

extern const PairKernels pairs_avx512_bf16_full, pairs_avx512_bf16_half;
const PairKernels pairs_avx512_bf16_full = make_pair_kernels<Avx512Vector, WidePairs>(
    "pairs_avx512_bf16_full", Isa::avx512_bf16, VectorSize::full);
const PairKernels pairs_avx512_bf16_half = make_pair_kernels<HalfAvx512Vector, HalfPairs>(
    "pairs_avx512_bf16_half", Isa::avx512_bf16, VectorSize::half);

}  // namespace backops

// Eight float32 sums in one register, of which there are 16, or 32 with AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/vectors/loops.h"
#include "kernels/vectors/scalar.h"

namespace backops {
namespace {

// The first `count` of eight elements of two bytes, zeros behind them, in loads and stores that
// overlap: there are no masks for them, and copies of any number of bytes take a call.
inline __m128i load_halves(const void* from, int count) {
  const char* const bytes = static_cast<const char*>(from);
  const auto at = [bytes](int element) { return bytes + 2 * element; };
  if (count == 8) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if (count >= 4) {
    const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    const __m128i last = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at(count - 4)));
    return _mm_unpacklo_epi64(first, _mm_srl_epi64(last, _mm_cvtsi32_si128(16 * (8 - count))));
  }
  if (count == 0) return _mm_setzero_si128();
  std::uint64_t words = load_unaligned<std::uint16_t>(bytes);
  if (count > 1)
    words |= std::uint64_t{load_unaligned<std::uint16_t>(at(count - 1))} << 16 * (count - 1);
  if (count > 2) words |= std::uint64_t{load_unaligned<std::uint16_t>(at(1))} << 16;
  return _mm_cvtsi64_si128(static_cast<long long>(words));
}

inline void store_halves(__m128i halves, void* to, int count) {
  char* const bytes = static_cast<char*>(to);
  const auto put = [bytes](int element, auto words) {
    std::memcpy(bytes + 2 * element, &words, sizeof words);
  };
  const auto first = static_cast<std::uint64_t>(_mm_cvtsi128_si64(halves));
  const auto last = static_cast<std::uint64_t>(_mm_extract_epi64(halves, 1));
  if (count >= 4) {
    put(0, first);
    if (count > 4) put(count - 4, first >> 16 * (count - 4) | last << 16 * (8 - count));
    return;
  }
  if (count > 0) put(0, static_cast<std::uint16_t>(first));
  if (count > 1) put(count - 1, static_cast<std::uint16_t>(first >> 16 * (count - 1)));
  if (count > 2) put(1, static_cast<std::uint16_t>(first >> 16));
}

template <int kRegisters>
struct Vector256 {
  using Sum = float;
  static constexpr int width = 8;
  static constexpr int registers = kRegisters;
  __m256 value;

  static __m256i lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  static __m256i first(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane_numbers());
  }

  static Vector256 fill(float x) { return {_mm256_set1_ps(x)}; }

  static Vector256 load(const float* from) { return {_mm256_loadu_ps(from)}; }
  static Vector256 load(const Float16* from) { return load_some(from, width); }
  static Vector256 load(const BFloat16* from) { return load_some(from, width); }

  static Vector256 load_some(const float* from, int count) {
    return {_mm256_maskload_ps(from, first(count))};
  }
  static Vector256 load_some(const Float16* from, int count) {
    return {_mm256_cvtph_ps(load_halves(from, count))};
  }
  static Vector256 load_some(const BFloat16* from, int count) {
    const __m256i words = _mm256_cvtepu16_epi32(load_halves(from, count));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(words, 16))};
  }

  // Half the loads of 32 bytes cross no line: shifting in registers does not pay here.
  using Shift = std::int64_t;
  static Shift shift(std::int64_t elements) { return elements; }
  static Vector256 load_shifted(const float* from, Shift shift) { return load(from + shift); }
  static constexpr bool shifts_in_registers = false;

  void store(float* to) const { _mm256_storeu_ps(to, value); }
  __m128i as_halves(Float16) const {
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  __m128i as_halves(BFloat16) const {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_add_epi32(bits, bias);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const __m256i words = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
  template <class E>
  void store(E* to) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), as_halves(E{}));
  }

  void store_some(float* to, int count) const { _mm256_maskstore_ps(to, first(count), value); }
  template <class E>
  void store_some(E* to, int count) const {
    if (count == width) return store(to);
    store_halves(as_halves(E{}), to, count);
  }

  Vector256 operator+(Vector256 other) const { return {_mm256_add_ps(value, other.value)}; }
  Vector256 operator*(Vector256 other) const { return {_mm256_mul_ps(value, other.value)}; }
  // this + a * b, rounded once
  Vector256 plus_product(Vector256 a, Vector256 b) const {
    return {_mm256_fmadd_ps(a.value, b.value, value)};
  }
  // The first, or the last, halves of a and b, lane by lane in turn.
  static Vector256 low(Vector256 a, Vector256 b) {
    return {_mm256_permute2f128_ps(_mm256_unpacklo_ps(a.value, b.value),
                                   _mm256_unpackhi_ps(a.value, b.value), 0x20)};
  }
  static Vector256 high(Vector256 a, Vector256 b) {
    return {_mm256_permute2f128_ps(_mm256_unpacklo_ps(a.value, b.value),
                                   _mm256_unpackhi_ps(a.value, b.value), 0x31)};
  }

  using Mask = __m256i;
  static Mask mask(std::uint32_t lanes_with_bits) {
    const __m256i bit = _mm256_sllv_epi32(_mm256_set1_epi32(1), lane_numbers());
    const __m256i bits = _mm256_set1_epi32(static_cast<int>(lanes_with_bits));
    return _mm256_cmpeq_epi32(_mm256_and_si256(bits, bit), bit);
  }
  Vector256 add_masked(Vector256 other, Mask chosen) const {
    const __m256 sum = _mm256_add_ps(value, other.value);
    return {_mm256_blendv_ps(value, sum, _mm256_castsi256_ps(chosen))};
  }
  Vector256 only(Mask chosen) const { return {_mm256_and_ps(value, _mm256_castsi256_ps(chosen))}; }

  using Pattern = __m256i;
  static Pattern load_pattern(const std::int32_t* pattern) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pattern));
  }
  static constexpr bool only_gathers = false;
  // Lane i is lane pattern[i].
  Vector256 permuted(Pattern pattern) const { return {_mm256_permutevar8x32_ps(value, pattern)}; }
  static Vector256 permute_one(const float* from, Pattern pattern) {
    return load(from).permuted(pattern);
  }
  static Vector256 permute_two(const float* from, Pattern pattern) {
    const __m256i index = pattern;
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), index);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(from + width), index);
    // Bit 3 of the index says which of the two; blendv looks at the sign.
    return {_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)))};
  }
  static Vector256 gather(const float* from, Pattern pattern) {
    return {_mm256_i32gather_ps(from, pattern, 4)};
  }

  static void stream(void* to, const void* from, std::size_t bytes) {
    char* target = static_cast<char*>(to);
    const char* source = static_cast<const char*>(from);
    std::size_t head = (32 - reinterpret_cast<std::uintptr_t>(target) % 32) % 32;
    if (head > bytes) head = bytes;
    std::memcpy(target, source, head);
    std::size_t at = head;
    for (; at + 32 <= bytes; at += 32) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(target + at),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + at)));
    }
    std::memcpy(target + at, source + at, bytes - at);
  }
  static void stream_fence() { _mm_sfence(); }

  static constexpr bool has_masked_stores = false;
};

using Avx2Vector = Vector256<16>;
using HalfAvx512Vector = Vector256<32>;
template <>
constexpr bool kIsHalf<HalfAvx512Vector> = true;

}  // namespace
}  // namespace backops

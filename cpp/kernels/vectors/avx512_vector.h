// Sixteen float32 or eight float64 sums in one register.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/vectors/scalar.h"

namespace backops {
namespace {

struct Avx512Vector {
  using Sum = float;
  static constexpr int width = 16;
  static constexpr int registers = 32;
  __m512 value;

  static __mmask16 first(int count) { return static_cast<__mmask16>((1u << count) - 1u); }

  static Avx512Vector fill(float x) { return {_mm512_set1_ps(x)}; }

  static Avx512Vector widen_bfloat16(__m256i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }

  static Avx512Vector load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static Avx512Vector load(const Float16* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  static Avx512Vector load(const BFloat16* from) {
    return widen_bfloat16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }

  static Avx512Vector load_some(const float* from, int count) {
    return {_mm512_maskz_loadu_ps(first(count), from)};
  }
  static Avx512Vector load_some(const Float16* from, int count) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(count), from))};
  }
  static Avx512Vector load_some(const BFloat16* from, int count) {
    return widen_bfloat16(_mm256_maskz_loadu_epi16(first(count), from));
  }

  // Elements from `from + shift` on; see Place in spread.h.
  using Shift = __m512i;
  static Shift shift(std::int64_t elements) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(lane, _mm512_set1_epi32(static_cast<int>(elements)));
  }
  static Avx512Vector load_shifted(const float* from, Shift shift) {
    return shifted(load(from), load(from + width), shift);
  }
  // The same of two vectors that follow each other.
  static constexpr bool shifts_in_registers = true;
  static Avx512Vector shifted(Avx512Vector low, Avx512Vector high, Shift shift) {
    return {_mm512_permutex2var_ps(low.value, shift, high.value)};
  }

  __m256i as_float16() const {
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  // The high half of each lane is its bfloat16. Not vcvtneps2bf16, which turns subnormals into
  // zero. NaNs need no care: what is added to the low half carries into the high one only if the
  // low one is not zero, but sums of widened elements have no other NaNs than theirs and the CPU's
  // own, and multiplying made them quiet.
  static __m512i rounded_to_bfloat16(__m512 sums) {
    const __m512i bits = _mm512_castps_si512(sums);
    const __mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const __m512i biased = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    return _mm512_mask_add_epi32(biased, is_odd, biased, _mm512_set1_epi32(1));
  }
  __m256i as_bfloat16() const {
    return _mm512_castsi512_si256(
        _mm512_permutexvar_epi16(odd_words(), rounded_to_bfloat16(value)));
  }

  // The high half of each lane, in order.
  static __m512i odd_words() {
    return _mm512_castsi256_si512(
        _mm256_setr_epi16(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31));
  }

  void store(float* to) const { _mm512_storeu_ps(to, value); }
  void store(Float16* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), as_float16());
  }
  void store(BFloat16* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), as_bfloat16());
  }

  void store_some(float* to, int count) const { _mm512_mask_storeu_ps(to, first(count), value); }
  void store_some(Float16* to, int count) const {
    _mm256_mask_storeu_epi16(to, first(count), as_float16());
  }
  void store_some(BFloat16* to, int count) const {
    _mm256_mask_storeu_epi16(to, first(count), as_bfloat16());
  }

  Avx512Vector operator+(Avx512Vector other) const { return {_mm512_add_ps(value, other.value)}; }
  Avx512Vector operator*(Avx512Vector other) const { return {_mm512_mul_ps(value, other.value)}; }
  // this + a * b, rounded once
  Avx512Vector plus_product(Avx512Vector a, Avx512Vector b) const {
    return {_mm512_fmadd_ps(a.value, b.value, value)};
  }
  // The first, or the last, halves of a and b, lane by lane in turn.
  static Avx512Vector low(Avx512Vector a, Avx512Vector b) {
    const __m512i turn = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return {_mm512_permutex2var_ps(a.value, turn, b.value)};
  }
  static Avx512Vector high(Avx512Vector a, Avx512Vector b) {
    const __m512i turn =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return {_mm512_permutex2var_ps(a.value, turn, b.value)};
  }

  using Mask = __mmask16;
  static Mask mask(std::uint32_t lanes_with_bits) { return static_cast<Mask>(lanes_with_bits); }
  Avx512Vector add_masked(Avx512Vector other, Mask chosen) const {
    return {_mm512_mask_add_ps(value, chosen, value, other.value)};
  }

  Avx512Vector only(Mask chosen) const { return {_mm512_maskz_mov_ps(chosen, value)}; }

  using Pattern = __m512i;
  static Pattern load_pattern(const std::int32_t* pattern) { return _mm512_loadu_si512(pattern); }
  static constexpr bool only_gathers = false;
  // Lane i is lane pattern[i].
  Avx512Vector permuted(Pattern pattern) const { return {_mm512_permutexvar_ps(pattern, value)}; }
  static Avx512Vector permute_one(const float* from, Pattern pattern) {
    return load(from).permuted(pattern);
  }
  static Avx512Vector permute_two(const float* from, Pattern pattern) {
    return {_mm512_permutex2var_ps(_mm512_loadu_ps(from), pattern, _mm512_loadu_ps(from + width))};
  }
  static Avx512Vector gather(const float* from, Pattern pattern) {
    return {_mm512_i32gather_ps(pattern, from, 4)};
  }

  static void stream(void* to, const void* from, std::size_t bytes) {
    char* target = static_cast<char*>(to);
    const char* source = static_cast<const char*>(from);
    std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(target) % 64) % 64;
    if (head > bytes) head = bytes;
    std::memcpy(target, source, head);
    std::size_t at = head;
    for (; at + 64 <= bytes; at += 64) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(target + at), _mm512_loadu_si512(source + at));
    }
    std::memcpy(target + at, source + at, bytes - at);
  }
  static void stream_fence() { _mm_sfence(); }

  // Puts one vector of elements into every second place, and touches nothing between.
  static constexpr bool has_masked_stores = true;
  static void put_every_second(char* to, const float* from) {
    const Avx512Vector some = load(from);
    _mm512_mask_storeu_ps(to, 0x5555, low(some, some).value);
    _mm512_mask_storeu_ps(to + 64, 0x5555, high(some, some).value);
  }
  template <class Half>
  static void put_every_second(char* to, const Half* from) {
    const __m256i some = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    _mm512_mask_storeu_epi16(to, 0x55555555, _mm512_cvtepu16_epi32(some));
  }
};

// Eight float64 sums in one register.
struct Avx512DoubleVector {
  using Sum = double;
  static constexpr int width = 8;
  static constexpr int registers = 32;
  __m512d value;

  static __mmask8 first(int count) { return static_cast<__mmask8>((1u << count) - 1u); }

  static Avx512DoubleVector fill(double x) { return {_mm512_set1_pd(x)}; }
  static Avx512DoubleVector load(const double* from) { return {_mm512_loadu_pd(from)}; }
  static Avx512DoubleVector load_some(const double* from, int count) {
    return {_mm512_maskz_loadu_pd(first(count), from)};
  }
  void store(double* to) const { _mm512_storeu_pd(to, value); }
  void store_some(double* to, int count) const { _mm512_mask_storeu_pd(to, first(count), value); }

  Avx512DoubleVector operator+(Avx512DoubleVector other) const {
    return {_mm512_add_pd(value, other.value)};
  }
  Avx512DoubleVector operator*(Avx512DoubleVector other) const {
    return {_mm512_mul_pd(value, other.value)};
  }
  Avx512DoubleVector plus_product(Avx512DoubleVector a, Avx512DoubleVector b) const {
    return {_mm512_fmadd_pd(a.value, b.value, value)};
  }
  static Avx512DoubleVector low(Avx512DoubleVector a, Avx512DoubleVector b) {
    return {_mm512_permutex2var_pd(a.value, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), b.value)};
  }
  static Avx512DoubleVector high(Avx512DoubleVector a, Avx512DoubleVector b) {
    return {
        _mm512_permutex2var_pd(a.value, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), b.value)};
  }

  using Mask = __mmask8;
  static Mask mask(std::uint32_t lanes_with_bits) { return static_cast<Mask>(lanes_with_bits); }
  Avx512DoubleVector add_masked(Avx512DoubleVector other, Mask chosen) const {
    return {_mm512_mask_add_pd(value, chosen, value, other.value)};
  }

  Avx512DoubleVector only(Mask chosen) const { return {_mm512_maskz_mov_pd(chosen, value)}; }

  using Shift = __m512i;
  static Shift shift(std::int64_t elements) {
    return _mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(elements));
  }
  static Avx512DoubleVector load_shifted(const double* from, Shift shift) {
    return shifted(load(from), load(from + width), shift);
  }
  static constexpr bool shifts_in_registers = true;
  static Avx512DoubleVector shifted(Avx512DoubleVector low, Avx512DoubleVector high, Shift shift) {
    return {_mm512_permutex2var_pd(low.value, shift, high.value)};
  }

  using Pattern = __m256i;
  static Pattern load_pattern(const std::int32_t* pattern) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pattern));
  }
  static constexpr bool only_gathers = false;
  Avx512DoubleVector permuted(Pattern pattern) const {
    return {_mm512_permutexvar_pd(_mm512_cvtepi32_epi64(pattern), value)};
  }
  static Avx512DoubleVector permute_one(const double* from, Pattern pattern) {
    return load(from).permuted(pattern);
  }
  static Avx512DoubleVector permute_two(const double* from, Pattern pattern) {
    return load_shifted(from, _mm512_cvtepi32_epi64(pattern));
  }
  static Avx512DoubleVector gather(const double* from, Pattern pattern) {
    return {_mm512_i32gather_pd(pattern, from, 8)};
  }

  static constexpr bool has_masked_stores = true;
  static void put_every_second(char* to, const double* from) {
    const Avx512DoubleVector some = load(from);
    _mm512_mask_storeu_pd(to, 0x55, low(some, some).value);
    _mm512_mask_storeu_pd(to + 64, 0x55, high(some, some).value);
  }
};

}  // namespace
}  // namespace backops

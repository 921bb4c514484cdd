// Four float32 or two float64 sums in one register. NEON is part of every AArch64 CPU.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "kernels/vectors/scalar.h"

namespace backops {
namespace {

// What both vectors do alike. Bytes are loaded and stored: elements may be unaligned.
inline uint8x16_t load_16_bytes(const void* from) {
  return vld1q_u8(static_cast<const std::uint8_t*>(from));
}
inline void store_16_bytes(uint8x16_t bytes, void* to) {
  vst1q_u8(static_cast<std::uint8_t*>(to), bytes);
}

// Of 32. Single numbers need one, too, until they are multiplied; with all 32 for sums and vectors,
// GCC 12 kept five sums of convolution's products in memory.
constexpr int kNeonRegisters = 28;

struct NeonVector {
  using Sum = float;
  static constexpr int width = 4;
  static constexpr int registers = kNeonRegisters;
  float32x4_t value;

  static NeonVector fill(float x) { return {vdupq_n_f32(x)}; }

  static uint16x4_t load_halves(const void* from) {
    return vreinterpret_u16_u8(vld1_u8(static_cast<const std::uint8_t*>(from)));
  }
  static NeonVector load(const float* from) { return {vreinterpretq_f32_u8(load_16_bytes(from))}; }
  static NeonVector load(const Float16* from) {
    return {vcvt_f32_f16(vreinterpret_f16_u16(load_halves(from)))};
  }
  static NeonVector load(const BFloat16* from) {
    return {vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(load_halves(from)), 16))};
  }

  // The first `count` elements; the other lanes are 0. Copies of a fixed size are no calls.
  template <class E>
  static NeonVector load_some(const E* from, int count) {
    if (count == width) return load(from);
    E elements[width] = {};
    if ((count & 2) != 0) std::memcpy(elements, from, 2 * sizeof(E));
    if ((count & 1) != 0) std::memcpy(elements + (count & 2), from + (count & 2), sizeof(E));
    return load(elements);
  }

  // Loads need not be aligned: shifting in registers would not pay.
  using Shift = std::int64_t;
  static Shift shift(std::int64_t elements) { return elements; }
  static NeonVector load_shifted(const float* from, Shift shift) { return load(from + shift); }
  static constexpr bool shifts_in_registers = false;

  uint16x4_t as_bfloat16() const {
    const uint32x4_t bits = vreinterpretq_u32_f32(value);
    const uint32x4_t even = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(even, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x00400000));
    const uint32x4_t is_number = vceqq_f32(value, value);
    return vshrn_n_u32(vbslq_u32(is_number, rounded, quiet), 16);
  }

  static void store_halves(uint16x4_t halves, void* to) {
    vst1_u8(static_cast<std::uint8_t*>(to), vreinterpret_u8_u16(halves));
  }
  void store(float* to) const { store_16_bytes(vreinterpretq_u8_f32(value), to); }
  void store(Float16* to) const { store_halves(vreinterpret_u16_f16(vcvt_f16_f32(value)), to); }
  void store(BFloat16* to) const { store_halves(as_bfloat16(), to); }

  template <class E>
  void store_some(E* to, int count) const {
    if (count == width) return store(to);
    E elements[width];
    store(elements);
    if ((count & 2) != 0) std::memcpy(to, elements, 2 * sizeof(E));
    if ((count & 1) != 0) std::memcpy(to + (count & 2), elements + (count & 2), sizeof(E));
  }

  NeonVector operator+(NeonVector other) const { return {vaddq_f32(value, other.value)}; }
  NeonVector operator*(NeonVector other) const { return {vmulq_f32(value, other.value)}; }
  // this + a * b, rounded once
  NeonVector plus_product(NeonVector a, NeonVector b) const {
    return {vfmaq_f32(value, a.value, b.value)};
  }
  // The first, or the last, halves of a and b, lane by lane in turn.
  static NeonVector low(NeonVector a, NeonVector b) { return {vzip1q_f32(a.value, b.value)}; }
  static NeonVector high(NeonVector a, NeonVector b) { return {vzip2q_f32(a.value, b.value)}; }

  using Mask = uint32x4_t;
  static Mask mask(std::uint32_t lanes_with_bits) {
    const uint32x4_t bit = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32(lanes_with_bits), bit);
  }
  NeonVector add_masked(NeonVector other, Mask chosen) const {
    return {vbslq_f32(chosen, vaddq_f32(value, other.value), value)};
  }
  NeonVector only(Mask chosen) const {
    return {vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(value), chosen))};
  }

  // Permutations are of bytes. Whichever half is not used costs nothing.
  struct Pattern {
    uint8x16_t bytes;
    const std::int32_t* elements;
  };
  static Pattern load_pattern(const std::int32_t* pattern) {
    const uint32x4_t elements = vreinterpretq_u32_u8(load_16_bytes(pattern));
    const uint32x4_t bytes_of_first = vdupq_n_u32(0x03020100);
    return {vreinterpretq_u8_u32(vmlaq_n_u32(bytes_of_first, elements, 0x04040404)), pattern};
  }
  static constexpr bool only_gathers = false;
  // Lane i is lane pattern[i].
  NeonVector permuted(const Pattern& pattern) const {
    return {vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(value), pattern.bytes))};
  }
  static NeonVector permute_one(const float* from, const Pattern& pattern) {
    return load(from).permuted(pattern);
  }
  static NeonVector permute_two(const float* from, const Pattern& pattern) {
    const uint8x16x2_t both = {{load_16_bytes(from), load_16_bytes(from + width)}};
    return {vreinterpretq_f32_u8(vqtbl2q_u8(both, pattern.bytes))};
  }
  static NeonVector gather(const float* from, const Pattern& pattern) {
    const std::int32_t* const at = pattern.elements;
    const float elements[width] = {from[at[0]], from[at[1]], from[at[2]], from[at[3]]};
    return load(elements);
  }

  // There is no such store for C++; cores notice by themselves that whole lines are written.
  static void stream(void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
  static void stream_fence() {}

  static constexpr bool has_masked_stores = false;
};

struct NeonDoubleVector {
  using Sum = double;
  static constexpr int width = 2;
  static constexpr int registers = kNeonRegisters;
  float64x2_t value;

  static NeonDoubleVector fill(double x) { return {vdupq_n_f64(x)}; }
  static NeonDoubleVector load(const double* from) {
    return {vreinterpretq_f64_u8(load_16_bytes(from))};
  }
  static NeonDoubleVector load_some(const double* from, int count) {
    if (count == width) return load(from);
    double elements[width] = {};
    if (count == 1) std::memcpy(elements, from, sizeof(double));
    return load(elements);
  }
  void store(double* to) const { store_16_bytes(vreinterpretq_u8_f64(value), to); }
  void store_some(double* to, int count) const {
    if (count == width) return store(to);
    const double first = vgetq_lane_f64(value, 0);
    if (count == 1) std::memcpy(to, &first, sizeof first);
  }

  NeonDoubleVector operator+(NeonDoubleVector other) const {
    return {vaddq_f64(value, other.value)};
  }
  NeonDoubleVector operator*(NeonDoubleVector other) const {
    return {vmulq_f64(value, other.value)};
  }
  NeonDoubleVector plus_product(NeonDoubleVector a, NeonDoubleVector b) const {
    return {vfmaq_f64(value, a.value, b.value)};
  }
  static NeonDoubleVector low(NeonDoubleVector a, NeonDoubleVector b) {
    return {vzip1q_f64(a.value, b.value)};
  }
  static NeonDoubleVector high(NeonDoubleVector a, NeonDoubleVector b) {
    return {vzip2q_f64(a.value, b.value)};
  }

  using Mask = uint64x2_t;
  static Mask mask(std::uint32_t lanes_with_bits) {
    const uint64x2_t bit = {1, 2};
    return vtstq_u64(vdupq_n_u64(lanes_with_bits), bit);
  }
  NeonDoubleVector add_masked(NeonDoubleVector other, Mask chosen) const {
    return {vbslq_f64(chosen, vaddq_f64(value, other.value), value)};
  }
  NeonDoubleVector only(Mask chosen) const {
    return {vreinterpretq_f64_u64(vandq_u64(vreinterpretq_u64_f64(value), chosen))};
  }

  using Shift = std::int64_t;
  static Shift shift(std::int64_t elements) { return elements; }
  static NeonDoubleVector load_shifted(const double* from, Shift shift) {
    return load(from + shift);
  }
  static constexpr bool shifts_in_registers = false;

  // Two loads are no more than a load and a permutation.
  struct Pattern {
    std::int64_t first, second;
  };
  static Pattern load_pattern(const std::int32_t* pattern) { return {pattern[0], pattern[1]}; }
  static constexpr bool only_gathers = true;
  static NeonDoubleVector gather(const double* from, Pattern pattern) {
    const double elements[width] = {from[pattern.first], from[pattern.second]};
    return load(elements);
  }
  NeonDoubleVector permuted(Pattern pattern) const {
    double lanes[width];
    store(lanes);
    return gather(lanes, pattern);
  }
  static NeonDoubleVector permute_one(const double* from, Pattern pattern) {
    return gather(from, pattern);
  }
  static NeonDoubleVector permute_two(const double* from, Pattern pattern) {
    return gather(from, pattern);
  }

  static constexpr bool has_masked_stores = false;
};

}  // namespace
}  // namespace backops

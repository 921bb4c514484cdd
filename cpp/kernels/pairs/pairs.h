// Kernels for CPUs with an instruction that multiplies pairs of bfloat16 numbers and adds both
// products to a float32 sum. Two channels of a tensor that follow each other are a pair, which
// takes the place of one sum: tiles, runs of products and blocks are then those of float32 tensors
// with half as many channels. The instruction takes subnormal numbers and sums for zero.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "kernels/conv/conv.h"

namespace backops {

// Of bfloat16 numbers that have been looked at: the largest bits without a sign, and the smallest
// but zero's, less one, in each of some lanes.
struct PairMagnitudes {
  static constexpr int kLanes = 32;

  PairMagnitudes() {
    for (int lane = 0; lane < kLanes; ++lane) {
      least[lane] = UINT16_MAX;
      most[lane] = 0;
    }
  }

  alignas(64) std::uint16_t least[kLanes];
  alignas(64) std::uint16_t most[kLanes];
};

// Numbers that lie side by side.
struct WatchNumbers {
  const void* numbers;
  std::int64_t count;
  PairMagnitudes* found;
};

// to[j * to_step + c] = the pair of from[2 * j * from_step + c] and from[(2 * j + 1) * from_step +
// c], which are bfloat16 numbers as float32, for j < pairs and c < width, a multiple of vectors.
struct PackPairRows {
  const float* from;
  std::int64_t from_step, pairs, width;
  float* to;
  std::int64_t to_step;
};

// to[r * to_step + i] = the pair of from[r * row_step + i] and from[r * row_step + i + step], for
// r < rows and i < count.
struct PairNumbers {
  const BFloat16* from;
  std::int64_t step, count;
  float* to;
  std::int64_t rows = 1, row_step = 0, to_step = 0;
};

// Words have two numbers each: word u has numbers 2 * u and 2 * u + 1, at from[u * width + c] for c
// < width, a multiple of vectors. to[tap * tap_pitch + j * width + c] = the pair of numbers 2 * j *
// taps + tap and (2 * j + 1) * taps + tap, for j < pairs and tap < taps.
struct JoinTaps {
  const float* from;
  std::int64_t width, pairs, taps;
  float* to;
  std::int64_t tap_pitch;
};

struct PairKernels {
  // As for bfloat16 tensors but for these, which read pairs in the place of sums on both sides:
  // to_lanes brings them, an odd last channel with a zero; multiply_positions and multiply_twins
  // multiply them, and so does multiply_channels. Of multiply_apart the left side is counted in
  // bfloat16 numbers, of which pairs may begin anywhere. Others are null.
  ConvKernels conv;
  // As multiply_apart, but sums become bfloat16 numbers, in which their steps are counted as well.
  void (*multiply_to_numbers)(const BlockProducts&);
  void (*pack)(const PackPairRows&);
  void (*join)(const JoinTaps&);
  void (*pair)(const PairNumbers&);
  void (*watch)(const WatchNumbers&);
};

// Those with vectors of so many sums; null where the CPU has none.
const PairKernels* pair_kernels(const Cpu& cpu, int width);

// Whether a CPU has them.
bool has_pairs(const Cpu& cpu);

}  // namespace backops

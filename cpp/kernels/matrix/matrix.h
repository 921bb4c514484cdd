// Kernels for CPUs with instructions that multiply pairs or small matrices of bfloat16 numbers.
// Numbers of more digits are split into pieces, bfloat16 numbers whose sum they are: float16 has
// two. Products are exact, sums are float32; subnormal numbers and sums are taken for zero.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cpu.h"

namespace backops {

using BFloat16Bits = std::uint16_t;

constexpr int kTileRows = 16;                      // of a matrix; as many columns of sums
constexpr int kTileDepth = 32;                     // products that a step adds to each sum
constexpr int kTileSize = kTileRows * kTileDepth;  // numbers of a matrix

// Of what has been packed: the bits of the largest magnitude, and of the smallest but zero, less
// one; as float32.
struct Magnitudes {
  std::uint32_t least = UINT32_MAX, most = 0;

  void add(const Magnitudes& other) {
    if (other.least < least) least = other.least;
    if (other.most > most) most = other.most;
  }
};

// The same of every lane of what has been packed: many calls are short, and lanes are joined once.
struct LaneMagnitudes {
  LaneMagnitudes() {
    for (int lane = 0; lane < kTileRows; ++lane) {
      least[lane] = UINT32_MAX;
      most[lane] = 0;
    }
  }
  Magnitudes joined() const {
    Magnitudes all;
    for (int lane = 0; lane < kTileRows; ++lane) all.add({least[lane], most[lane]});
    return all;
  }

  alignas(64) std::uint32_t least[kTileRows];
  alignas(64) std::uint32_t most[kTileRows];
};

// Packing: float32 numbers in the order that products want. The second pieces of all, if there are
// two, lie `piece_pitch` behind the first.
struct PackTarget {
  BFloat16Bits* to;
  std::int64_t piece_pitch;
  int pieces;
  LaneMagnitudes* found;
};

// to[p * 32 + c] = c < 16 ? first[p * 16 + c] : second[p * 16 + c - 16], or zeros without a second.
struct PackChannels {
  const float* first;
  const float* second;
  std::int64_t count;  // of p
  PackTarget target;
};

// to[j * 32 + 2 * c + i] = from[(2 * j + i) * step + c] for c < 16 and i < 2: what the right side
// of a product wants.
struct PackPairs {
  const float* from;
  std::int64_t step, count;  // of j
  PackTarget target;
};

// to[j * 512 + c * 32 + i] = from[(32 * j + i) * 16 + c] for c < 16 and i < 32: what the left side
// wants, if rows are the channels.
struct PackRows {
  const float* from;
  std::int64_t count;  // of j
  PackTarget target;
};

// Where a run of products begins on either side, in numbers.
struct MatrixRun {
  std::int64_t left, right;
};

// sums[row * sum_step + column / 16 * sum_tile + column % 16] = sum over runs r and k < steps * 32
// of
//   left[r.left + row / 16 * left_tile + k / 32 * 512 + row % 16 * 32 + k % 32] *
//   right[r.right + column / 16 * right_tile + k / 32 * 512 + pair(k % 32, column % 16)]
// where pair is the order of PackPairs, of all pieces of both. Rows and columns come in tiles of
// 16, one or two; sums of rows from `rows` on may become anything. In the last runs, `short_runs`
// of them, the last `spare` numbers of the last step are zeros on the left, and may be left out.
struct MatrixProducts {
  const BFloat16Bits* left;
  const BFloat16Bits* right;
  const MatrixRun* runs;
  std::int64_t run_count, short_runs, steps;
  std::int64_t spare;                    // an even number, less than a step
  std::int64_t left_tile, right_tile;    // between tiles of rows or columns
  std::int64_t left_pitch, right_pitch;  // between pieces
  float* sums;
  std::int64_t sum_step, sum_tile;
  int row_tiles, column_tiles, pieces;
  std::int64_t rows;
  bool adds;  // to what the sums are already
};

struct MatrixKernels {
  Isa isa;
  void (*pack_channels)(const PackChannels&);
  void (*pack_pairs)(const PackPairs&);
  void (*pack_rows)(const PackRows&);
  // Products only between these two, on the same thread.
  void (*begin)();
  void (*end)();
  void (*multiply)(const MatrixProducts&);
};

// Those that a CPU has instructions for and the system allows, the best first.
std::vector<const MatrixKernels*> matrix_instructions(const Cpu& cpu);

// What convolutions use: the best of these, or plain loops where that is built in; null without.
const MatrixKernels* matrix_kernels(const Cpu& cpu);

// Whether a CPU has them, as far as it can be told before they are asked for.
bool has_matrices(const Cpu& cpu);

}  // namespace backops

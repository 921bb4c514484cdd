// Kernels of convolution: bringing channels side by side, and sums over the taps of a
// kernel where each lane of a vector is a channel of its own.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/isa.h"

namespace backops {

// Sums of a vector of any instruction set.
constexpr int kMostWidth = 16;

enum class VectorSize : std::uint8_t { full, half };

// Between elements of a tensor and sums with the channels of a position in vectors: channel c of
// position p is the element at c * channel_stride_bytes + p * position_stride_bytes and the sum at
// p * sum_pitch + c / width * vector_pitch + c % width. If positions are rows, of `row` each, those
// of the next row begin `row_gap` sums further on. Elements that are written are sums plus the
// `bias` of their channel, if there is one.
struct LaneCopy {
  char* elements;
  std::int64_t channel_stride_bytes, position_stride_bytes;
  void* sums;
  std::int64_t sum_pitch, vector_pitch;
  std::int64_t channels, positions;
  std::int64_t row = 0, row_gap = 0;
  const void* bias = nullptr;
};

// Groups of `count` channels whose channels are neighbouring lanes. A tap then has as many
// products: product k multiplies lane `patterns[k * width + i]` of what is spread where lane i
// would be multiplied, and its weights or sums lie `k * pitch` behind those of the first. None:
// every lane is a group.
struct LaneGroups {
  int count = 0;
  const std::int32_t* patterns = nullptr;
  std::int64_t pitch = 0;
};

// Where the source and the weights of a tap begin, in sums. So many taps from this one on are
// neighbours: each reads what the one before it reads a position earlier.
struct GatherTap {
  std::int64_t source, weight, neighbours;
};

// target[j * target_step] = bias + sum over t of weights[t.weight] * source[t.source + j * width];
// all of them are vectors, steps count sums. Null is no bias. The same of further lines, which
// begin `source_line` and `target_line` later.
struct GatherTaps {
  const void* source;
  const void* weights;
  const GatherTap* taps;
  std::int64_t tap_count;
  void* target;
  std::int64_t target_step;
  std::int64_t count;
  const void* bias;
  LaneGroups groups;  // the source is spread
  std::int64_t lines = 1, source_line = 0, target_line = 0;
};

// Where the source of a tap begins, in elements, and in which column of it; its weights, in sums.
struct ElementTap {
  std::int64_t source, column, weight, neighbours;  // as above
};

// Counts the neighbours of taps; are_neighbours(one, next) says which are.
template <class Tap, class AreNeighbours>
void count_neighbours(Tap* taps, std::int64_t count, const AreNeighbours& are_neighbours) {
  for (std::int64_t t = count - 1; t >= 0; --t) {
    const bool has_next = t + 1 < count && are_neighbours(taps[t], taps[t + 1]);
    taps[t].neighbours = has_next ? taps[t + 1].neighbours + 1 : 1;
  }
}

// target[j * target_step + v * width] = bias[v * weight_pitch] + sum over t of
// weights[t.weight + v * weight_pitch] * source[t.source + j * source_step + v * width] where
// t.column + j * column_step is one of `columns` from 0 on: others are not there, and not read.
// Source and target are elements of a tensor, in vectors, and their steps count elements.
// `last_lanes`, if it is not 0: so many lanes of the last vector are there. The first tap is the
// one that reads furthest on: what it reads `ahead_bytes` further is asked for, and what is written
// so far ahead.
struct GatherElements {
  const void* source;
  const void* weights;
  const ElementTap* taps;
  std::int64_t tap_count;
  std::int64_t source_step, column_step, columns;
  void* target;
  std::int64_t target_step;
  std::int64_t count;
  std::int64_t vectors, weight_pitch;  // vectors: of v
  const void* bias;
  int last_lanes;
  LaneGroups groups;  // the source is spread
  std::int64_t ahead_bytes;
  bool are_weights_finite;  // then they may be multiplied with zeros
};

// sums[(r * sum_columns + c) * width + v * sum_pitch] += sum over j of grad[j * grad_step + v *
// width] * input[row_offsets[r] + c * column_step + j * input_step + v * width]; again in vectors.
// The same of further lines, which begin `grad_line` and `input_line` later.
struct CorrelateTaps {
  const void* grad;
  const void* input;
  const std::int64_t* row_offsets;
  std::int64_t rows, columns;
  std::int64_t column_step, grad_step, input_step;
  std::int64_t count;
  void* sums;
  std::int64_t sum_columns;         // of a row, those that are left alone included
  std::int64_t vectors, sum_pitch;  // vectors: of v
  std::int64_t at_once;             // j of which all vectors are summed before the next ones
  LaneGroups groups;                // `grad` is spread
  std::int64_t lines = 1, grad_line = 0, input_line = 0;
};

// sums[0] += source[0] + source[pitch] + ..., `count` vectors.
struct SumLanes {
  const void* source;
  std::int64_t pitch;  // in sums
  std::int64_t count;
  void* sums;
};

// Where a run of products begins on either side, in sums, and which j it may leave out.
enum class Without : std::uint8_t { nothing, first, last };
struct BlockRun {
  std::int64_t left, right;
  Without without = Without::nothing;
};

// sums[j * sum_step + v * sum_pitch] = sum over runs r and k < run_length of
//   left[r.left + k * left_step + j * left_pitch] * right[r.right + k * right_step + v *
//   right_pitch]
// where left are numbers, and right and sums vectors; plus bias[j], a number, or bias[v * width], a
// vector, as the kernel says, unless it is null.
struct BlockProducts {
  const void* left;
  const void* right;
  const BlockRun* runs;
  std::int64_t run_count, run_length;
  std::int64_t short_runs, short_length;  // of runs that follow those
  std::int64_t left_step, right_step, right_pitch;
  void* sums;
  std::int64_t sum_step, sum_pitch;
  std::int64_t rows;  // of j
  int vectors;        // of v, 1 or 2
  bool adds;          // to what the sums are already
  // Twins are the same again, from here on the left and to there.
  std::int64_t left_twin, sum_twin;
  std::int64_t left_pitch;  // for multiply_apart
  const void* bias;
  // Runs need not multiply the j that they say: what is on the left there is zero. Only
  // multiply_positions and multiply_twins make use of it.
  bool leaves_out;
};

// row[p * row_step + i] += folds[p * width + i] for folds p < count and i < numbers, which are no
// more than a vector is wide.
struct AddFolds {
  const void* folds;
  void* row;
  std::int64_t row_step, count, numbers;
};

// to[i * channels + c] = from[c * pitch + i] for i < count.
struct Interleave {
  const void* from;
  std::int64_t pitch, channels, count;
  void* to;
};

struct ConvKernels {
  const char* name;  // conv_<dtype>_<isa>_<size>
  Isa isa;
  VectorSize size;
  DType dtype;
  int width;                // sums of a vector
  int vector_channels;      // of a tensor, that to_lanes brings into a vector
  std::int64_t most_twins;  // rows that multiply_twins takes at once
  std::int64_t sum_bytes;
  bool has_groups;                      // takes LaneGroups of several channels
  void (*to_lanes)(const LaneCopy&);    // elements in, sums out
  void (*from_lanes)(const LaneCopy&);  // sums in, elements out
  void (*gather)(const GatherTaps&);
  void (*gather_elements)(const GatherElements&);
  void (*correlate)(const CorrelateTaps&);
  void (*sum)(const SumLanes&);
  void (*multiply_positions)(const BlockProducts&);  // left_pitch is a vector
  void (*multiply_twins)(const BlockProducts&);      // the same, for few rows
  void (*multiply_apart)(const BlockProducts&);      // any left_pitch; the bias has vectors
  void (*multiply_channels)(const BlockProducts&);   // left_pitch is 1; the bias has numbers
  void (*fold)(const AddFolds&);
  void (*interleave)(const Interleave&);
};

// The kernels of `isa`, or of the next lower one that was built; those of full width where there
// are none of half.
const ConvKernels& conv_kernels(Isa isa, DType dtype, VectorSize size = VectorSize::full);

}  // namespace backops

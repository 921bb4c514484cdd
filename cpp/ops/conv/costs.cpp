#include "ops/conv/costs.h"

#include <algorithm>

#include "ops/conv/blocks/folds.h"
#include "ops/conv/lanes/order.h"
#include "ops/conv/pairs/engine.h"
#include "ops/conv/pairs/weight_layout.h"
#include "ops/conv/rows/engine.h"

namespace backops {
namespace {

// Parts of the peak that kernels reach where nothing else slows them down.
constexpr double kProductRate = 0.85;
constexpr double kTapRate = 0.6;     // they load a vector for each multiplication
constexpr double kJoinedRate = 0.7;  // or spread one for every three, of groups
constexpr double kPlainCycles = 30;

double as_double(std::int64_t value) { return static_cast<double>(value); }

double cycles_of_vectors(const ConvTask& task, double vectors, VectorSize size, double rate) {
  const auto bytes = width_of(task, size) * static_cast<std::int64_t>(task.shape.sum_bytes());
  return vectors / (task.cpu.products_per_cycle(bytes) * rate);
}

// A weight product by pairs of positions: runs are rows of outputs. Sums are those of some vectors
// of outputs times some of the numbers that a window has in a row.
double position_pair_cycles(const ConvTask& task, VectorSize size, std::int64_t numbers,
                            double packing) {
  constexpr std::int64_t kMostRows = 14;
  constexpr double kSumsAtOnce = 9.5;                   // fewer wait for each other
  constexpr double kRunCycles = 24, kCallCycles = 100;  // that beginning a run or a tap takes
  constexpr double kRowCycles = 10;                     // that bringing a row of a channel takes
  const ConvShape& s = task.shape;
  const double vectors = as_double(ceil_divide(s.group_outputs(), width_of(task, size)));
  const double rows = as_double(numbers) / as_double(ceil_divide(numbers, kMostRows));
  const double sums = rows * std::min(vectors, 2.0);
  // As many numbers are spread for vectors of half the width.
  const double spreading = size == VectorSize::half ? 1.15 : 1;
  const double step =
      spreading * cycles_of_vectors(task, std::max(sums, kSumsAtOnce), size, kProductRate);
  const double steps = as_double(ceil_divide(s.out[2], 2));
  const double runs =
      vectors / sums * s.multiplications() / as_double(s.group_outputs() * s.out[2]);
  const double elements = as_double(s.in_image() + s.out_image());
  const double all_rows = as_double(s.in_image() / s.in[2] + s.out_image() / s.out[2]);
  return runs * (steps * step + kRunCycles + kCallCycles / as_double(s.out[1])) +
         as_double(s.batch) * (elements * packing + all_rows * kRowCycles);
}

// How many times as many positions there are with the zeros between rows, which neighbours share.
double with_zeros(const ConvShape& s) {
  double factor = 1;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    const double size = as_double(s.is_turned ? s.in[axis] : s.out[axis]);
    const double reach =
        as_double((s.kernel[axis] - 1) * s.dilation[axis]) / as_double(s.stride[axis]);
    factor *= 1 + reach / (2 * size);
  }
  return factor;
}

// Of an input product all columns are computed, also those that few taps reach.
double columns_of_windows(const ConvShape& s) {
  if (s.is_turned) return 1;
  return std::max(1.0, as_double(s.in[2]) / as_double(s.out[2] * s.stride[2]));
}

}  // namespace

std::int64_t width_of(const ConvTask& task, VectorSize size) {
  return conv_kernels(task.cpu.isa(), task.dtype, size).width;
}

double lanes_cycles(const ConvTask& task, VectorSize size) {
  const ConvShape& s = task.shape;
  const double products = (s.makes_input ? 1 : 0) + (s.makes_weight ? 1 : 0);
  const ConvKernels& kernels = conv_kernels(task.cpu.isa(), task.dtype, size);
  const std::int64_t width = kernels.width, joined = joined_channels(s, kernels);
  const std::int64_t lanes = s.groups * joined;
  const double vectors =
      as_double(ceil_divide(lanes, width)) * s.multiplications() / as_double(lanes);
  // As many instructions load, convert and store half as many numbers.
  const double half = size_of(task.dtype) == s.sum_bytes() ? 1.15 : 1.4;
  const double loading = size == VectorSize::half ? half : 1;
  return cycles_of_vectors(task, loading * products * vectors, size,
                           joined > 1 ? kJoinedRate : kTapRate);
}

// Vectors on the side of the inputs for the input product; on either side for the weights, where a
// few sums at a time wait for each other.
double blocks_cycles(const ConvTask& task, VectorSize size) {
  const ConvShape& s = task.shape;
  const std::int64_t width = width_of(task, size);
  const double inputs = as_double(s.group_inputs()), outputs = as_double(s.group_outputs());
  const double input_vectors = as_double(ceil_divide(s.group_inputs(), width));
  const double output_vectors = as_double(ceil_divide(s.group_outputs(), width));
  const auto waiting = [](double rows, double vectors) {
    constexpr double kSumsAtOnce = 8;
    return std::max(1.0, kSumsAtOnce / (std::min(rows, kSumsAtOnce) * std::min(vectors, 2.0)));
  };
  double vectors = 0;
  if (s.makes_input) vectors += input_vectors * outputs * columns_of_windows(s);
  if (s.makes_weight) {
    vectors += std::min(output_vectors * inputs * waiting(inputs, output_vectors),
                        input_vectors * outputs * waiting(outputs, input_vectors));
  }
  vectors *= s.multiplications() / (inputs * outputs);
  // Twice as many instructions for the same products: 3 to 13 % more time on a Zen 4.
  if (size == VectorSize::half) vectors *= 1.08;
  return cycles_of_vectors(task, vectors, size, kProductRate);
}

// Folds of an input product are added where they overlap, which short rows are dominated by.
double folded_cycles(const ConvTask& task, VectorSize size) {
  constexpr double kVectorCycles = 3.5, kResultCycles = 5, kMore = 1.1;
  const ConvShape& s = task.shape;
  ConvTask own = task;
  own.shape = FoldedTaps(s, width_of(task, size)).problem();
  double cycles = kMore * blocks_cycles(own, size);
  if (s.makes_input) {
    const double vectors = as_double(ceil_divide(own.shape.inputs, width_of(task, size)));
    cycles += as_double(s.batch) * (kVectorCycles * vectors * as_double(own.shape.in_positions()) +
                                    kResultCycles * as_double(s.in_image()));
  }
  return cycles;
}

// Runs of products are as long as a row of a window, not as the channels are many.
double rows_cycles(const ConvTask& task, VectorSize size) {
  constexpr double kLongRuns = 0.9, kPackingCycles = 0.4;
  const ConvShape& s = task.shape;
  if (s.makes_weight) {
    return position_pair_cycles(task, size, s.kernel[2] * s.inputs, kPackingCycles);
  }
  const double pairs = row_pairs(task, size) != nullptr ? 2 : 1;
  return kLongRuns * blocks_cycles(task, size) / pairs;
}

double matrix_cycles(const ConvTask& task, VectorSize) {
  constexpr double kTileProducts = 400, kPackingCycles = 1, kPairRate = 0.82;
  // A pair for each lane of a vector, as often as there are products of such vectors.
  const double pair_products = kPairRate * 32 * task.cpu.products_per_cycle(64);
  const double rate = task.cpu.has(Capability::amx) ? kTileProducts : pair_products;
  const ConvShape& s = task.shape;
  const double pieces = task.dtype == DType::bfloat16 ? 1 : 2;
  // Tiles alone in their row or column are loaded more often.
  const auto tiles = [](std::int64_t channels) {
    constexpr double kAlone = 1.1;
    const std::int64_t count = ceil_divide(channels, 16);
    return as_double(count) * (count == 1 ? kAlone : 1);
  };
  const double channels =
      256 * tiles(s.group_inputs()) * tiles(s.group_outputs()) * as_double(s.groups);
  const double products = (s.makes_input ? 1 : 0) + (s.makes_weight ? 1 : 0);
  const std::int64_t packed =
      (s.makes_input ? s.out_image() : 0) + (s.makes_weight ? s.out_image() + s.in_image() : 0);
  const double elements = as_double(s.batch) * as_double(packed) * pieces;
  return products * with_zeros(s) * as_double(s.batch * s.windows()) * as_double(s.taps()) *
             channels * pieces * pieces / rate +
         elements * kPackingCycles;
}

double pairs_cycles(const ConvTask& task, VectorSize size) {
  if (task.shape.makes_weight) {
    constexpr double kPackingCycles = 0.27;
    ConvTask own = task;
    own.shape = with_joined_rows(task.shape);
    return position_pair_cycles(own, size, own.shape.group_inputs(), kPackingCycles);
  }
  // Runs, of which there is one for each tap, are as short as the pairs are few.
  constexpr double kOfGroups = 1.3, kOfFew = 1.1;
  ConvTask own = task;
  own.shape = of_pairs(task.shape);
  const std::int64_t width = width_of(task, VectorSize::full);
  const bool is_small_group = task.shape.groups > 1 && task.shape.group_inputs() < width;
  const bool are_few = own.shape.group_outputs() < width && task.shape.taps() > 1;
  return blocks_cycles(own, size) * (is_small_group ? kOfGroups : are_few ? kOfFew : 1);
}

double plain_cycles(const ConvTask& task, VectorSize) {
  return 2 * task.shape.multiplications() * kPlainCycles;
}

}  // namespace backops

// Every row of kernels.inc against plain loops. Sums are of whole numbers, so that they are exact
// in any order; whole buffers are compared, so that a byte written elsewhere is a difference too.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/isa.h"
#include "kernels/conv/conv.h"
#include "tests/check.h"
#include "tests/elements.h"
#include "tests/memory.h"

namespace backops {

#define BACKOPS_CONV_KERNELS(isa, width, dtype) \
  extern const ConvKernels conv_##dtype##_##isa##_##width;
#include "kernels/conv/kernels.inc"
#undef BACKOPS_CONV_KERNELS

namespace {

using namespace test;

constexpr const ConvKernels* kTable[] = {
#define BACKOPS_CONV_KERNELS(isa, width, dtype) &conv_##dtype##_##isa##_##width,
#include "kernels/conv/kernels.inc"
#undef BACKOPS_CONV_KERNELS
};

double read_sum(const ConvKernels& k, const Memory& memory, std::int64_t index) {
  return read_element(sum_dtype(k.dtype), memory.data() + index * k.sum_bytes);
}
void write_sum(const ConvKernels& k, Memory& memory, std::int64_t index, double value) {
  write_element(sum_dtype(k.dtype), value, memory.data() + index * k.sum_bytes);
}

Memory whole_numbers(const ConvKernels& k, std::int64_t count, Random& random) {
  Memory memory(count * k.sum_bytes, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    write_sum(k, memory, i, static_cast<double>(random.integer(-8, 8)));
  }
  return memory;
}

// How the elements of a copy lie in memory.
struct Strides {
  std::int64_t channel, position, first;  // in elements
};

Strides strides_of(int kind, std::int64_t channels, std::int64_t positions) {
  switch (kind) {
    case 0: return {positions + 3, 1, 0};
    case 1: return {1, channels + 2, 0};
    case 2: return {2 * positions, 2, 0};
    default: return {-positions, -1, channels * positions - 1};
  }
}

struct CopyCase {
  std::int64_t channels, positions, lanes, pitch, vector_pitch;
  Strides strides;
  std::int64_t row = 0, row_gap = 0;

  std::int64_t element(std::int64_t c, std::int64_t p) const {
    return strides.first + c * strides.channel + p * strides.position;
  }
  std::int64_t elements() const {
    const std::int64_t last = element(channels - 1, positions - 1);
    return std::max(last, strides.first) + 1;
  }
  std::int64_t sum(std::int64_t c, std::int64_t p) const {
    const std::int64_t rows = row == 0 ? 0 : p / row;
    return p * pitch + rows * row_gap + c / lanes * vector_pitch + c % lanes;
  }
  std::int64_t sums() const {
    const std::int64_t whole_vectors = channels / lanes * lanes;
    const std::int64_t last_whole = whole_vectors == 0 ? 0 : sum(whole_vectors - 1, positions - 1);
    return std::max(last_whole, sum(channels - 1, positions - 1)) + 1;
  }
};

void test_to_lanes(const ConvKernels& k, const CopyCase& c, std::int64_t misalignment,
                   Random& random) {
  const std::int64_t bytes = bytes_of(k.dtype);
  Memory elements(c.elements() * bytes, misalignment), sums(c.sums() * k.sum_bytes, 0),
      expected(c.sums() * k.sum_bytes, 0);
  for (std::int64_t p = 0; p < c.positions; ++p) {
    for (std::int64_t channel = 0; channel < c.channels; ++channel) {
      const double value = rounded_to(k.dtype, random.real());
      write_element(k.dtype, value, elements.data() + c.element(channel, p) * bytes);
      write_sum(k, expected, c.sum(channel, p), value);
    }
  }
  k.to_lanes({elements.data() + c.strides.first * bytes, c.strides.channel * bytes,
              c.strides.position * bytes, sums.data(), c.pitch, c.vector_pitch, c.channels,
              c.positions, c.row, c.row_gap});
  CHECK(equal_bytes(sums, expected));
}

void test_from_lanes(const ConvKernels& k, const CopyCase& c, std::int64_t misalignment,
                     bool has_bias, Random& random) {
  const std::int64_t bytes = bytes_of(k.dtype);
  Memory elements(c.elements() * bytes, misalignment), expected(c.elements() * bytes, misalignment),
      sums(c.sums() * k.sum_bytes, 0);
  const Memory bias = whole_numbers(k, c.channels, random);
  for (std::int64_t p = 0; p < c.positions; ++p) {
    for (std::int64_t channel = 0; channel < c.channels; ++channel) {
      const double value = rounded_to(sum_dtype(k.dtype), random.real());
      const double added = has_bias ? read_sum(k, bias, channel) : 0;
      write_sum(k, sums, c.sum(channel, p), value);
      write_element(k.dtype, rounded_to(sum_dtype(k.dtype), value + added),
                    expected.data() + c.element(channel, p) * bytes);
    }
  }
  k.from_lanes({elements.data() + c.strides.first * bytes, c.strides.channel * bytes,
                c.strides.position * bytes, sums.data(), c.pitch, c.vector_pitch, c.channels,
                c.positions, c.row, c.row_gap, has_bias ? bias.data() : nullptr});
  CHECK(equal_bytes(elements, expected));
}

void test_copies(const ConvKernels& k) {
  Random random(1);
  const std::int64_t sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 65, 80};
  for (const std::int64_t channels : sizes) {
    for (const std::int64_t positions : sizes) {
      for (int kind = 0; kind < 4; ++kind) {
        const Strides strides = strides_of(kind, channels, positions);
        const CopyCase together{channels, positions, k.width, channels + (kind % 2) * 5,
                                k.width,  strides};
        // A block of memory for every vector of channels.
        const CopyCase apart{channels, positions, k.width, k.width, positions * k.width + 3,
                             strides};
        const std::int64_t misalignment = kind % 2 * (k.dtype == DType::float64 ? 8 : 2);
        const Situation in("%s, %ld channels, %ld positions, strides %d", k.name,
                           static_cast<long>(channels), static_cast<long>(positions), kind);
        CopyCase rows = apart;
        rows.row = 7;
        rows.row_gap = 2 * k.width;
        rows.vector_pitch += (positions / rows.row + 1) * rows.row_gap;
        for (const CopyCase& c : {together, apart, rows}) {
          test_to_lanes(k, c, misalignment, random);
          test_from_lanes(k, c, misalignment, false, random);
          test_from_lanes(k, c, misalignment, true, random);
        }
      }
    }
  }
}

// Lanes of groups of so many channels, the last of which comes first: no order is taken for
// granted. One channel: each lane is a group.
class TestGroups {
 public:
  TestGroups(const ConvKernels& k, std::int64_t channels, std::int64_t pitch)
      : width_(k.width), channels_(channels), pitch_(pitch) {
    for (std::int64_t i = 0; i < channels * width_; ++i) {
      patterns_.push_back(static_cast<std::int32_t>(lane(i / width_, i % width_)));
    }
  }
  std::int64_t products() const { return channels_; }
  std::int64_t lane(std::int64_t product, std::int64_t i) const {
    return i / channels_ * channels_ + channels_ - 1 - product;
  }
  LaneGroups groups() const {
    if (channels_ == 1) return {};
    return {static_cast<int>(channels_), patterns_.data(), pitch_};
  }

 private:
  const std::int64_t width_, channels_, pitch_;
  std::vector<std::int32_t> patterns_;
};

// Calls body(channels) for all groups that vectors hold.
template <class Body>
void for_groups(const ConvKernels& k, const Body& body) {
  const std::int64_t most = k.has_groups ? k.width : 1;
  for (std::int64_t channels = 1; channels <= most; channels *= 2) body(channels);
}

// Steps are in vectors.
void test_gather(const ConvKernels& k, std::int64_t taps, std::int64_t count,
                 std::int64_t target_step, bool has_bias, std::int64_t channels) {
  Random random(static_cast<std::uint64_t>(taps * 100 + count));
  constexpr std::int64_t kSpread = 6;  // of offsets, in vectors
  const std::int64_t lines = 1 + count % 3, source_line = 3;
  const Memory source =
      whole_numbers(k, (count + kSpread + (lines - 1) * source_line) * k.width, random);
  const TestGroups groups(k, channels, (taps + 3) * k.width);
  const Memory weights = whole_numbers(k, channels * (taps + 3) * k.width, random);
  const Memory bias = whole_numbers(k, k.width, random);
  std::vector<GatherTap> list;
  for (std::int64_t t = 0; t < taps; ++t) {
    list.push_back({(random.integer(0, kSpread) - kSpread / 2) * k.width,
                    random.integer(0, taps + 1) * k.width, 1});
  }
  count_neighbours(list.data(), taps, [&](const GatherTap& one, const GatherTap& next) {
    return next.source == one.source - k.width;
  });
  const std::int64_t target_line = (count - 1) * target_step + 1;
  const std::int64_t size = lines * target_line * k.width * k.sum_bytes;
  Memory target(size, 0), expected(size, 0);
  const std::int64_t first = kSpread / 2 * k.width;
  for (std::int64_t at = 0; at < lines * count; ++at) {
    const std::int64_t j = at % count, line = at / count;
    const std::int64_t from = first + (j + line * source_line) * k.width;
    for (std::int64_t i = 0; i < k.width; ++i) {
      double sum = has_bias ? read_sum(k, bias, i) : 0;
      for (std::int64_t product = 0; product < channels; ++product) {
        for (const GatherTap& tap : list) {
          sum += read_sum(k, weights, product * (taps + 3) * k.width + tap.weight + i) *
                 read_sum(k, source, from + tap.source + groups.lane(product, i));
        }
      }
      write_sum(k, expected, (j * target_step + line * target_line) * k.width + i, sum + 0.0);
    }
  }
  k.gather({source.data() + first * k.sum_bytes, weights.data(), list.data(), taps, target.data(),
            target_step * k.width, count, has_bias ? bias.data() : nullptr, groups.groups(), lines,
            source_line * k.width, target_line * k.width});
  CHECK(equal_bytes(target, expected));
}

// Taps of a row, and of the row before it, whose neighbours share what they read. Where there are
// as many taps as columns, the last of a row lies beside the first of the next, and is none of
// these. Columns end where the memory does: what lies before and behind them is not the caller's.
void test_gather_elements(const ConvKernels& k, std::int64_t taps, std::int64_t count,
                          std::int64_t channels, std::int64_t column_step, bool has_bias,
                          std::int64_t group_channels = 1) {
  Random random(static_cast<std::uint64_t>(taps * 100 + count));
  const std::int64_t bytes = bytes_of(k.dtype), step = channels + 1;
  const std::int64_t columns = count * column_step, rows = 2;
  const std::int64_t vectors = (channels + k.width - 1) / k.width;
  const std::int64_t elements = (rows * columns - 1) * step + channels;
  Memory source(elements * bytes, 0);
  for (std::int64_t i = 0; i < elements; ++i) {
    write_element(k.dtype, static_cast<double>(random.integer(-2, 2)), source.data() + i * bytes);
  }
  const std::int64_t weight_pitch = group_channels * rows * taps * k.width;
  const TestGroups groups(k, group_channels, rows * taps * k.width);
  const Memory weights = whole_numbers(k, vectors * weight_pitch, random);
  const Memory bias = whole_numbers(k, vectors * weight_pitch, random);
  std::vector<ElementTap> list;
  for (std::int64_t t = 0; t < rows * taps; ++t) {
    const std::int64_t column = taps / 2 - t % taps;
    list.push_back({((rows - 1 - t / taps) * columns + column) * step, column, t * k.width, 1});
  }
  count_neighbours(list.data(), rows * taps, [&](const ElementTap& one, const ElementTap& next) {
    return column_step == 1 && next.column == one.column - 1;
  });
  const std::int64_t target_bytes = count * step * bytes;
  Memory target(target_bytes, 0), careful(target_bytes, 0), expected(target_bytes, 0);
  for (std::int64_t j = 0; j < count; ++j) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t own = c / k.width * weight_pitch + c % k.width;
      double sum = has_bias ? read_sum(k, bias, own) : 0;
      for (std::int64_t i = 0; i < groups.products() * rows * taps; ++i) {
        const std::int64_t product = i / (rows * taps);
        const ElementTap& tap = list[static_cast<std::size_t>(i % (rows * taps))];
        const std::int64_t column = tap.column + j * column_step;
        if (column < 0 || column >= columns) continue;
        const std::int64_t at = tap.source + j * column_step * step + groups.lane(product, c);
        sum += read_sum(k, weights, product * rows * taps * k.width + tap.weight + own) *
               read_element(k.dtype, source.data() + at * bytes);
      }
      write_element(k.dtype, sum + 0.0, expected.data() + (j * step + c) * bytes);
    }
  }
  GatherElements args{source.data(),
                      weights.data(),
                      list.data(),
                      rows * taps,
                      column_step * step,
                      column_step,
                      columns,
                      target.data(),
                      step,
                      count,
                      vectors,
                      weight_pitch,
                      has_bias ? bias.data() : nullptr,
                      static_cast<int>(channels % k.width),
                      groups.groups(),
                      512,
                      true};
  k.gather_elements(args);
  CHECK(equal_bytes(target, expected));
  args.target = careful.data();
  args.are_weights_finite = false;
  k.gather_elements(args);
  CHECK(equal_bytes(careful, expected));
}

// Steps are in vectors.
struct CorrelateSteps {
  std::int64_t column, grad, input;
};

// Sums have a column on either side that is left alone. Lines overlap.
void test_correlate(const ConvKernels& k, std::int64_t rows, std::int64_t columns,
                    std::int64_t count, std::int64_t vectors, const CorrelateSteps& step,
                    std::int64_t channels = 1, std::int64_t lines = 1) {
  Random random(static_cast<std::uint64_t>(rows * 100 + columns * 10 + step.input));
  const std::int64_t row = (columns - 1) * step.column + (count - 1) * step.input + vectors;
  const std::int64_t sum_columns = columns + 2, product_sums = rows * sum_columns * k.width;
  const std::int64_t sum_pitch = channels * product_sums;
  const TestGroups groups(k, channels, product_sums);
  const Memory grad = whole_numbers(k, (count * step.grad + vectors + lines) * k.width, random);
  const Memory input = whole_numbers(k, (rows * row + 2 * lines) * k.width, random);
  Memory sums = whole_numbers(k, vectors * sum_pitch, random);
  Memory expected(static_cast<std::int64_t>(sums.size()), 0);
  std::vector<std::int64_t> offsets;
  for (std::int64_t r = 0; r < rows; ++r) offsets.push_back((rows - 1 - r) * row * k.width);
  for (std::int64_t i = 0; i < vectors * sum_pitch; ++i) {
    const std::int64_t vector = i / sum_pitch * k.width, product = i % sum_pitch / product_sums;
    const std::int64_t lane = vector + i % k.width;
    const std::int64_t other = vector + groups.lane(product, i % k.width);
    const std::int64_t c = i / k.width % sum_columns - 1;
    const std::int64_t r = i % product_sums / k.width / sum_columns;
    double sum = read_sum(k, sums, i);
    for (std::int64_t at = 0; at < count * lines && c >= 0 && c < columns; ++at) {
      const std::int64_t j = at % count, line = at / count;
      const std::int64_t from = offsets[static_cast<std::size_t>(r)] +
                                (c * step.column + j * step.input + 2 * line) * k.width + lane;
      sum += read_sum(k, grad, (j * step.grad + line) * k.width + other) * read_sum(k, input, from);
    }
    write_sum(k, expected, i, sum + 0.0);
  }
  k.correlate({grad.data(), input.data(), offsets.data(), rows, columns, step.column * k.width,
               step.grad * k.width, step.input * k.width, count,
               sums.data() + k.width * k.sum_bytes, sum_columns, vectors, sum_pitch, 16,
               groups.groups(), lines, k.width, 2 * k.width});
  CHECK(equal_bytes(sums, expected));
}

void test_sum(const ConvKernels& k, std::int64_t count, std::int64_t pitch) {
  Random random(static_cast<std::uint64_t>(count));
  const Memory source = whole_numbers(k, count * pitch + k.width, random);
  Memory sums = whole_numbers(k, k.width, random);
  Memory expected(static_cast<std::int64_t>(sums.size()), 0);
  for (std::int64_t lane = 0; lane < k.width; ++lane) {
    double sum = read_sum(k, sums, lane);
    for (std::int64_t j = 0; j < count; ++j) sum += read_sum(k, source, j * pitch + lane);
    write_sum(k, expected, lane, sum + 0.0);
  }
  k.sum({source.data(), pitch, count, sums.data()});
  CHECK(equal_bytes(sums, expected));
}

void test_fold(const ConvKernels& k, std::int64_t count, std::int64_t numbers,
               std::int64_t row_step) {
  Random random(static_cast<std::uint64_t>(count + numbers));
  const Memory folds = whole_numbers(k, count * k.width, random);
  Memory row = whole_numbers(k, (count - 1) * row_step + numbers, random);
  Memory expected(static_cast<std::int64_t>(row.size()), 0);
  std::copy(row.data(), row.data() + row.size(), expected.data());
  for (std::int64_t p = 0; p < count; ++p) {
    for (std::int64_t i = 0; i < numbers; ++i) {
      const std::int64_t at = p * row_step + i;
      write_sum(k, expected, at, read_sum(k, expected, at) + read_sum(k, folds, p * k.width + i));
    }
  }
  k.fold({folds.data(), row.data(), row_step, count, numbers});
  CHECK(equal_bytes(row, expected));
}

void test_interleave(const ConvKernels& k, std::int64_t channels, std::int64_t count) {
  const Situation in("%s, %ld channels of %ld", k.name, static_cast<long>(channels),
                     static_cast<long>(count));
  Random random(static_cast<std::uint64_t>(channels + count));
  const std::int64_t pitch = count + 3;
  const Memory from = whole_numbers(k, channels * pitch, random);
  Memory to = whole_numbers(k, channels * count, random);
  Memory expected(static_cast<std::int64_t>(to.size()), 0);
  for (std::int64_t i = 0; i < channels * count; ++i) {
    write_sum(k, expected, i, read_sum(k, from, i % channels * pitch + i / channels));
  }
  k.interleave({from.data(), pitch, channels, count, to.data()});
  CHECK(equal_bytes(to, expected));
}

void test_folds(const ConvKernels& k) {
  for (std::int64_t numbers = 1; numbers <= k.width; ++numbers) {
    for (const std::int64_t row_step : {1, 2, 3, 6, 16, 20}) {
      for (const std::int64_t count : {1, 2, 7, 20}) {
        const Situation in("%s, %ld folds of %ld numbers, %ld apart", k.name,
                           static_cast<long>(count), static_cast<long>(numbers),
                           static_cast<long>(row_step));
        test_fold(k, count, numbers, row_step);
      }
    }
  }
}

// How the rows of a product lie on the left, and who multiplies them.
struct Multiplier {
  void (*multiply)(const BlockProducts&);
  std::int64_t left_pitch;
  bool has_twins;
  enum { no_bias, bias_vectors, bias_numbers } bias = no_bias;
  bool leaves_out = false;
};

void test_multiply(const ConvKernels& k, const Multiplier& by, std::int64_t rows, int vectors,
                   bool adds) {
  Random random(static_cast<std::uint64_t>(rows * 10 + vectors));
  constexpr std::int64_t kLength = 3, kShortLength = 2, kLeftStep = 2, kLeftSpread = 9;
  const std::int64_t lanes = k.width, right_pitch = 7 * lanes, right_step = 2 * lanes;
  const std::int64_t sum_step = 3 * lanes, sum_pitch = lanes;
  const std::int64_t left_twin = rows * by.left_pitch + 5, sum_twin = rows * sum_step;
  const std::vector<BlockRun> runs = {
      {kLeftSpread, 0, Without::first}, {0, 9 * lanes, Without::last}, {4, lanes}};
  Memory left = whole_numbers(
      k, kLeftSpread + (kLength - 1) * kLeftStep + left_twin + rows * by.left_pitch, random);
  for (const BlockRun& run : runs) {  // zeros where a run may leave rows out
    const std::int64_t row = run.without == Without::first ? 0 : rows - 1;
    if (!by.leaves_out || run.without == Without::nothing) continue;
    for (std::int64_t step = 0; step < kLength; ++step) {
      const std::int64_t at = run.left + step * kLeftStep + row * by.left_pitch;
      write_sum(k, left, at, 0);
      write_sum(k, left, at + left_twin, 0);
    }
  }
  const Memory right =
      whole_numbers(k, 9 * lanes + (kLength - 1) * right_step + right_pitch + lanes, random);
  Memory sums = whole_numbers(k, 2 * rows * sum_step, random);
  Memory expected(static_cast<std::int64_t>(sums.size()), 0);
  std::copy(sums.data(), sums.data() + sums.size(), expected.data());
  const Memory bias = whole_numbers(k, rows + 2 * lanes, random);
  for (std::int64_t j = 0; j < (by.has_twins ? 2 : 1) * rows; ++j) {
    const std::int64_t first =
        j < rows ? j * by.left_pitch : left_twin + (j - rows) * by.left_pitch;
    for (std::int64_t i = 0; i < vectors * lanes; ++i) {
      const std::int64_t at = j * sum_step + i / lanes * sum_pitch + i % lanes;
      double sum = adds ? read_sum(k, sums, at) : 0;
      if (by.bias == Multiplier::bias_vectors) sum += read_sum(k, bias, i);
      if (by.bias == Multiplier::bias_numbers) sum += read_sum(k, bias, j);
      for (const BlockRun& run : runs) {
        const std::int64_t length = &run == &runs.back() ? kShortLength : kLength;
        for (std::int64_t step = 0; step < length; ++step) {
          sum += read_sum(k, left, run.left + step * kLeftStep + first) *
                 read_sum(k, right,
                          run.right + step * right_step + i / lanes * right_pitch + i % lanes);
        }
      }
      write_sum(k, expected, at, sum + 0.0);
    }
  }
  by.multiply({left.data(),   right.data(),
               runs.data(),   2,
               kLength,       1,
               kShortLength,  kLeftStep,
               right_step,    right_pitch,
               sums.data(),   sum_step,
               sum_pitch,     rows,
               vectors,       adds,
               left_twin,     sum_twin,
               by.left_pitch, by.bias == Multiplier::no_bias ? nullptr : bias.data(),
               by.leaves_out});
  CHECK(equal_bytes(sums, expected));
}

void test_multipliers(const ConvKernels& k) {
  for (const int vectors : {1, 2}) {
    for (const bool adds : {false, true}) {
      for (std::int64_t rows = 1; rows <= 33; ++rows) {
        const Situation in("%s, %ld rows of %d vectors", k.name, static_cast<long>(rows), vectors);
        test_multiply(k, {k.multiply_positions, k.width, false}, rows, vectors, adds);
        test_multiply(k, {k.multiply_positions, k.width, false, Multiplier::no_bias, true}, rows,
                      vectors, adds);
        test_multiply(k, {k.multiply_apart, 3, false}, rows, vectors, adds);
        const Multiplier with_bias{k.multiply_apart, 5, false, Multiplier::bias_vectors};
        test_multiply(k, with_bias, rows, vectors, adds);
        if (rows <= k.most_twins) {
          test_multiply(k, {k.multiply_twins, k.width, true}, rows, vectors, adds);
          test_multiply(k, {k.multiply_twins, k.width, true, Multiplier::no_bias, true}, rows,
                        vectors, adds);
        }
      }
      for (std::int64_t rows = 1; rows <= k.width; ++rows) {
        test_multiply(k, {k.multiply_channels, 1, false}, rows, vectors, adds);
        const Multiplier with_bias{k.multiply_channels, 1, false, Multiplier::bias_numbers};
        test_multiply(k, with_bias, rows, vectors, adds);
      }
    }
  }
}

void test_row(const ConvKernels& k) {
  if (k.isa > detected_isa()) {
    std::printf("skipped: %s, which this CPU does not run\n", k.name);
    return;
  }
  CHECK(k.width <= kMostWidth);
  CHECK_EQUAL(k.sum_bytes, bytes_of(sum_dtype(k.dtype)));
  test_copies(k);
  for (const std::int64_t taps : {0, 1, 2, 9, 49}) {
    for (std::int64_t count = 1; count <= 33; ++count) {
      for (const std::int64_t step : {1, 3}) {
        const Situation in("%s, %ld taps, %ld targets, step %ld", k.name, static_cast<long>(taps),
                           static_cast<long>(count), static_cast<long>(step));
        test_gather(k, taps, count, step, step == 3, 1);
      }
      for_groups(k, [&](std::int64_t channels) {
        test_gather(k, taps, count, 1, count % 3 == 0, channels);
      });
    }
  }
  for (const std::int64_t taps : {1, 2, 3, 5, 7}) {
    for (const std::int64_t channels : {1, 7, 8, 16, 17, 45, 64}) {
      for (const std::int64_t count : {1, 2, 4, 5, 7, 8, 13}) {
        test_gather_elements(k, taps, count, channels, 1, count == 2);
        test_gather_elements(k, taps, count, channels, 2, count == 4);
      }
    }
    for_groups(k, [&](std::int64_t own) {
      const Situation in("%s, %ld taps, groups of %ld", k.name, static_cast<long>(taps),
                         static_cast<long>(own));
      for (const std::int64_t count : {1, 5, 8, 13}) {
        test_gather_elements(k, taps, count, 2 * k.width, 1, count == 5, own);
        test_gather_elements(k, taps, count, k.width + own, 2, count == 8, own);
      }
    });
  }
  for (std::int64_t rows = 1; rows <= 17; ++rows) {
    for (std::int64_t columns = 1; columns <= 17; ++columns) {
      const Situation in("%s, %ld rows, %ld columns", k.name, static_cast<long>(rows),
                         static_cast<long>(columns));
      test_correlate(k, rows, columns, 11, 1, {1, 1, 1});
      test_correlate(k, rows, columns, 11, 1, {2, 1, 3});
    }
  }
  for (std::int64_t count = 1; count <= 40; ++count) {
    const Situation in("%s, correlation of %ld", k.name, static_cast<long>(count));
    test_correlate(k, 3, 3, count, 2, {2, 3, 4});
    test_correlate(k, 2, 9, count, 3, {4, 3, 3});
    for_groups(k, [&](std::int64_t channels) {
      test_correlate(k, 3, 3, count, 2, {2, 3, 4}, channels);
      test_correlate(k, 5, 5, count, 1, {1, 1, 2}, channels, 3);
    });
  }
  for (std::int64_t count = 0; count <= 9; ++count) {
    const Situation in("%s, sum of %ld", k.name, static_cast<long>(count));
    test_sum(k, count, k.width);
    test_sum(k, count, k.width + 3);
  }
  test_multipliers(k);
  test_folds(k);
  for (std::int64_t channels = 1; channels <= 6; ++channels) {
    for (const std::int64_t count : {1, 7, 8, 15, 16, 17, 35, 64}) {
      test_interleave(k, channels, count);
    }
  }
}

void test_selection() {
  for (const ConvKernels* k : kTable) {
    if (k->isa <= detected_isa()) CHECK_EQUAL(&conv_kernels(k->isa, k->dtype, k->size), k);
  }
}

}  // namespace
}  // namespace backops

int main() {
  for (const backops::ConvKernels* kernels : backops::kTable) backops::test_row(*kernels);
  backops::test_selection();
  return backops::test::finish();
}

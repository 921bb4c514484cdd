// The matrix kernels against plain loops.
#include "kernels/matrix/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/check.h"

namespace backops {
namespace {

using Numbers = std::vector<float>;
using Packed = std::vector<BFloat16Bits>;
constexpr BFloat16Bits kUntouched = 0x4321;

std::uint32_t bits_of(float number) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}
BFloat16Bits packed(float number) { return static_cast<BFloat16Bits>(bits_of(number) >> 16); }
float number_of(BFloat16Bits bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float number;
  std::memcpy(&number, &wide, sizeof number);
  return number;
}

// Whole numbers that one piece has or, if there are two, that both together have, and whose sums
// float32 has.
Numbers some_numbers(std::int64_t count, int pieces) {
  std::mt19937 random(static_cast<unsigned>(count));
  const int most = pieces == 2 ? 999 : 20;
  std::uniform_int_distribution<int> whole(-most, most);
  Numbers numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(whole(random));
  return numbers;
}

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// What numbers become, and what they should: all first pieces, a gap, then all second ones.
struct Target {
  Target(std::int64_t count, int piece_count)
      : pieces(piece_count), pitch(count + 3), to(at(pieces * pitch), kUntouched), expected(to) {}

  PackTarget target() { return {to.data(), pitch, pieces, &found}; }
  void expect(std::int64_t index, float number) {
    all.push_back(number);
    const float first = number_of(packed(number));
    expected[at(index)] = packed(first);
    if (pieces == 2) expected[at(pitch + index)] = packed(number - first);
  }
  void check() const {
    for (std::size_t i = 0; i < to.size(); ++i) CHECK_EQUAL(to[i], expected[i]);
    Magnitudes own;
    for (const float number : all) {
      const std::uint32_t bits = bits_of(std::fabs(number));
      own.least = std::min(own.least, bits - 1);
      own.most = std::max(own.most, bits);
    }
    CHECK_EQUAL(found.joined().least, own.least);
    CHECK_EQUAL(found.joined().most, own.most);
  }

  int pieces;
  std::int64_t pitch;
  Packed to, expected;
  Numbers all;
  LaneMagnitudes found;
};

void test_pack_channels(const MatrixKernels& k, std::int64_t count, int pieces, bool has_second) {
  const Numbers first = some_numbers(count * 16, pieces);
  const Numbers second = has_second ? some_numbers(count * 16 + 1, pieces) : Numbers(first.size());
  Target target(count * 32, pieces);
  for (std::int64_t p = 0; p < count; ++p) {
    for (std::int64_t c = 0; c < 16; ++c) {
      target.expect(p * 32 + c, first[at(p * 16 + c)]);
      target.expect(p * 32 + 16 + c, second[at(p * 16 + c)]);
    }
  }
  k.pack_channels({first.data(), has_second ? second.data() : nullptr, count, target.target()});
  target.check();
}

void test_pack_pairs(const MatrixKernels& k, std::int64_t count, int pieces, std::int64_t step) {
  const Numbers from = some_numbers(2 * count * step, pieces);
  Target target(count * 32, pieces);
  for (std::int64_t j = 0; j < 2 * count; ++j) {
    for (std::int64_t c = 0; c < 16; ++c) {
      target.expect(j / 2 * 32 + 2 * c + j % 2, from[at(j * step + c)]);
    }
  }
  k.pack_pairs({from.data(), step, count, target.target()});
  target.check();
}

void test_pack_rows(const MatrixKernels& k, std::int64_t count, int pieces) {
  const Numbers from = some_numbers(count * kTileSize, pieces);
  Target target(count * kTileSize, pieces);
  for (std::int64_t i = 0; i < count * 32; ++i) {
    for (std::int64_t c = 0; c < 16; ++c) {
      target.expect(i / 32 * kTileSize + c * 32 + i % 32, from[at(i * 16 + c)]);
    }
  }
  k.pack_rows({from.data(), count, target.target()});
  target.check();
}

// What is found of zeros, and of numbers at the ends.
void test_magnitudes(const MatrixKernels& k) {
  using Limits = std::numeric_limits<float>;
  const auto found_with = [&](float number) {
    Numbers from(32, 0.0f);
    from[17] = number;
    Packed to(32);
    LaneMagnitudes found;
    k.pack_pairs({from.data(), 16, 1, {to.data(), 0, 1, &found}});
    return found.joined();
  };
  CHECK_EQUAL(found_with(0.0f).least, UINT32_MAX);
  CHECK_EQUAL(found_with(-0.0f).least, UINT32_MAX);
  CHECK_EQUAL(found_with(-0.0f).most, 0u);
  CHECK_EQUAL(found_with(-Limits::min()).least, bits_of(Limits::min()) - 1);
  CHECK_EQUAL(found_with(-Limits::infinity()).most, bits_of(Limits::infinity()));
  CHECK(found_with(Limits::quiet_NaN()).most > bits_of(Limits::infinity()));
}

void test_multiply(const MatrixKernels& k, std::int64_t run_count, std::int64_t steps, int pieces,
                   int row_tiles, int column_tiles, bool adds) {
  const std::int64_t short_runs = (run_count + 1) / 2, spare = 2 * (2 * steps + run_count);
  const std::int64_t rows = 16 * row_tiles - run_count;
  const std::int64_t tile = steps * kTileSize + 96, piece = 2 * tile * (run_count + 1);
  Packed left, right;
  for (const float number : some_numbers(pieces * piece, 1)) left.push_back(packed(number));
  for (const float number : some_numbers(pieces * piece + 1, 1)) right.push_back(packed(number));
  std::vector<MatrixRun> runs;
  for (std::int64_t r = 0; r < run_count; ++r) {
    runs.push_back({2 * tile * r, 64 * (run_count - 1 - r)});
    if (r < run_count - short_runs) continue;
    for (std::int64_t i = 0; i < pieces * 2 * tile; ++i) {
      const std::int64_t in_tile = i % tile;
      if (in_tile / kTileSize == steps - 1 && in_tile % 32 >= 32 - spare)
        left[at(i / (2 * tile) * piece + runs.back().left + i % (2 * tile))] = 0;
    }
  }
  const std::int64_t sum_step = 37, sum_tile = 20;
  Numbers sums = some_numbers(32 * sum_step + 36, 1), expected = sums;
  const auto whole = [&](const Packed& side, std::int64_t index) {
    return number_of(side[at(index)]) + (pieces == 2 ? number_of(side[at(index + piece)]) : 0);
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < column_tiles * 16; ++column) {
      float& sum = expected[at(row * sum_step + column / 16 * sum_tile + column % 16)];
      if (!adds) sum = 0;
      for (const MatrixRun& run : runs) {
        for (std::int64_t i = 0; i < steps * 32; ++i) {
          const std::int64_t a = run.left + row / 16 * tile + i / 32 * 512 + row % 16 * 32 + i % 32;
          const std::int64_t b = run.right + column / 16 * tile + i / 32 * 512 + i % 32 / 2 * 32 +
                                 column % 16 * 2 + i % 2;
          sum += whole(left, a) * whole(right, b);
        }
      }
    }
  }
  MatrixProducts p{};
  p.left = left.data();
  p.right = right.data();
  p.runs = runs.data();
  p.run_count = run_count;
  p.short_runs = short_runs;
  p.spare = spare;
  p.rows = rows;
  p.steps = steps;
  p.left_tile = p.right_tile = tile;
  p.left_pitch = p.right_pitch = piece;
  p.sums = sums.data();
  p.sum_step = sum_step;
  p.sum_tile = sum_tile;
  p.row_tiles = row_tiles;
  p.column_tiles = column_tiles;
  p.pieces = pieces;
  p.adds = adds;
  k.begin();
  k.multiply(p);
  k.end();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / sum_step;
    if (row < rows || row >= 16 * row_tiles) CHECK_EQUAL(sums[i], expected[i]);
  }
}

void test_kernels(const MatrixKernels& k) {
  for (const int pieces : {1, 2}) {
    for (const std::int64_t count : {0, 1, 2, 5}) {
      test_pack_channels(k, count, pieces, true);
      test_pack_channels(k, count, pieces, false);
      test_pack_pairs(k, count, pieces, 16);
      test_pack_pairs(k, count, pieces, 48);
      test_pack_rows(k, count, pieces);
    }
    for (const std::int64_t run_count : {0, 1, 3}) {
      for (const std::int64_t steps : {1, 2, 4}) {
        for (int i = 0; i < 8; ++i) {
          test_multiply(k, run_count, steps, pieces, 1 + i / 4, 1 + i / 2 % 2, i % 2 == 0);
        }
      }
    }
  }
  test_magnitudes(k);
}

}  // namespace
}  // namespace backops

int main() {
  using namespace backops;
  Cpu without = detected_cpu();
  without.set(Capability::amx, false);
  without.set(Capability::avx512_bf16, false);
  CHECK(matrix_instructions(without).empty());
  const auto instructions = matrix_instructions(detected_cpu());
  for (const MatrixKernels* const kernels : instructions) test_kernels(*kernels);
  if (instructions.size() < 2) {
    std::printf("skipped: AMX or AVX512_BF16, which this CPU or system does not have\n");
  }
  if (const MatrixKernels* const kernels = matrix_kernels(without)) test_kernels(*kernels);
  return test::finish();
}

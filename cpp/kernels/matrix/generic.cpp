// The matrix kernels in plain loops, with what AMX does to subnormal numbers. For builds with
// sanitizers, which do not see what instructions on tiles touch, and so that the engine around them
// is tested on CPUs with AVX-512 alone, whose vectors it shares; too slow for anything else.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/matrix/matrix.h"

namespace backops {
namespace {

std::uint32_t bits_of(float number) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

float number_of(std::uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

float without_subnormals(float number) {
  const bool is_subnormal = std::fabs(number) < std::numeric_limits<float>::min();
  return is_subnormal ? std::copysign(0.0f, number) : number;
}

float widened(BFloat16Bits number) {
  return without_subnormals(number_of(std::uint32_t{number} << 16));
}

void pack_number(const PackTarget& target, std::int64_t index, float number) {
  constexpr std::uint32_t kSign = 0x80000000, kUpperHalf = 0xffff0000;
  const std::uint32_t magnitude = bits_of(number) & ~kSign;
  std::uint32_t &least = target.found->least[0], &most = target.found->most[0];
  if (magnitude - 1 < least) least = magnitude - 1;
  if (magnitude > most) most = magnitude;
  BFloat16Bits* to = target.to + index;
  if (target.pieces == 2) {
    *to = static_cast<BFloat16Bits>(bits_of(number) >> 16);
    number -= number_of(bits_of(number) & kUpperHalf);
    to += target.piece_pitch;
  }
  *to = static_cast<BFloat16Bits>(bits_of(number) >> 16);
}

void pack_channels(const PackChannels& a) {
  for (std::int64_t p = 0; p < a.count; ++p) {
    for (int c = 0; c < 16; ++c) {
      pack_number(a.target, p * 32 + c, a.first[p * 16 + c]);
      pack_number(a.target, p * 32 + 16 + c, a.second != nullptr ? a.second[p * 16 + c] : 0);
    }
  }
}

void pack_pairs(const PackPairs& a) {
  for (std::int64_t j = 0; j < 2 * a.count; ++j) {
    for (int c = 0; c < 16; ++c) {
      pack_number(a.target, j / 2 * 32 + 2 * c + j % 2, a.from[j * a.step + c]);
    }
  }
}

void pack_rows(const PackRows& a) {
  for (std::int64_t i = 0; i < 32 * a.count; ++i) {
    for (int c = 0; c < 16; ++c) {
      pack_number(a.target, i / 32 * kTileSize + c * 32 + i % 32, a.from[i * 16 + c]);
    }
  }
}

void begin() {}
void end() {}

// All that one instruction adds to a sum, for each two of the pieces.
float sum_of_step(const MatrixProducts& a, float sum, const BFloat16Bits* left,
                  const BFloat16Bits* right) {
  for (int piece = 0; piece < a.pieces * a.pieces; ++piece) {
    const BFloat16Bits* const own_left = left + piece / a.pieces * a.left_pitch;
    const BFloat16Bits* const own_right = right + piece % a.pieces * a.right_pitch;
    for (int k = 0; k < kTileDepth; ++k) {
      const float number = widened(own_right[k / 2 * 32 + k % 2]);
      sum = without_subnormals(sum + widened(own_left[k]) * number);
    }
  }
  return sum;
}

void multiply(const MatrixProducts& a) {
  for (std::int64_t i = 0; i < a.row_tiles * 16 * a.column_tiles * 16; ++i) {
    const std::int64_t row = i / (a.column_tiles * 16), column = i % (a.column_tiles * 16);
    float& sum = a.sums[row * a.sum_step + column / 16 * a.sum_tile + column % 16];
    float own = a.adds ? sum : 0.0f;
    for (std::int64_t run = 0; run < a.run_count; ++run) {
      const BFloat16Bits* left =
          a.left + a.runs[run].left + row / 16 * a.left_tile + row % 16 * kTileDepth;
      const BFloat16Bits* right =
          a.right + a.runs[run].right + column / 16 * a.right_tile + column % 16 * 2;
      for (std::int64_t k = 0; k < a.steps; ++k, left += kTileSize, right += kTileSize) {
        own = sum_of_step(a, own, left, right);
      }
    }
    sum = own;
  }
}

}  // namespace

extern const MatrixKernels matrix_generic;
const MatrixKernels matrix_generic = {Isa::generic, pack_channels, pack_pairs, pack_rows,
                                      begin,        end,           multiply};

}  // namespace backops

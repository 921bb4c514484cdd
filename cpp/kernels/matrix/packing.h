// Packing for the kernels of matrix products, in AVX-512.
#pragma once

#include <immintrin.h>

#include "kernels/conv/lanes.h"
#include "kernels/matrix/matrix.h"
#include "kernels/vectors/avx512_transpose.h"
#include "kernels/vectors/avx512_vector.h"

namespace backops {
namespace {

// Adds to what was found when it goes.
class Watch {
 public:
  explicit Watch(LaneMagnitudes& found)
      : found_(found),
        least_(_mm512_load_si512(found.least)),
        most_(_mm512_load_si512(found.most)) {}
  ~Watch() {
    _mm512_store_si512(found_.least, least_);
    _mm512_store_si512(found_.most, most_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  __m512 load(const float* from) {
    const __m512 numbers = _mm512_loadu_ps(from);
    const __m512i magnitude =
        _mm512_and_si512(_mm512_castps_si512(numbers), _mm512_set1_epi32(0x7fffffff));
    // Zero less one is more than all others.
    least_ = _mm512_min_epu32(least_, _mm512_sub_epi32(magnitude, _mm512_set1_epi32(1)));
    most_ = _mm512_max_epu32(most_, magnitude);
    return numbers;
  }

 private:
  LaneMagnitudes& found_;
  __m512i least_, most_;
};

// The upper halves of the lanes of both, in order.
__m512i one_after_the_other(__m512i first, __m512i second) {
  alignas(64) static const std::uint16_t order[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                      23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                      45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(first, _mm512_load_si512(order), second);
}

// Those of each lane side by side.
__m512i in_pairs(__m512i even, __m512i odd) {
  return _mm512_or_si512(_mm512_srli_epi32(even, 16), odd);
}

// Calls body(where a piece goes, pieces of first, pieces of second), which are in the upper halves
// of lanes. Numbers have no more digits than their pieces, so that the lower halves are zero.
template <class Body>
void for_pieces(const PackTarget& target, __m512 first, __m512 second, const Body& body) {
  BFloat16Bits* to = target.to;
  if (target.pieces == 2) {
    const auto upper = [](__m512 numbers) {
      const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000));
      return _mm512_and_si512(_mm512_castps_si512(numbers), mask);
    };
    const __m512i a = upper(first), b = upper(second);
    body(to, a, b);
    first = _mm512_sub_ps(first, _mm512_castsi512_ps(a));
    second = _mm512_sub_ps(second, _mm512_castsi512_ps(b));
    to += target.piece_pitch;
  }
  body(to, _mm512_castps_si512(first), _mm512_castps_si512(second));
}

void pack_channels(const PackChannels& args) {
  const PackChannels a = args;
  Watch watch(*a.target.found);
  for (std::int64_t p = 0; p < a.count; ++p) {
    const __m512 first = watch.load(a.first + p * 16);
    const __m512 second = a.second != nullptr ? watch.load(a.second + p * 16) : _mm512_setzero_ps();
    for_pieces(a.target, first, second, [&](BFloat16Bits* to, __m512i low, __m512i high) {
      _mm512_storeu_si512(to + p * 32, one_after_the_other(low, high));
    });
  }
}

void pack_pairs(const PackPairs& args) {
  const PackPairs a = args;
  Watch watch(*a.target.found);
  for (std::int64_t j = 0; j < a.count; ++j) {
    const float* const from = a.from + 2 * j * a.step;
    for_pieces(a.target, watch.load(from), watch.load(from + a.step),
               [&](BFloat16Bits* to, __m512i even, __m512i odd) {
                 _mm512_storeu_si512(to + j * 32, in_pairs(even, odd));
               });
  }
}

void pack_rows(const PackRows& args) {
  const PackRows a = args;
  Watch watch(*a.target.found);
  for (std::int64_t j = 0; j < a.count; ++j) {
    Avx512Vector squares[2][16];
    for (int i = 0; i < 16; ++i) {
      const float* const from = a.from + (16 * j + i) * 32;
      Avx512Vector(*square)[16] = squares;
      for_pieces(a.target, watch.load(from), watch.load(from + 16),
                 [&](BFloat16Bits*, __m512i even, __m512i odd) {
                   (*square++)[i].value = _mm512_castsi512_ps(in_pairs(even, odd));
                 });
    }
    for (int piece = 0; piece < a.target.pieces; ++piece) {
      transpose(squares[piece]);
      BFloat16Bits* const to = a.target.to + piece * a.target.piece_pitch + j * kTileSize;
      for (int c = 0; c < 16; ++c) _mm512_storeu_ps(to + c * kTileDepth, squares[piece][c].value);
    }
  }
}

}  // namespace
}  // namespace backops

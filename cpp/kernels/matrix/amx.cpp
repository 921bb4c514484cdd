// AMX tiles of bfloat16, and AVX-512 for the rest.
#include <immintrin.h>

#include "kernels/conv/lanes.h"
#include "kernels/matrix/matrix.h"
#include "kernels/vectors/avx512_vector.h"

namespace backops {
namespace {

// Adds to what was found when it goes.
class Watch {
 public:
  explicit Watch(Magnitudes& found)
      : found_(found), least_(_mm512_set1_epi32(-1)), most_(_mm512_setzero_si512()) {}
  ~Watch() {
    const std::uint32_t least = _mm512_reduce_min_epu32(least_);
    const std::uint32_t most = _mm512_reduce_max_epu32(most_);
    if (least < found_.least) found_.least = least;
    if (most > found_.most) found_.most = most;
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
  Magnitudes& found_;
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

// Eight tiles of 16 rows of 64 bytes. Not on the stack: compilers take the instruction to read its
// first bytes only.
struct alignas(64) Configuration {
  std::uint8_t palette, start_row, reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
const Configuration kConfiguration = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

void begin() { _tile_loadconfig(&kConfiguration); }

void end() { _tile_release(); }

// Tiles 0 to 3 are sums, 4 and 5 rows of the left side, 6 and 7 columns of the right one.
template <int kRows, int kColumns>
struct Tiles {
  const MatrixProducts& a;

  void load_left(const BFloat16Bits* left) const {
    _tile_loadd(4, left, 64);
    if constexpr (kRows == 2) _tile_loadd(5, left + a.left_tile, 64);
  }
  void load_right(const BFloat16Bits* right) const {
    _tile_loadd(6, right, 64);
    if constexpr (kColumns == 2) _tile_loadd(7, right + a.right_tile, 64);
  }
  static void multiply() {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7);
  }

  void begin_sums() const {
    const auto step = static_cast<std::size_t>(4 * a.sum_step);
    const float* const next = a.sums + kTileRows * a.sum_step;
    if (!a.adds) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      return;
    }
    _tile_loadd(0, a.sums, step);
    if constexpr (kColumns == 2) _tile_loadd(1, a.sums + a.sum_tile, step);
    if constexpr (kRows == 2) _tile_loadd(2, next, step);
    if constexpr (kRows == 2 && kColumns == 2) _tile_loadd(3, next + a.sum_tile, step);
  }
  void store_sums() const {
    const auto step = static_cast<std::size_t>(4 * a.sum_step);
    float* const next = a.sums + kTileRows * a.sum_step;
    _tile_stored(0, a.sums, step);
    if constexpr (kColumns == 2) _tile_stored(1, a.sums + a.sum_tile, step);
    if constexpr (kRows == 2) _tile_stored(2, next, step);
    if constexpr (kRows == 2 && kColumns == 2) _tile_stored(3, next + a.sum_tile, step);
  }
};

template <int kPieces, int kRows, int kColumns>
void multiply_tiles(const MatrixProducts& args) {
  const MatrixProducts a = args;
  const Tiles<kRows, kColumns> tiles{a};
  tiles.begin_sums();
  for (const MatrixRun *run = a.runs, *last = run + a.run_count; run != last; ++run) {
    const BFloat16Bits* left = a.left + run->left;
    const BFloat16Bits* right = a.right + run->right;
    for (std::int64_t k = 0; k < a.steps; ++k, left += kTileSize, right += kTileSize) {
      tiles.load_left(left);
      tiles.load_right(right);
      tiles.multiply();
      if constexpr (kPieces == 2) {
        // One side is exchanged at a time.
        tiles.load_right(right + a.right_pitch);
        tiles.multiply();
        tiles.load_left(left + a.left_pitch);
        tiles.multiply();
        tiles.load_right(right);
        tiles.multiply();
      }
    }
  }
  tiles.store_sums();
}

template <int kPieces>
void multiply_pieces(const MatrixProducts& a) {
  if (a.row_tiles == 2) {
    a.column_tiles == 2 ? multiply_tiles<kPieces, 2, 2>(a) : multiply_tiles<kPieces, 2, 1>(a);
  } else {
    a.column_tiles == 2 ? multiply_tiles<kPieces, 1, 2>(a) : multiply_tiles<kPieces, 1, 1>(a);
  }
}

void multiply(const MatrixProducts& a) {
  a.pieces == 2 ? multiply_pieces<2>(a) : multiply_pieces<1>(a);
}

}  // namespace

extern const MatrixKernels matrix_amx;
const MatrixKernels matrix_amx = {Isa::amx, pack_channels, pack_pairs, pack_rows,
                                  begin,    end,           multiply};

}  // namespace backops

// AMX tiles of bfloat16, and AVX-512 for the rest.
#include <immintrin.h>

#include "kernels/matrix/packing.h"

namespace backops {
namespace {

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

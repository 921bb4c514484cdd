// Where the matrix engine keeps the tensors of a tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/matrix/matrix.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/matrix/tiles.h"
#include "ops/conv/shape.h"

namespace backops {

class MatrixLayout {
 public:
  static constexpr std::int64_t kLanes = kTileRows;
  static constexpr int kPair = BlockSizes::kPair;

  MatrixLayout(const ConvShape& shape, const BlockSizes& sizes, const MatrixTiles& tiles,
               int piece_count)
      : n_(sizes), tiles_(tiles), pieces(piece_count), output_planes(shape) {
    if (!tiles.fit()) return;
    list_planes();
    for_taps([&](std::int64_t, const auto& d, const auto& h, const auto& w) {
      taps.push_back({plane_of(d, h, w), tiles.shift(d, h, w)});
    });
    measure(shape);
  }

  // Bytes of a place, nearly.
  static double place_bytes(const ConvShape& s, const BlockSizes& n, int pieces) {
    double planes = 1;
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      planes *= static_cast<double>(std::min(s.stride[axis], s.kernel[axis]));
    }
    const auto output =
        static_cast<double>(OutputPlanes(s).count() * n.outputs.all_pairs() * kPair * kLanes);
    const double both = (s.makes_input ? output : 0) + (s.makes_weight ? output : 0);
    const double orders = n.taps > 1 ? 2 : 1;
    const double input =
        s.makes_weight ? orders * planes * static_cast<double>(n.groups * n.inputs.padded()) : 0;
    return (both + input) * pieces * sizeof(BFloat16Bits);
  }

  // A plane of the input, by remainders; and the plane and shift of a tap.
  struct Plane {
    std::int64_t remainder[kMaxConvRank];
  };
  struct Tap {
    std::int64_t plane, shift;  // the shift in places
  };

  template <class Body>
  void for_taps(const Body& body) const {
    std::int64_t tap = 0;
    for (const MatrixAxis::Tap& d : tiles_.axis(0).taps) {
      for (const MatrixAxis::Tap& h : tiles_.axis(1).taps) {
        for (const MatrixAxis::Tap& w : tiles_.axis(2).taps) body(tap++, d, h, w);
      }
    }
  }

  // `output` for the input product: (planes, pairs of blocks, pieces, places, 32 outputs).
  std::int64_t output_plane() const { return n_.outputs.all_pairs() * output_pair(); }
  std::int64_t output_pair() const { return pieces * output_piece(); }
  std::int64_t output_piece() const { return output_places_ * kTileDepth; }
  std::int64_t output_places() const { return output_places_; }
  // `output` for the weight product: (blocks, pieces, steps, 16 outputs, 32 places).
  std::int64_t rows_block() const { return pieces * rows_piece(); }
  std::int64_t rows_piece() const { return steps * kTileSize + kTileDepth; }
  // The input: (blocks, orders, planes, pieces, pairs of places, 16 inputs, 2 places). Pairs begin
  // with even places in one order, with odd ones in the other.
  std::int64_t input_block() const { return orders_ * input_order(); }
  std::int64_t input_plane() const { return pieces * input_piece(); }
  std::int64_t input_piece() const { return place_pairs_ * kTileDepth; }
  std::int64_t place_pairs() const { return place_pairs_; }
  // Where the pairs from this place on are.
  std::int64_t input_at(std::int64_t plane, std::int64_t place) const {
    return order_at(place % 2) + plane * input_plane() + place / 2 * kTileDepth;
  }
  bool has_order(std::int64_t parity) const { return has_order_[parity]; }
  std::int64_t order_at(std::int64_t parity) const {
    return parity == 1 && has_order_[0] ? input_order() : 0;
  }
  // Packed weights of a pair of input blocks: (pairs of output blocks, taps, pieces, blocks).
  std::int64_t weight_tap() const { return pieces * weight_piece(); }
  std::int64_t weight_piece() const { return kTileSize * kPair; }
  std::int64_t weight_pair() const { return n_.outputs.pairs() * n_.taps * weight_tap(); }

  // Places of numbers that are about to be packed.
  std::int64_t staged_places() const { return staged_places_; }

 private:
  std::int64_t input_order() const {
    return static_cast<std::int64_t>(planes.size()) * input_plane();
  }

  // Planes of the same rows follow each other.
  void list_planes() {
    std::vector<std::int64_t> remainders[kMaxConvRank];
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      for (const MatrixAxis::Tap& tap : tiles_.axis(axis).taps) {
        std::vector<std::int64_t>& own = remainders[axis];
        if (std::find(own.begin(), own.end(), tap.remainder) == own.end()) {
          own.push_back(tap.remainder);
        }
      }
    }
    for (const std::int64_t d : remainders[0]) {
      for (const std::int64_t h : remainders[1]) {
        for (const std::int64_t w : remainders[2]) planes.push_back({{d, h, w}});
      }
    }
  }

  std::int64_t plane_of(const MatrixAxis::Tap& d, const MatrixAxis::Tap& h,
                        const MatrixAxis::Tap& w) const {
    const auto is = [&](const Plane& plane) {
      return plane.remainder[0] == d.remainder && plane.remainder[1] == h.remainder &&
             plane.remainder[2] == w.remainder;
    };
    return std::find_if(planes.begin(), planes.end(), is) - planes.begin();
  }

  void measure(const ConvShape& s) {
    std::int64_t most = 0, first = 0;
    // All images are cut alike.
    for (std::int64_t index = 0; index < tiles_.of_image(); ++index) {
      const Range own = tiles_.tile(index).span(&MatrixAxis::Section::outputs);
      most = std::max(most, own.size());
      first = std::max(first, own.begin);
      for (const Tap& tap : taps) has_order_[(own.begin + tap.shift) % 2] = true;
    }
    orders_ = (has_order_[0] ? 1 : 0) + (has_order_[1] ? 1 : 0);
    steps = ceil_divide(most, kTileDepth);
    spare = (steps * kTileDepth - most) / 2 * 2;
    output_places_ = (tiles_.places() + kTileDepth) | 1;
    const std::int64_t last = first + steps * kTileDepth;
    place_pairs_ = ((last + taps.back().shift) / 2 + 1) | 1;
    const std::int64_t inputs = s.stride[2] * std::max(2 * place_pairs_ + 1, tiles_.places());
    staged_places_ = std::max({output_places_, last, s.makes_weight ? inputs : 0}) | 1;
  }

  const BlockSizes n_;
  const MatrixTiles& tiles_;
  std::int64_t output_places_ = 0, place_pairs_ = 0, staged_places_ = 0, orders_ = 0;
  bool has_order_[2] = {false, false};

 public:
  const int pieces;
  std::int64_t steps = 0;  // of 32 places, that the outputs of a tile take
  std::int64_t spare = 0;  // places of the last one that they do not take, an even number
  const OutputPlanes output_planes;
  std::vector<Plane> planes;  // of the input
  std::vector<Tap> taps;
};

}  // namespace backops

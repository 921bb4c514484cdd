// Tensors brought into the order that matrix products want, as bfloat16 numbers, with what their
// largest and smallest magnitudes are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/matrix/matrix.h"
#include "ops/conv/blocks/order.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/matrix/layout.h"
#include "ops/conv/matrix/memory.h"

namespace backops {

class MatrixPacking {
 public:
  MatrixPacking(const ConvShape& shape, const BlockSizes& sizes, const MatrixTiles& tiles,
                const MatrixLayout& layout, const MatrixMemory& memory,
                const MatrixKernels& kernels, const TileCopy<float>& copy)
      : s_(shape),
        n_(sizes),
        tiles_(tiles),
        m_(layout),
        at_(memory),
        matrix_(kernels),
        copy_(copy),
        order_(shape, sizes, copy, nullptr) {}

  Magnitudes pack_weights(const ConvBuffers& b, std::int64_t input_pair,
                          std::int64_t output_pair) const {
    LaneMagnitudes found;
    const std::int64_t width = n_.inputs.blocks_of_pair(input_pair) * kLanes;
    const std::int64_t block_sums = n_.taps * kLanes * width;
    const std::int64_t first = output_pair * kPair;
    float* const ordered = at_.staged(b);
    for (std::int64_t i = 0; i < kPair; ++i) {
      if (first + i < n_.outputs.blocks()) {
        order_.pack(b.weight, input_pair, first + i, ordered - first * block_sums);
      } else {
        std::fill_n(ordered + i * block_sums, block_sums, 0.0f);
      }
    }
    BFloat16Bits* to = at_.packed_weights(b, input_pair) + output_pair * n_.taps * m_.weight_tap();
    for (std::int64_t tap = 0; tap < n_.taps; ++tap, to += m_.weight_tap()) {
      for (std::int64_t i = 0; i < kPair; ++i) {
        const float* const from = ordered + i * block_sums + tap * kLanes * width;
        for (std::int64_t tile = 0; tile < width / kLanes; ++tile) {
          BFloat16Bits* const own = to + tile * kTileSize + i * kTileSize / 2;
          matrix_.pack_pairs({from + tile * kLanes,
                              width,
                              kLanes / 2,
                              {own, m_.weight_piece(), m_.pieces, &found}});
        }
      }
    }
    return found.joined();
  }

  // A pair of blocks of outputs, and their share of the bias sums.
  Magnitudes bring_output(const ConvBuffers& b, std::int64_t index, std::int64_t pair,
                          std::int64_t part, bool is_first) const {
    const MatrixTile tile = tiles_.tile(index);
    Box box{};
    box.images = tile.images;
    box.image_step = tile.image_step;
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      box.axes[axis] = tile.axes[axis].reaching;
      box.step[axis] = tile.step[axis];
    }
    LaneMagnitudes found;
    for (std::int64_t plane = 0; plane < m_.output_planes.count(); ++plane) {
      stage(b, m_.output_planes.view(b.output, plane), m_.output_planes.shape(plane), box,
            tile.span(&MatrixAxis::Section::reaching).begin, n_.outputs.channels_of_pair(pair));
      pack_output(b, index, pair, plane, found);
    }
    const Range own = tile.span(&MatrixAxis::Section::outputs);
    for (int i = 0; i < n_.outputs.blocks_of_pair(pair); ++i) {
      const float* const from = at_.staged(b) + i * at_.staged_pitch() + own.begin * kLanes;
      if (s_.makes_bias) {
        float* const to = at_.bias_sums(b, part) + (n_.outputs.first_block(pair) + i) * kLanes;
        if (is_first) std::fill_n(to, kLanes, 0.0f);
        copy_.kernels().sum({from, kLanes, own.size(), to});
      }
      if (s_.makes_weight) {
        matrix_.pack_rows(
            {from,
             m_.steps,
             {at_.rows_of(at_.tile_memory(b, index)) + (pair * kPair + i) * m_.rows_block(),
              m_.rows_piece(), m_.pieces, &found}});
      }
    }
    return found.joined();
  }

  void bring_bias(const ConvBuffers& b) const {
    for_channel_runs(n_.inputs, {0, n_.inputs.all_blocks()},
                     [&](const Range& channels, std::int64_t first) {
                       copy_.bring_bias(b.bias, channels, at_.bias(b) + first * kLanes);
                     });
  }

  // The planes of a pair of blocks of inputs. Those that differ along the last axis only are
  // brought together.
  Magnitudes bring_input(const ConvBuffers& b, std::int64_t index, std::int64_t pair) const {
    LaneMagnitudes found;
    const MatrixTile tile = tiles_.tile(index);
    const std::int64_t stride = s_.stride[2];
    Box box{};
    box.images = tile.images;
    box.image_step = tile.image_step * stride;
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      box.axes[axis] = tile.axes[axis].all;
      box.step[axis] = tile.step[axis] * stride;
    }
    box.axes[2] = {box.axes[2].begin * stride, box.axes[2].end * stride};
    box.step[2] = 1;
    std::size_t plane = 0;
    while (plane < m_.planes.size()) {
      const std::int64_t* const r = m_.planes[plane].remainder;
      Activation rows = b.input;
      for (int axis = 0; axis < 2; ++axis) {
        rows.data += r[axis] * b.input.stride_bytes[axis];
        rows.stride_bytes[axis] *= s_.stride[axis];
      }
      stage(b, rows, {tiles_.axis(0).plane_size(r[0]), tiles_.axis(1).plane_size(r[1]), s_.in[2]},
            box, 0, n_.inputs.channels_of_pair(pair));
      for (; plane < m_.planes.size() && m_.planes[plane].remainder[0] == r[0] &&
             m_.planes[plane].remainder[1] == r[1];
           ++plane) {
        pack_plane(b, index, pair, static_cast<std::int64_t>(plane), found);
      }
    }
    return found.joined();
  }

 private:
  static constexpr int kPair = BlockSizes::kPair;
  static constexpr std::int64_t kLanes = kTileRows;

  // For the input product.
  void pack_output(const ConvBuffers& b, std::int64_t index, std::int64_t pair, std::int64_t plane,
                   LaneMagnitudes& found) const {
    if (!s_.makes_input) return;
    const bool has_second = n_.outputs.blocks_of_pair(pair) == kPair;
    BFloat16Bits* const to = at_.outputs_of(at_.tile_memory(b, index)) + plane * m_.output_plane() +
                             pair * m_.output_pair();
    matrix_.pack_channels({at_.staged(b),
                           has_second ? at_.staged(b) + at_.staged_pitch() : nullptr,
                           m_.output_places(),
                           {to, m_.output_piece(), m_.pieces, &found}});
  }

  void pack_plane(const ConvBuffers& b, std::int64_t index, std::int64_t pair, std::int64_t plane,
                  LaneMagnitudes& found) const {
    const std::int64_t stride = s_.stride[2];
    const std::int64_t remainder = m_.planes[static_cast<std::size_t>(plane)].remainder[2];
    for (int i = 0; i < n_.inputs.blocks_of_pair(pair); ++i) {
      for (std::int64_t parity = 0; parity < 2; ++parity) {
        if (!m_.has_order(parity)) continue;
        const float* const from =
            at_.staged(b) + i * at_.staged_pitch() + (parity * stride + remainder) * kLanes;
        BFloat16Bits* const to = at_.input_of(at_.tile_memory(b, index)) +
                                 (n_.inputs.first_block(pair) + i) * m_.input_block() +
                                 m_.order_at(parity) + plane * m_.input_plane();
        matrix_.pack_pairs(
            {from, stride * kLanes, m_.place_pairs(), {to, m_.input_piece(), m_.pieces, &found}});
      }
    }
  }

  // Channels of a box, as numbers in the order of the tile, with zeros around.
  void stage(const ConvBuffers& b, const Activation& tensor,
             const std::int64_t (&shape)[kMaxConvRank], const Box& box, std::int64_t at,
             const Range& channels) const {
    const bool is_whole = channels.size() % kLanes == 0 && !box.has_gaps();
    const std::int64_t begin = is_whole ? at : m_.staged_places(), end = begin + box.positions();
    for (std::int64_t block = 0; block * kLanes < channels.size(); ++block) {
      float* const places = at_.staged(b) + block * at_.staged_pitch();
      std::fill(places, places + begin * kLanes, 0.0f);
      if (is_whole) std::fill(places + end * kLanes, places + at_.staged_pitch(), 0.0f);
    }
    copy_.bring(tensor, shape, box, channels, at_.staged(b) + at * kLanes, at_.staged_pitch());
  }

  const ConvShape& s_;
  const BlockSizes& n_;
  const MatrixTiles& tiles_;
  const MatrixLayout& m_;
  const MatrixMemory& at_;
  const MatrixKernels& matrix_;
  const TileCopy<float>& copy_;
  const BlockOrder<float> order_;
};

}  // namespace backops

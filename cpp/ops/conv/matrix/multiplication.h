// The products of packed tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/matrix/matrix.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/matrix/layout.h"
#include "ops/conv/matrix/memory.h"
#include "ops/conv/parts.h"

namespace backops {

class MatrixMultiplication {
 public:
  MatrixMultiplication(const ConvShape& shape, const BlockSizes& sizes, const MatrixTiles& tiles,
                       const MatrixLayout& layout, const MatrixMemory& memory,
                       const MatrixKernels& kernels, const TileCopy<float>& copy)
      : s_(shape),
        n_(sizes),
        tiles_(tiles),
        m_(layout),
        at_(memory),
        matrix_(kernels),
        copy_(copy),
        weights_(shape, copy) {
    if (tiles.fit()) list_runs();
  }

  // Sums of pairs of output blocks, each (pairs of input blocks, taps, outputs, inputs).
  void add_weights(const ConvBuffers& b, const Range& tiles, const Range& pairs, float* all_sums,
                   bool adds) const {
    const std::int64_t runs_at_once =
        std::clamp<std::int64_t>(kStepsAtOnce / m_.steps, 1, kStepsAtOnce);
    const std::int64_t steps_at_once = ceil_divide(m_.steps, ceil_divide(m_.steps, kStepsAtOnce));
    Places places;
    for (std::int64_t i = 0; i < n_.inputs.pairs(); ++i) {
      for (places.tile = tiles.begin; places.tile < tiles.end; places.tile += runs_at_once) {
        places.count = std::min(runs_at_once, tiles.end - places.tile);
        for (std::int64_t run = 0; run < places.count; ++run) {
          places.starts[run] =
              tiles_.tile(places.tile + run).span(&MatrixAxis::Section::outputs).begin;
        }
        for (places.step = 0; places.step < m_.steps; places.step += steps_at_once) {
          places.steps = std::min(steps_at_once, m_.steps - places.step);
          const bool is_first = places.tile == tiles.begin && places.step == 0;
          for (std::int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
            add_places(b, places, pair, i, all_sums + n_.sums_of_pair(pair), adds || !is_first);
          }
        }
      }
    }
  }

  // Adds up the parts, and writes them.
  void write_weights(const ConvBuffers& b, std::int64_t pair, float* all_sums,
                     std::int64_t parts) const {
    const std::int64_t group = n_.outputs.group_of_pair(pair);
    const std::int64_t outputs = n_.outputs.blocks_of_pair(pair) * kLanes;
    const Range own = n_.outputs.channels_of_pair(pair);
    float* from = all_sums + n_.sums_of_pair(pair);
    add_parts(from, outputs * n_.inputs.padded() * n_.taps, parts, at_.part_sums());
    const Weights& weight = b.weight_product;
    for (std::int64_t i = 0; i < n_.inputs.pairs(); ++i) {
      const std::int64_t width = n_.inputs.blocks_of_pair(i) * kLanes;
      const Range inputs = n_.inputs.channels_of_pair(group * n_.inputs.pairs() + i);
      const std::int64_t first = inputs.begin - group * n_.inputs.channels;
      for (std::int64_t o = own.begin; o < own.end; ++o) {
        weights_.put(weight,
                     {weight.at(o, first), weight.output_stride_bytes, weight.input_stride_bytes, 1,
                      inputs.size(), from + (o - own.begin) * width, outputs * width});
      }
      from += n_.taps * outputs * width;
    }
  }

  // A pair of input blocks of a tile.
  void write_inputs(const ConvBuffers& b, std::int64_t index, std::int64_t pair) const {
    const MatrixTile tile = tiles_.tile(index);
    if (!tile.has_results()) return;
    const Range own = tile.span(&MatrixAxis::Section::results);
    const std::int64_t group = pair / n_.inputs.pairs();
    const std::int64_t s[] = {tiles_.axis(0).stride, tiles_.axis(1).stride, tiles_.axis(2).stride};
    MatrixProducts p{};
    p.steps = 1;
    p.spare = kTileDepth / 2;
    p.pieces = m_.pieces;
    p.left_tile = kTileSize;
    p.left_pitch = m_.output_piece();
    p.right = at_.packed_weights(b, pair);
    p.right_tile = kTileSize;
    p.right_pitch = m_.weight_piece();
    p.sum_step = s[2] * kLanes;
    p.sum_tile = at_.result_pitch();
    p.column_tiles = n_.inputs.blocks_of_pair(pair);
    const BFloat16Bits* const output =
        at_.outputs_of(at_.tile_memory(b, index)) + group * n_.outputs.pairs() * m_.output_pair();
    for (std::int64_t row = 0; row < s[0] * s[1]; ++row) {
      for (std::int64_t column = 0; column < s[2]; ++column) {
        const auto& runs = input_runs_[static_cast<std::size_t>(row * s[2] + column)];
        p.runs = runs.data();
        p.run_count = static_cast<std::int64_t>(runs.size());
        p.short_runs = n_.outputs.blocks() % kPair == 0 ? 0 : p.run_count / n_.outputs.pairs();
        for_slices(tile, [&](const Range& places) {
          for (std::int64_t place = places.begin; place < places.end; place += p.rows) {
            p.rows = std::min<std::int64_t>(places.end - place, kPair * kTileRows);
            p.row_tiles = p.rows > kTileRows ? 2 : 1;
            p.left = output + place * kTileDepth;
            p.sums = at_.results(b) + ((place - own.begin) * s[2] + column) * kLanes;
            matrix_.multiply(p);
          }
        });
      }
      put_rows(b, tile, pair, row / s[1], row % s[1]);
    }
  }

 private:
  static constexpr int kPair = BlockSizes::kPair;
  static constexpr std::int64_t kLanes = kTileRows;
  // Steps of products between loading and storing sums.
  static constexpr std::int64_t kStepsAtOnce = 8;

  // Calls body(places) for the results of each slice of each image: there are rows of zeros between
  // them.
  template <class Body>
  static void for_slices(const MatrixTile& tile, const Body& body) {
    const Range &d = tile.axes[0].results, &h = tile.axes[1].results, &w = tile.axes[2].results;
    for (std::int64_t image = tile.images.begin; image < tile.images.end; ++image) {
      for (std::int64_t slice = d.begin; slice < d.end; ++slice) {
        body(Range{tile.place(image, slice, h.begin, w.begin),
                   tile.place(image, slice, h.end - 1, w.end - 1) + 1});
      }
    }
  }

  // Of some tiles, those that are multiplied together.
  struct Places {
    std::int64_t tile, count;  // of tiles, in whose memory they are
    std::int64_t step, steps;
    std::int64_t starts[kStepsAtOnce];  // of each tile
  };

  // All taps of a pair of output blocks and one of input blocks.
  void add_places(const ConvBuffers& b, const Places& places, std::int64_t pair,
                  std::int64_t input_pair, float* sums, bool adds) const {
    const std::int64_t inputs = n_.outputs.group_of_pair(pair) * n_.inputs.pairs() + input_pair;
    const std::int64_t tile_numbers =
        static_cast<std::int64_t>(at_.tile_bytes() / sizeof(BFloat16Bits));
    char* const base = at_.tile_memory(b, places.tile);
    MatrixRun runs[kStepsAtOnce];
    MatrixProducts p{};
    p.runs = runs;
    p.run_count = places.count;
    p.steps = places.steps;
    p.short_runs = places.step + places.steps == m_.steps ? p.run_count : 0;
    p.spare = m_.spare;
    p.pieces = m_.pieces;
    p.left = at_.rows_of(base) + pair * kPair * m_.rows_block() + places.step * kTileSize;
    p.left_tile = m_.rows_block();
    p.left_pitch = m_.rows_piece();
    p.right = at_.input_of(base) + n_.inputs.first_block(inputs) * m_.input_block() +
              places.step * kTileSize;
    p.right_tile = m_.input_block();
    p.right_pitch = m_.input_piece();
    p.row_tiles = n_.outputs.blocks_of_pair(pair);
    p.column_tiles = n_.inputs.blocks_of_pair(inputs);
    p.sum_step = p.column_tiles * kLanes;
    p.sum_tile = kLanes;
    p.adds = adds;
    const std::int64_t rows = p.row_tiles * kLanes;
    p.rows = rows;
    sums += rows * n_.taps * input_pair * kPair * kLanes;
    for (const MatrixLayout::Tap& tap : m_.taps) {
      for (std::int64_t run = 0; run < places.count; ++run) {
        const std::int64_t at = run * tile_numbers;
        runs[run] = {at, at + m_.input_at(tap.plane, places.starts[run] + tap.shift)};
      }
      p.sums = sums;
      matrix_.multiply(p);
      sums += rows * p.sum_step;
    }
  }

  // Of the input product, by the remainders of its positions.
  void list_runs() {
    const std::int64_t s[] = {tiles_.axis(0).stride, tiles_.axis(1).stride, tiles_.axis(2).stride};
    input_runs_.resize(static_cast<std::size_t>(s[0] * s[1] * s[2]));
    for (std::int64_t pair = 0; pair < n_.outputs.pairs(); ++pair) {
      m_.for_taps([&](std::int64_t tap, const auto& d, const auto& h, const auto& w) {
        const auto at =
            static_cast<std::size_t>((d.remainder * s[1] + h.remainder) * s[2] + w.remainder);
        const std::int64_t plane =
            m_.output_planes.index(d.output_plane, h.output_plane, w.output_plane);
        input_runs_[at].push_back({plane * m_.output_plane() + pair * m_.output_pair() -
                                       tiles_.shift(d, h, w) * kTileDepth,
                                   (pair * n_.taps + tap) * m_.weight_tap()});
      });
    }
  }

  // Those rows that have these remainders.
  void put_rows(const ConvBuffers& b, const MatrixTile& tile, std::int64_t pair, std::int64_t d,
                std::int64_t h) const {
    const std::int64_t start = tile.span(&MatrixAxis::Section::results).begin;
    const std::int64_t s[] = {tiles_.axis(0).stride, tiles_.axis(1).stride, tiles_.axis(2).stride};
    const float* const bias =
        s_.adds_bias ? at_.bias(b) + n_.inputs.first_block(pair) * kLanes : nullptr;
    const Range columns = tile.axes[2].results;
    const std::int64_t column = columns.begin * s[2];
    const std::int64_t count = std::min(columns.end * s[2], s_.in[2]) - column;
    const Range channels = n_.inputs.channels_of_pair(pair);
    Range rows[kMaxConvRank] = {tile.axes[0].results, tile.axes[1].results, columns};
    rows[0].end = std::min(rows[0].end, tiles_.axis(0).plane_size(d));
    rows[1].end = std::min(rows[1].end, tiles_.axis(1).plane_size(h));
    for_rows(tile.images, rows, [&](std::int64_t image, std::int64_t i, std::int64_t j) {
      const std::int64_t place = tile.place(image, i, j, columns.begin) - start;
      char* const to =
          b.input_product.at(image, channels.begin, i * s[0] + d, j * s[1] + h, column);
      copy_.kernels().from_lanes({to, b.input_product.channel_stride_bytes,
                                  b.input_product.stride_bytes[2],
                                  at_.results(b) + place * s[2] * kLanes, kLanes,
                                  at_.result_pitch(), channels.size(), count, 0, 0, bias});
    });
  }

  const ConvShape& s_;
  const BlockSizes& n_;
  const MatrixTiles& tiles_;
  const MatrixLayout& m_;
  const MatrixMemory& at_;
  const MatrixKernels& matrix_;
  const TileCopy<float>& copy_;
  const WeightCopy<float> weights_;
  std::vector<std::vector<MatrixRun>> input_runs_;
};

}  // namespace backops

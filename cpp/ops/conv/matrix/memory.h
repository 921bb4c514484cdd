// Where the matrix engine keeps things: in a worker's scratch memory, in the engine's, and what
// lies in a tile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/matrix/matrix.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/engine.h"
#include "ops/conv/matrix/layout.h"

namespace backops {

class MatrixMemory {
 public:
  static constexpr int kPair = BlockSizes::kPair;
  static constexpr std::int64_t kLanes = kTileRows;

  // `is_shared`: all tiles are kept in the engine's memory until the sums of `pairs_at_once` pairs
  // of output blocks are complete.
  MatrixMemory(const ConvShape& shape, const BlockSizes& sizes, const MatrixTiles& tiles,
               const MatrixLayout& layout, bool is_shared, std::int64_t pairs_at_once)
      : s_(shape),
        n_(sizes),
        tiles_(tiles),
        m_(layout),
        is_shared_(is_shared),
        pairs_at_once_(pairs_at_once) {
    if (tiles.fit()) place_tensors();
  }

  void set_parts(std::int64_t parts) { parts_ = parts; }
  std::int64_t parts() const { return parts_; }
  std::size_t tile_bytes() const { return tile_bytes_; }
  std::size_t worker_bytes() const { return worker_bytes_; }
  std::size_t engine_bytes() const {
    return magnitudes_at() + static_cast<std::size_t>(magnitude_count()) * sizeof(Magnitudes);
  }

  // The engine's memory: packed weights, sums of parts, the bias in blocks of inputs, tiles that
  // are shared, magnitudes of what was packed.
  bool has_parts() const { return s_.makes_weight && !is_shared_; }
  std::int64_t weight_sums() const { return has_parts() ? n_.weight_sums() : 0; }
  std::int64_t part_sums() const {
    return weight_sums() + (s_.makes_bias ? n_.outputs.all_blocks() * kLanes : 0);
  }
  std::size_t packed_bytes() const {
    if (!s_.makes_input) return 0;
    return static_cast<std::size_t>(n_.inputs.all_pairs() * m_.weight_pair()) *
           sizeof(BFloat16Bits);
  }
  std::int64_t bias_numbers() const { return s_.adds_bias ? n_.inputs.all_blocks() * kLanes : 0; }
  std::size_t tiles_at() const {
    const auto sums = static_cast<std::size_t>(parts_ * part_sums() + bias_numbers());
    return whole_lines(packed_bytes() + sums * sizeof(float));
  }
  std::size_t magnitudes_at() const {
    const auto tiles = is_shared_ ? static_cast<std::size_t>(tiles_.count()) : 0;
    return whole_lines(tiles_at() + tiles * tile_bytes_);
  }

  std::int64_t pack_tasks() const {
    return s_.makes_input ? n_.inputs.all_pairs() * n_.outputs.pairs() : 0;
  }
  std::int64_t output_tasks() const { return tiles_.count() * n_.outputs.all_pairs(); }
  std::int64_t input_tasks() const {
    return s_.makes_weight ? tiles_.count() * n_.inputs.all_pairs() : 0;
  }
  std::int64_t output_magnitudes() const { return is_shared_ ? output_tasks() : parts_; }
  std::int64_t input_magnitudes() const { return is_shared_ ? input_tasks() : parts_; }
  std::int64_t magnitude_count() const {
    return output_magnitudes() + input_magnitudes() + pack_tasks();
  }

  BFloat16Bits* packed_weights(const ConvBuffers& b, std::int64_t pair) const {
    return reinterpret_cast<BFloat16Bits*>(b.memory) + pair * m_.weight_pair();
  }
  float* sums(const ConvBuffers& b, std::int64_t part) const {
    return reinterpret_cast<float*>(b.memory + packed_bytes()) + part * part_sums();
  }
  float* bias(const ConvBuffers& b) const { return sums(b, parts_); }
  float* bias_sums(const ConvBuffers& b, std::int64_t part) const {
    return sums(b, part) + weight_sums();
  }
  Magnitudes* magnitudes(const ConvBuffers& b) const {
    return reinterpret_cast<Magnitudes*>(b.memory + magnitudes_at());
  }
  char* tile_memory(const ConvBuffers& b, std::int64_t index) const {
    if (!is_shared_) return b.scratch;
    return b.memory + tiles_at() + static_cast<std::size_t>(index) * tile_bytes_;
  }
  BFloat16Bits* outputs_of(char* tile) const { return reinterpret_cast<BFloat16Bits*>(tile); }
  BFloat16Bits* rows_of(char* tile) const {
    return reinterpret_cast<BFloat16Bits*>(tile + rows_at_);
  }
  BFloat16Bits* input_of(char* tile) const {
    return reinterpret_cast<BFloat16Bits*>(tile + input_at_);
  }
  float* staged(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.scratch + staged_at_);
  }
  float* results(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.scratch + results_at_);
  }
  float* own_sums(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.scratch + own_sums_at_);
  }

  std::int64_t staged_pitch() const { return m_.staged_places() * kLanes; }
  std::int64_t result_pitch() const {
    return ((m_.output_places() * tiles_.axis(2).stride) | 1) * kLanes;
  }

 private:
  // A tile's memory, then a worker's.
  void place_tensors() {
    const auto after = [](std::size_t at, std::int64_t count, std::size_t bytes) {
      return at + whole_lines(static_cast<std::size_t>(count) * bytes);
    };
    const std::int64_t pairs = n_.outputs.all_pairs();
    const std::int64_t planes = s_.makes_input ? m_.output_planes.count() : 0;
    rows_at_ = after(0, planes * m_.output_plane(), sizeof(BFloat16Bits));
    input_at_ = after(rows_at_, s_.makes_weight ? pairs * kPair * m_.rows_block() : 0,
                      sizeof(BFloat16Bits));
    tile_bytes_ = after(input_at_, s_.makes_weight ? n_.inputs.all_blocks() * m_.input_block() : 0,
                        sizeof(BFloat16Bits));

    staged_at_ = is_shared_ ? 0 : tile_bytes_;
    const std::int64_t weights = s_.makes_input ? kPair * kPair * kLanes * kLanes * n_.taps : 0;
    results_at_ = after(staged_at_, std::max(kPair * staged_pitch(), weights), sizeof(float));
    own_sums_at_ = after(results_at_, s_.makes_input ? kPair * result_pitch() : 0, sizeof(float));
    const bool has_own = s_.makes_weight && is_shared_;
    const std::int64_t own = pairs_at_once_ * kPair * kLanes * n_.inputs.padded() * n_.taps;
    worker_bytes_ = after(own_sums_at_, has_own ? own : 0, sizeof(float));
  }

  const ConvShape& s_;
  const BlockSizes& n_;
  const MatrixTiles& tiles_;
  const MatrixLayout& m_;
  const bool is_shared_;
  const std::int64_t pairs_at_once_;
  std::int64_t parts_ = 1;
  std::size_t rows_at_ = 0, input_at_ = 0, tile_bytes_ = 0;
  std::size_t staged_at_ = 0, results_at_ = 0, own_sums_at_ = 0, worker_bytes_ = 0;
};

}  // namespace backops

// How the matrix engine cuts its work: into tiles that fit a cache, and into tasks.
//
// Weight sums that are few are made tile by tile, in parts. Else all tiles are kept until the sums
// of some outputs are complete.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ints.h"
#include "kernels/matrix/matrix.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/engine.h"
#include "ops/conv/matrix/tiles.h"
#include "ops/conv/parts.h"
#include "ops/conv/tiles.h"

namespace backops {

class MatrixSchedule {
 public:
  // All of some tiles; or the weights of pairs of output blocks; or pairs of input blocks of some
  // tiles.
  enum class Kind : std::uint8_t { tiles, outputs, inputs };
  struct Task {
    Kind kind;
    Range tiles;
    std::int64_t part;
    Range pairs;
  };

  // A place of a tile takes so many bytes.
  MatrixSchedule(const ConvTask& task, const BlockSizes& sizes, double place_bytes)
      : s_(task.shape),
        n_(sizes),
        wanted_(task.cuts.parts()),
        level2_bytes_(static_cast<double>(task.cpu.level2_bytes)),
        place_bytes_(place_bytes),
        is_shared_(weight_bytes() > kMostSumBytes),
        tiles_(choose_tiles()) {}

  const MatrixTiles& tiles() const { return tiles_; }
  bool is_shared() const { return is_shared_; }

  // Whether tiles are neither mostly zeros nor too many to be kept.
  bool fits(std::size_t tile_bytes) const {
    if (!tiles_.fit()) return false;
    const double bytes = static_cast<double>(tiles_.count()) * static_cast<double>(tile_bytes);
    return places_of(tiles_) <= most_places() && (!is_shared_ || bytes <= kMostSharedBytes);
  }

  // Of all sums; of tiles that are shared only those of the bias have parts.
  std::int64_t parts() const {
    if (is_shared_) return tiles_.count();
    std::int64_t parts = tasks_wanted();
    if (s_.makes_weight) {
      parts = std::min(
          parts, std::max(wanted_, static_cast<std::int64_t>(kMostPartBytes / weight_bytes())));
    }
    return std::min(parts, tiles_.count());
  }

  // Pairs of output blocks whose weights are summed at once where tiles are shared.
  std::int64_t output_pairs_at_once() const {
    const std::int64_t pairs = n_.outputs.all_pairs();
    return pairs_at_once(pairs, weight_bytes() / static_cast<double>(pairs));
  }

  // Packed weights of a pair of input blocks take so many bytes.
  std::vector<Task> tasks(double input_pair_bytes) const {
    return is_shared_ ? shared_tasks(input_pair_bytes) : tasks_of_parts();
  }

 private:
  static constexpr double kTileShare = 0.5;      // of a second-level cache
  static constexpr double kMostSumBytes = 1e6;   // of weight sums that are made in parts
  static constexpr double kMostPartBytes = 3e6;  // of weight sums, all parts together
  static constexpr double kMostSharedBytes =
      64e6;                                 // of all tiles, where they are kept for all tasks
  static constexpr double kMostPlaces = 8;  // for each output

  // Larger ones than the cache has room for, if those would be mostly zeros and what neighbours
  // share.
  MatrixTiles choose_tiles() const {
    constexpr double kEnough = 1.6, kWorthIt = 0.9;
    const double share = kTileShare * level2_bytes_, places = share / place_bytes_;
    const double outputs = static_cast<double>(s_.batch * s_.windows());
    MatrixTiles best = cut_tiles(places);
    for (double growth = 2; growth <= most_growth(share, wanted_); growth *= 2) {
      if (best.fit() && places_of(best) <= kEnough * outputs) break;
      MatrixTiles larger = cut_tiles(growth * places);
      if (!best.fit() || places_of(larger) < kWorthIt * places_of(best)) best = larger;
    }
    return best;
  }
  // Tiles for all tasks, if the places around them are not too many.
  MatrixTiles cut_tiles(double places) const {
    const MatrixTiles tiles(s_, places, is_shared_ ? wanted_ : tasks_wanted());
    return places_of(tiles) <= most_places() ? tiles : MatrixTiles(s_, places, 1);
  }
  // As products take them: 32 at a time.
  static double places_of(const MatrixTiles& tiles) {
    const std::int64_t places = ceil_divide(tiles.places(), kTileDepth) * kTileDepth;
    return static_cast<double>(tiles.count()) * static_cast<double>(places);
  }
  double most_places() const { return kMostPlaces * static_cast<double>(s_.batch * s_.windows()); }
  std::int64_t tasks_wanted() const { return tasks_per_thread(s_, wanted_) * wanted_; }

  double weight_bytes() const {
    return static_cast<double>(n_.weight_sums()) * static_cast<double>(sizeof(float));
  }

  std::vector<Task> tasks_of_parts() const {
    std::vector<Task> tasks;
    for (std::int64_t part = 0; part < parts(); ++part) {
      tasks.push_back({Kind::tiles, share_of(tiles_.count(), parts(), part), part, {}});
    }
    return tasks;
  }
  std::vector<Task> shared_tasks(double input_pair_bytes) const {
    std::vector<Task> tasks;
    const std::int64_t tiles = tiles_.count();
    for_pairs(s_.makes_weight ? n_.outputs.all_pairs() : 0, output_pairs_at_once(),
              [&](const Range& pairs) { tasks.push_back({Kind::outputs, {0, tiles}, 0, pairs}); });
    const std::int64_t inputs = pairs_at_once(n_.inputs.all_pairs(), input_pair_bytes);
    const std::int64_t ranges = std::min(
        ceil_divide(kTasksPerThread * wanted_, ceil_divide(n_.inputs.all_pairs(), inputs)), tiles);
    for_pairs(s_.makes_input ? n_.inputs.all_pairs() : 0, inputs, [&](const Range& pairs) {
      for (std::int64_t range = 0; range < ranges; ++range) {
        tasks.push_back({Kind::inputs, share_of(tiles, ranges, range), 0, pairs});
      }
    });
    return tasks;
  }

  // What a task reads, it reads once for so many pairs, whose own numbers stay in the cache.
  std::int64_t pairs_at_once(std::int64_t pairs, double pair_bytes) const {
    constexpr double kShare = 0.3;  // of a second-level cache
    const auto fitting = static_cast<std::int64_t>(kShare * level2_bytes_ / pair_bytes);
    return std::clamp<std::int64_t>(fitting, 1, std::max<std::int64_t>(1, pairs / (2 * wanted_)));
  }
  template <class Body>
  static void for_pairs(std::int64_t pairs, std::int64_t at_once, const Body& body) {
    const std::int64_t parts = ceil_divide(pairs, at_once);
    for (std::int64_t part = 0; part < parts; ++part) body(share_of(pairs, parts, part));
  }

  const ConvShape s_;
  const BlockSizes& n_;
  const std::int64_t wanted_;
  const double level2_bytes_, place_bytes_;
  const bool is_shared_;
  const MatrixTiles tiles_;
};

}  // namespace backops

// How the blocks engine cuts its work into tasks.
//
// Weight sums that are small are cut into parts, one for the tiles of each task, which makes all
// products of them. Larger ones are cut by outputs, which leaves nothing to be added, and are tasks
// of their own. If there are more weights than outputs, tasks of the input product are cut by
// inputs, and have their weights to themselves as well; otherwise they are parts of the tiles. So
// are those of an input product alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/conv/blocks/layout.h"
#include "ops/conv/engine.h"
#include "ops/conv/parts.h"

namespace backops {

template <class Sum>
class BlockSchedule {
 public:
  enum class Cut : std::uint8_t { parts, inputs, outputs, outputs_and_inputs };

  // Tiles and pairs of blocks: of outputs, which are brought, and whose weights are summed where
  // those are cut; and of inputs.
  struct Task {
    const BlockLayout<Sum>* layout;
    Range tiles, output_pairs, input_pairs;
    std::int64_t part;  // whose sums are made
  };

  // A block of a tile that several tasks want.
  struct SharedBlock {
    std::size_t layout;
    std::int64_t tile, block;
  };

  BlockSchedule(const ConvShape& shape, const BlockSizes& sizes, const ConvCuts& cuts,
                const BlockBudget& budget, const ConvKernels& kernels, const FoldedTaps* folds)
      : s_(shape), n_(sizes), has_folds_(folds != nullptr), make_(s_, n_, budget, kernels, folds) {
    const std::int64_t wanted = cuts.parts();
    layouts.reserve(2);
    cut = cut_for(s_, n_, wanted, budget, has_folds_);
    if (cut == Cut::parts) {
      cut_into_parts(wanted, budget);
    } else if (cut == Cut::inputs) {
      cut_by_inputs(wanted, true);
    } else {
      cut_by_outputs(wanted, budget);
    }
  }

  // Whether lanes of weight sums may be inputs: only parts are cut by tiles alone.
  static bool is_cut_into_parts(const ConvShape& s, const BlockSizes& n, const ConvCuts& cuts,
                                const BlockBudget& budget, bool has_folds) {
    return cut_for(s, n, cuts.parts(), budget, has_folds) == Cut::parts;
  }

  bool has_parts() const { return s_.makes_weight && cut == Cut::parts; }
  bool packs_all() const {
    return s_.makes_input && cut != Cut::outputs_and_inputs && cut != Cut::inputs;
  }

  Cut cut = Cut::parts;
  bool fits = true;
  std::int64_t parts = 1;
  std::vector<BlockLayout<Sum>> layouts;
  std::vector<Task> tasks;
  std::vector<SharedBlock> shared;
  std::int64_t shared_sums = 0;

 private:
  static constexpr double kMostSumBytes = 64e6;     // of parts, where outputs are too few to be cut
  static constexpr double kMostSharedBytes = 16e6;  // of a tensor that is brought once for all

  static double weight_bytes(const BlockSizes& n) {
    return static_cast<double>(n.weight_sums()) * static_cast<double>(sizeof(Sum));
  }
  // Whose sums have so many bytes.
  std::int64_t parts_of(double bytes) const {
    return static_cast<std::int64_t>(std::max(1.0, bytes / weight_bytes(n_)));
  }

  static Cut cut_for(const ConvShape& s, const BlockSizes& n, std::int64_t wanted,
                     const BlockBudget& budget, bool has_folds) {
    const bool is_small = budget.parts() / weight_bytes(n) >= static_cast<double>(wanted) ||
                          n.outputs.all_pairs() < wanted ||
                          (are_uneven(n.outputs, wanted) && can_be_parts(n, wanted, budget));
    const bool are_many = !has_folds && n.taps > 1 && s.weights() > s.batch * s.out_image() &&
                          n.inputs.all_pairs() >= wanted;
    if (!s.makes_weight && !s.makes_bias && are_many && can_share(s, n)) return Cut::inputs;
    if (!s.makes_weight || is_small) return Cut::parts;
    return are_many ? Cut::outputs_and_inputs : Cut::outputs;
  }

  // Whether some worker would have much more than its share of the blocks, which are dealt in
  // pairs.
  static bool are_uneven(const BlockSide& side, std::int64_t workers) {
    constexpr double kMuchMore = 1.3;
    const std::int64_t most = BlockSizes::kPair * ceil_divide(side.all_pairs(), workers);
    return static_cast<double>(most * workers) > kMuchMore * static_cast<double>(side.all_blocks());
  }

  // Whether each worker may have all sums to itself. Kernels of one tap visit them too often.
  static bool can_be_parts(const BlockSizes& n, std::int64_t workers, const BlockBudget& budget) {
    const double bytes = weight_bytes(n);
    return n.taps > 1 && bytes <= budget.level2 &&
           bytes * static_cast<double>(workers) <= kMostSumBytes;
  }

  void cut_into_parts(std::int64_t wanted, const BlockBudget& budget) {
    parts = tasks_per_thread(s_, wanted) * wanted;
    if (s_.makes_weight) {
      const std::int64_t most = std::max(wanted, parts_of(budget.parts()) / wanted * wanted);
      parts = std::min({parts, most, parts_of(kMostSumBytes)});
    }
    add_layout(
        {n_.outputs.all_blocks(), s_.makes_input, s_.makes_weight, s_.makes_bias, false, parts});
    // Results alone are cut as fine as their tiles, unless memory is all that there is to wait for.
    if (!s_.makes_weight && !s_.makes_bias && n_.taps > 1) parts *= kTasksPerThread;
    add_tasks(parts, 1, 1);
  }

  void cut_by_outputs(std::int64_t wanted, const BlockBudget& budget) {
    const std::int64_t pairs = n_.outputs.all_pairs();
    const auto small = static_cast<std::int64_t>(weight_bytes(n_) / budget.range()) + 1;
    const std::int64_t ranges = std::min(pairs, std::max(small, 2 * wanted));
    const std::int64_t blocks =
        std::min(ceil_divide(pairs, ranges) * BlockSizes::kPair, n_.outputs.all_blocks());
    add_layout({blocks, false, true, s_.makes_bias, true, 1});
    add_tasks(parts, ranges, 1);
    if (!s_.makes_input) return;
    const bool by_inputs = cut == Cut::outputs_and_inputs;
    const auto weight_tasks = static_cast<std::int64_t>(tasks.size());
    cut_by_inputs(wanted, by_inputs);
    deal(weight_tasks, wanted);
  }

  // Workers begin at different places of the list: each with weights, whose tasks are larger.
  void deal(std::int64_t weight_tasks, std::int64_t workers) {
    const std::vector<Task> all = std::move(tasks);
    const std::int64_t others = static_cast<std::int64_t>(all.size()) - weight_tasks;
    tasks.clear();
    for (std::int64_t worker = 0; worker < workers; ++worker) {
      const Range weights = share_of(weight_tasks, workers, worker);
      const Range inputs = share_of(others, workers, worker);
      tasks.insert(tasks.end(), all.begin() + weights.begin, all.begin() + weights.end);
      tasks.insert(tasks.end(), all.begin() + weight_tasks + inputs.begin,
                   all.begin() + weight_tasks + inputs.end);
    }
  }

  void cut_by_inputs(std::int64_t wanted, bool by_inputs) {
    std::int64_t tile_parts = by_inputs ? 1 : kTasksPerThread * wanted;
    add_layout({n_.outputs.all_blocks(), true, false, false, by_inputs, tile_parts});
    by_inputs ? add_input_tasks(wanted) : add_tasks(tile_parts, 1, 1);
  }

  // A pair each, but those that the workers cannot share evenly: of these, each has some tiles.
  void add_input_tasks(std::int64_t workers) {
    if (!fits) return;
    const BlockLayout<Sum>& layout = layouts.back();
    const std::int64_t tiles = layout.tiles.count(), pairs = n_.inputs.all_pairs();
    const std::int64_t whole = tiles < workers ? pairs : pairs / workers * workers;
    const Range outputs{0, n_.outputs.all_pairs()};
    for (std::int64_t worker = 0; worker < workers; ++worker) {
      const Range own = share_of(whole, workers, worker);
      for (std::int64_t pair = own.begin; pair < own.end; ++pair) {
        tasks.push_back({&layout, {0, tiles}, outputs, {pair, pair + 1}, 0});
      }
      for (std::int64_t pair = whole; pair < pairs; ++pair) {
        tasks.push_back({&layout, share_of(tiles, workers, worker), outputs, {pair, pair + 1}, 0});
      }
    }
  }

  // Whether all of `output`, with some room for zeros, may be brought once for all.
  static bool can_share(const ConvShape& s, const BlockSizes& n) {
    constexpr double kZeros = 1.5;
    return kZeros * static_cast<double>(s.batch * s.out_positions()) *
               static_cast<double>(n.groups * n.outputs.padded()) *
               static_cast<double>(sizeof(Sum)) <=
           kMostSharedBytes;
  }

  void add_layout(const BlockWork& work) {
    const ConvTiles tiles = make_.tiles_for(work);
    fits = fits && tiles.fit();
    if (!fits) return;
    BlockLayout<Sum> layout = make_.layout_for(work, tiles);
    if (work.has_own_weights && work.makes_weight) {
      share(layout, n_.inputs.all_blocks(), 1, layout.input_pitch);
    } else if (work.has_own_weights) {
      share(layout, n_.outputs.all_blocks(), OutputPlanes(s_).count(), layout.output_pitch);
    }
    make_.place(work, layout);
    layouts.push_back(std::move(layout));
  }

  // Of the last layout; no more parts than it has tiles.
  void add_tasks(std::int64_t& count, std::int64_t output_ranges, std::int64_t input_ranges) {
    if (!fits) return;
    const BlockLayout<Sum>& layout = layouts.back();
    count = std::min(count, layout.tiles.count());
    for (std::int64_t part = 0; part < count; ++part) {
      for (std::int64_t i = 0; i < output_ranges * input_ranges; ++i) {
        tasks.push_back({&layout, share_of(layout.tiles.count(), count, part),
                         share_of(n_.outputs.all_pairs(), output_ranges, i / input_ranges),
                         share_of(n_.inputs.all_pairs(), input_ranges, i % input_ranges), part});
      }
    }
  }

  // Many tasks want these blocks of every tile: brought once, if there is the memory for them.
  void share(BlockLayout<Sum>& layout, std::int64_t blocks, std::int64_t planes,
             std::int64_t pitch) {
    const std::int64_t tiles = layout.tiles.count();
    const double bytes = static_cast<double>(tiles * planes) * static_cast<double>(blocks * pitch) *
                         static_cast<double>(sizeof(Sum));
    if (has_folds_ || bytes > kMostSharedBytes) return;
    layout.is_shared = true;
    layout.shared_at = shared_sums;
    layout.shared_blocks = planes * blocks;
    layout.shared_pitch = pitch;
    shared_sums += tiles * planes * blocks * pitch;
    for (std::int64_t i = 0; i < tiles * blocks; ++i) {
      shared.push_back({layouts.size(), i / blocks, i % blocks});
    }
  }

  const ConvShape& s_;
  const BlockSizes& n_;
  const bool has_folds_;
  const BlockLayouts<Sum> make_;
};

}  // namespace backops

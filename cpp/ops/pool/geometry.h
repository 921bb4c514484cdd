// How a pooling problem is cut into tiles, and what scratch memory a tile needs. Depends on shapes
// only; never on the number of threads, so neither do results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/pool/pool.h"
#include "ops/pool/windows.h"

namespace backops {

enum Axis { kDepth, kRows, kColumns, kAxes };

// What the last axis needs: see PoolKernels.
enum class Inner : std::uint8_t {
  spread,  // any windows along contiguous columns
  slide,   // stride 1 along contiguous columns
  fill,    // one window over all columns
  lanes    // columns are rows of contiguous channels
};

// A scratch buffer's place in a thread's workspace.
struct Scratch {
  std::size_t offset = 0, bytes = 0;
};

struct PoolGeometry {
  AxisWindows axes[kAxes];
  Inner inner;
  std::int64_t planes;  // that share nothing: batch, or batch times channels
  std::int64_t lanes;   // channels side by side in memory (Inner::lanes), otherwise 1
  bool sums_depth;      // depth needs a pass of its own
  bool usable;          // false: some window is too long for any tile
  bool can_pack;        // there is room for a dense copy of the sources of a tile

  // Sizes of a whole tile: its targets and (at most) the sources they need.
  std::int64_t tile_planes, tile_lanes, tile[kAxes], source[kAxes];
  std::int64_t step_planes, step_rows;  // that the row and column passes take at once
  std::int64_t plane_tiles, lane_tiles, axis_tiles[kAxes], tasks;
  int base, levels;
  std::int64_t level_rows, level_pitch;  // see SpreadArgs

  Scratch plane_sources, plane_targets;  // offsets of planes in the tensors
  Scratch plane_images;                  // and in the image
  Scratch from, to;                      // offsets for one pass: of planes or rows
  Scratch runs[kAxes], weights[kAxes];
  Scratch packed;                     // sources of the tile, dense, in their own dtype
  Scratch depth_sums;                 // after the depth pass
  Scratch row_sums;                   // after the row pass
  Scratch partial;                    // partial sums of long runs, or levels
  Scratch row_weights, step_factors;  // where sums are finished: of all rows, of those of a step
  Scratch image;                      // targets of the tile, dense, in their own dtype
  std::size_t bytes;                  // of all of these

  PoolGeometry(const std::vector<AxisWindows>& axes, Inner inner, std::int64_t planes,
               std::int64_t lanes, bool depth_is_weighted, std::size_t element_bytes,
               std::size_t sum_bytes);

  // Elements of one row of sums; for slides there are zeros around the outputs.
  std::int64_t sum_row_columns(std::int64_t target_columns, std::int64_t source_elements) const;
  // Rows of a block, see CombineArgs: none where long runs share little.
  std::int64_t block_of(int axis) const {
    const std::int64_t longest = axes[axis].longest_cover();
    return longest > kLongestDirectRun && axes[axis].is_summed_directly() ? 0 : longest;
  }
  std::int64_t slide_kernel() const { return axes[kColumns].slide_kernel(); }

 private:
  std::int64_t step_elements_;  // sums that a step is to have
  void fit(std::size_t element_bytes, std::size_t sum_bytes);
  void choose_tile();
  void choose_step();
  void place_scratch(std::size_t element_bytes, std::size_t sum_bytes);
  bool shrink_tile();
  void count_tiles();
};

}  // namespace backops

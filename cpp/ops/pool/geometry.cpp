#include "ops/pool/geometry.h"

#include <algorithm>

#include "base/ints.h"
#include "kernels/pool/pool.h"
#include "ops/pool/spread_table.h"

namespace backops {
namespace {

// Elements of a tile, of targets or of sources, whichever are more: enough for the start of a tile
// not to matter, and no more than stay in the second-level cache. Large problems have large
// tiles, as long as there are some hundreds of them for threads to share: where a tile ends, so
// does what the CPU reads and writes ahead.
constexpr std::int64_t kFewestTileElements = 16384, kMostTileElements = 65536;
constexpr std::int64_t kTilesToShare = 512;
// Sums of one step, of so many bytes as elements. Rows are written while others are summed only as
// far as the stores that wait have room in the CPU, so short steps keep memory at work, and shorter
// ones still are not worth their calls (k3s2 beyond the caches: 1.6 times as long with 12 KB).
constexpr std::int64_t kStepBytes = 2048;
// Rows of many channels are long; a step of several lets each source row be read once for them all.
constexpr std::int64_t kLaneStepElements = 6144;
constexpr std::int64_t kLevelElements = 2048;  // the same for the levels of a slide or spread
constexpr std::int64_t kRowAlignment = 16;     // elements; no vector of sums has more lanes
constexpr std::int64_t kMaxTileRows = 2048;
constexpr std::int64_t kMaxTileColumns = 8192;
constexpr std::int64_t kMaxTilePlanes = 1024;
constexpr std::size_t kMaxScratchBytes = 1000 * 1024;
// Vector loads may read this far beyond the elements they use.
constexpr std::size_t kSlackBytes = 256;

// `size` cut into equal pieces of about `wanted`, at least `least`.
std::int64_t even_piece(std::int64_t size, std::int64_t wanted, std::int64_t least) {
  const std::int64_t piece = std::min(std::max(wanted, least), kMaxTileRows);
  return size <= piece + piece / 2 ? size : ceil_divide(size, ceil_divide(size, piece));
}

}  // namespace

PoolGeometry::PoolGeometry(const std::vector<AxisWindows>& all_axes, Inner inner_kind,
                           std::int64_t plane_count, std::int64_t lane_count,
                           bool depth_is_weighted, std::size_t element_bytes, std::size_t sum_bytes)
    : axes{all_axes[0], all_axes[1], all_axes[2]},
      inner(inner_kind),
      planes(plane_count),
      lanes(lane_count) {
  sums_depth = depth_is_weighted || !axes[kDepth].covers_every_index_once();
  base = inner == Inner::slide ? base_for(slide_kernel()) : kSpreadBase;
  levels = 1;
  const std::int64_t longest =
      inner == Inner::slide ? slide_kernel() : axes[kColumns].longest_cover();
  if (inner == Inner::slide && longest > kLongestDirectSlide) levels = levels_for(longest, base);
  if (inner == Inner::spread && longest > kLongestDirectSpread) levels = levels_for(longest, base);
  step_elements_ = kStepBytes / static_cast<std::int64_t>(element_bytes);
  can_pack = true;
  fit(element_bytes, sum_bytes);
  if (!usable) {
    can_pack = false;
    fit(element_bytes, sum_bytes);
  }
  count_tiles();
}

void PoolGeometry::fit(std::size_t element_bytes, std::size_t sum_bytes) {
  choose_tile();
  do {
    place_scratch(element_bytes, sum_bytes);
    usable = bytes <= kMaxScratchBytes;
  } while (!usable && shrink_tile());
}

void PoolGeometry::choose_tile() {
  std::int64_t in[kAxes], density[kAxes];  // targets, and sources for each of them
  double elements = static_cast<double>(planes) * static_cast<double>(lanes);
  for (int axis = 0; axis < kAxes; ++axis) {
    in[axis] = axes[axis].targets();
    density[axis] = ceil_divide(axes[axis].sources(), in[axis]);
    elements *= static_cast<double>(std::max(in[axis], axes[axis].sources()));
  }
  const auto wanted = static_cast<std::int64_t>(std::clamp(elements / kTilesToShare,
                                                           static_cast<double>(kFewestTileElements),
                                                           static_cast<double>(kMostTileElements)));
  const auto share = [wanted](std::int64_t used) {
    return std::max<std::int64_t>(1, wanted / used);
  };
  const auto most = [wanted](std::int64_t used, std::int64_t times) {
    return used > wanted || times > wanted ? wanted + 1 : used * times;
  };
  tile_lanes = std::min<std::int64_t>(lanes, kMaxTileColumns);
  const std::int64_t most_columns =
      inner == Inner::lanes ? std::min(share(most(tile_lanes, density[kColumns])), kMaxTileRows)
                            : std::max<std::int64_t>(1, kMaxTileColumns / density[kColumns]);
  tile[kColumns] = std::min(in[kColumns], most_columns);
  // Tiles that begin at a multiple of the stride share their tables.
  const std::int64_t period = axes[kColumns].period();
  if (period > 1 && period <= tile[kColumns] && tile[kColumns] < in[kColumns]) {
    tile[kColumns] -= tile[kColumns] % period;
  }
  // Several times the longest cover, or most of a tile's work would be its neighbours' too.
  std::int64_t used = most(tile[kColumns] * density[kColumns], tile_lanes);
  for (const int axis : {kRows, kDepth}) {
    tile[axis] =
        even_piece(in[axis], share(most(used, density[axis])), 4 * axes[axis].sharing_targets());
    used = most(used, tile[axis] * density[axis]);
  }
  tile_planes = std::min({std::max<std::int64_t>(planes, 1), share(used), kMaxTilePlanes});
}

std::int64_t PoolGeometry::sum_row_columns(std::int64_t target_columns,
                                           std::int64_t source_elements) const {
  if (inner != Inner::slide) return source_elements;
  const std::int64_t used = target_columns + slide_kernel() - 1;
  if (used == source_elements) return used;
  return round_up(used, kRowAlignment);
}

void PoolGeometry::choose_step() {
  const std::int64_t elements = inner == Inner::lanes ? kLaneStepElements : step_elements_;
  const std::int64_t longest_row = sum_row_columns(tile[kColumns], source[kColumns] * tile_lanes);
  const std::int64_t row = std::max<std::int64_t>(1, std::min<std::int64_t>(elements, longest_row));
  level_rows = std::max<std::int64_t>(1, kLevelElements / row);
  // Partial sums of long runs are kept within a step: it holds the rows of two blocks.
  const std::int64_t least =
      block_of(kRows) > kLongestDirectRun ? 2 * axes[kRows].sharing_targets() : 1;
  step_rows = std::min(tile[kRows], std::max(least, elements / row));
  step_planes =
      step_rows < tile[kRows]
          ? 1
          : std::max<std::int64_t>(1, std::min(tile_planes, elements / (row * step_rows)));
}

// Takes half of what costs least to cut; false when nothing is left to cut.
bool PoolGeometry::shrink_tile() {
  for (std::int64_t* size :
       {&tile_planes, &tile[kDepth], &tile[kRows], &tile[kColumns], &tile_lanes}) {
    if (*size == 1) continue;
    *size = ceil_divide(*size, 2);
    return true;
  }
  return false;
}

void PoolGeometry::place_scratch(std::size_t element_bytes, std::size_t sum_bytes) {
  bytes = 0;
  // Counts may be absurd (a window of 2^60 elements): they are summed as floating point numbers
  // first, and clamped far above the limit.
  const auto place = [this](Scratch& scratch, double count, std::size_t each) {
    scratch.offset = bytes;
    const double wanted = count * static_cast<double>(each) + kSlackBytes;
    const double most = 1e12;
    scratch.bytes = static_cast<std::size_t>(std::min(wanted, most));
    bytes += whole_lines(scratch.bytes);
  };
  for (int axis = 0; axis < kAxes; ++axis) source[axis] = axes[axis].covers_of(tile[axis]);
  choose_step();
  const double plane_count = static_cast<double>(tile_planes);
  const double depth = static_cast<double>(tile[kDepth]), rows = static_cast<double>(tile[kRows]);
  const double columns = static_cast<double>(tile[kColumns]);
  const double source_depth = static_cast<double>(source[kDepth]);
  const double source_rows = static_cast<double>(source[kRows]);
  const double row_elements =
      static_cast<double>(source[kColumns]) * static_cast<double>(tile_lanes);
  const std::int64_t longest_row = sum_row_columns(tile[kColumns], source[kColumns] * tile_lanes);
  const double row_sum_elements = static_cast<double>(longest_row);

  const double offsets = std::max({plane_count, source_rows, rows});
  place(plane_sources, plane_count, sizeof(std::int64_t));
  place(plane_targets, plane_count, sizeof(std::int64_t));
  place(plane_images, plane_count, sizeof(std::int64_t));
  place(from, offsets, sizeof(std::int64_t));
  place(to, offsets, sizeof(std::int64_t));
  for (int axis = 0; axis < kAxes; ++axis) {
    const bool has_runs = axis != kColumns || inner == Inner::lanes;
    place(runs[axis], has_runs ? static_cast<double>(tile[axis]) : 0, sizeof(Run));
    place(weights[axis], static_cast<double>(std::max(source[axis], tile[axis])), sum_bytes);
  }
  place(row_weights, rows, sum_bytes);
  place(step_factors, rows, sum_bytes);
  place(packed, can_pack ? plane_count * source_depth * source_rows * row_elements : 0,
        element_bytes);
  place(depth_sums, sums_depth ? plane_count * depth * source_rows * row_elements : 0, sum_bytes);
  place(row_sums, static_cast<double>(step_planes * step_rows) * row_sum_elements, sum_bytes);
  double partial_elements = static_cast<double>(levels - 1) *
                            (static_cast<double>(level_rows) * row_sum_elements + kRowAlignment);
  level_pitch = std::min<std::int64_t>(level_rows * longest_row, std::int64_t{1} << 40);
  level_pitch = round_up(level_pitch, kRowAlignment);
  for (int axis = 0; axis < kAxes; ++axis) {
    const std::int64_t longest = block_of(axis);
    if (longest <= kLongestDirectRun || (axis == kColumns && inner != Inner::lanes)) continue;
    partial_elements = std::max(partial_elements, static_cast<double>(longest) *
                                                      static_cast<double>(block_columns(longest)));
  }
  place(partial, partial_elements, sum_bytes);
  place(image, plane_count * rows * columns * static_cast<double>(tile_lanes), element_bytes);
}

void PoolGeometry::count_tiles() {
  plane_tiles = ceil_divide(planes, tile_planes);
  lane_tiles = ceil_divide(lanes, tile_lanes);
  tasks = plane_tiles * lane_tiles;
  for (int axis = 0; axis < kAxes; ++axis) {
    axis_tiles[axis] = ceil_divide(axes[axis].targets(), tile[axis]);
    tasks *= axis_tiles[axis];
  }
}

}  // namespace backops

// Runs a pooling plan tile by tile: sum along depth, sum along rows, spread along columns.
#include <algorithm>
#include <cstring>

#include "base/ints.h"
#include "base/strided_copy.h"
#include "base/task_queue.h"
#include "base/threads.h"
#include "ops/common/precision.h"
#include "ops/pool/binding.h"

namespace backops {
namespace {

// What the row and column passes do at once: so few rows that their sums stay in the first-level
// cache between the two.
struct Step {
  std::int64_t first_plane, planes;
  std::int64_t first_run, runs;  // of rows
};

// Everything one thread does. `scratch` is its part of the workspace.
class TileWorker {
 public:
  TileWorker(const PoolBinding& binding, char* scratch)
      : b_(binding),
        g_(binding.geometry),
        kernels_(*binding.plan.kernels),
        conversions_(*binding.plan.conversions),
        scratch_(scratch),
        sum_bytes_(static_cast<std::int64_t>(binding.plan.sum_bytes())) {}

  void run(std::int64_t task);

 private:
  template <class T>
  T* at(const Scratch& scratch) const {
    return reinterpret_cast<T*>(scratch_ + scratch.offset);
  }

  void locate(std::int64_t task);
  void enter(int axis, std::int64_t tile);
  void make_runs(int axis);
  void make_weights(int axis);
  void locate_planes();
  void pack();
  void sum_depth();
  void zero_margins();
  void prepare_passes();
  std::int64_t runs_of_step(std::int64_t first_run) const;
  void sum_rows(const Step& step);
  bool join_rows(const Step& step, CombineArgs& args) const;
  void write_columns(const Step& step);
  void write_lanes(const Step& step);
  template <class Sum>
  const void* row_factors(std::int64_t depth) const;
  void write_depth(std::int64_t source_depth, const Run& depth_run);
  void repeat_depth(const Run& depth_run);
  void copy_image(std::int64_t depth);
  void stream_step(const Step& step, std::int64_t depth);
  void stream_rows(char* target, const char* image, std::int64_t begin, std::int64_t end);
  CombineArgs combine_args(int axis) const;

  // The first pass applies what all windows have in common.
  double scale_of(int axis) const {
    return axis == (g_.sums_depth ? kDepth : kRows) ? b_.plan.scale : 1.0;
  }

  std::int64_t target_origin(std::int64_t depth) const {
    return (begin_[kDepth] + depth) * b_.target.axis[kDepth] +
           begin_[kRows] * b_.target.axis[kRows] + begin_[kColumns] * b_.target.axis[kColumns] +
           (b_.is_lanes() ? lane_begin_ * b_.target.channel : 0);
  }
  std::int64_t image_plane_bytes() const {
    return size_[kRows] * size_[kColumns] * lane_count_ * b_.element_bytes;
  }

  const PoolBinding& b_;
  const PoolGeometry& g_;
  const PoolKernels& kernels_;
  const ConvertKernels& conversions_;
  char* const scratch_;
  const std::int64_t sum_bytes_;

  // The tile at hand: where it begins, how large it is, and the sources it needs.
  std::int64_t plane_begin_, plane_count_, lane_begin_, lane_count_;
  std::int64_t tile_[kAxes] = {-1, -1, -1};
  std::int64_t begin_[kAxes], size_[kAxes], source_begin_[kAxes], source_size_[kAxes];
  std::int64_t run_count_[kAxes];

  // Where the row pass reads: planes at at(plane_sources), dense rows of row_elements_.
  const char* source_;
  std::int64_t depth_pitch_, row_pitch_, row_elements_;

  std::int64_t margin_ = 0;              // zeros before the sources in a row of sums
  std::int64_t sum_pitch_ = 0;           // bytes from one row of sums to the next
  std::int64_t margins_ready_for_ = -1;  // column tile whose margins are zero already
  bool rows_may_join_ = false;           // rows may join, see join_rows

  // The passes over rows and columns, but for what a step sets.
  CombineArgs row_pass_{}, lane_pass_{};
  SpreadArgs column_pass_{};
  SpreadTable table_{};
  const void* row_factors_ = nullptr;
  char* target_ = nullptr;  // the target or the image, at the depth at hand
  const std::int64_t* target_planes_ = nullptr;
  std::int64_t target_row_pitch_ = 0;
  std::int64_t streamed_bytes_ = 0;  // of the plane at hand
};

void TileWorker::run(std::int64_t task) {
  locate(task);
  locate_planes();
  if (b_.pack) pack();
  if (g_.sums_depth) sum_depth();
  const Run* const runs = at<Run>(g_.runs[kDepth]);
  prepare_passes();
  for (std::int64_t r = 0; r < run_count_[kDepth]; ++r) {
    write_depth(g_.sums_depth ? r : runs[r].first, runs[r]);
    repeat_depth(runs[r]);
  }
}

void TileWorker::locate(std::int64_t task) {
  const auto take = [&task](std::int64_t tiles) {
    if (tiles == 1) return std::int64_t{0};
    const std::int64_t index = task % tiles;
    task /= tiles;
    return index;
  };
  lane_begin_ = take(g_.lane_tiles) * g_.tile_lanes;
  lane_count_ = std::min(g_.tile_lanes, g_.lanes - lane_begin_);
  for (int axis = kColumns; axis >= kDepth; --axis) {
    const std::int64_t tile = take(g_.axis_tiles[axis]);
    if (tile != tile_[axis]) enter(axis, tile);
  }
  plane_begin_ = task * g_.tile_planes;
  plane_count_ = std::min(g_.tile_planes, g_.planes - plane_begin_);
  row_elements_ = source_size_[kColumns] * lane_count_;
  margin_ = 0;
  if (g_.inner == Inner::slide) {
    margin_ = source_begin_[kColumns] - (begin_[kColumns] - g_.axes[kColumns].slide_lead());
  }
  sum_pitch_ = g_.sum_row_columns(size_[kColumns], row_elements_) * sum_bytes_;
  zero_margins();
}

// What depends on the place along one axis only; most axes have one tile, and are entered once.
void TileWorker::enter(int axis, std::int64_t tile) {
  const AxisWindows& windows = g_.axes[axis];
  tile_[axis] = tile;
  begin_[axis] = tile * g_.tile[axis];
  size_[axis] = std::min(g_.tile[axis], windows.targets() - begin_[axis]);
  source_begin_[axis] = windows.cover(begin_[axis]).first;
  source_size_[axis] = windows.cover(begin_[axis] + size_[axis] - 1).last - source_begin_[axis];
  if (axis != kColumns || b_.is_lanes()) make_runs(axis);
  if (b_.plan.weighted[axis] || b_.plan.finished[axis]) make_weights(axis);
}

// Neighbours with the same cover become one run, if they divide by the same.
void TileWorker::make_runs(int axis) {
  Run* const runs = at<Run>(g_.runs[axis]);
  std::int64_t count = 0;
  const AxisWindows& windows = g_.axes[axis];
  AxisWindows::Covers covers(windows, begin_[axis]);
  Cover previous{-1, -1};
  for (std::int64_t i = 0; i < size_[axis]; ++i, covers.next()) {
    const Cover cover = covers.get();
    const std::int64_t target = begin_[axis] + i;
    if (cover == previous &&
        (!b_.plan.finished[axis] || windows.divisor(target) == windows.divisor(target - 1))) {
      ++runs[count - 1].repeat;
      continue;
    }
    runs[count++] = {cover.first - source_begin_[axis], cover.last - cover.first, i, 1};
    previous = cover;
  }
  run_count_[axis] = count;
}

// Of sources, or of targets where sums are finished.
void TileWorker::make_weights(int axis) {
  const bool finished = b_.plan.finished[axis];
  const std::int64_t begin = finished ? begin_[axis] : source_begin_[axis];
  const std::int64_t end = begin + (finished ? size_[axis] : source_size_[axis]);
  const double scale = finished ? b_.plan.target_scale[axis] : scale_of(axis);
  if (sum_bytes_ == sizeof(double)) {
    g_.axes[axis].weights(begin, end, scale, at<double>(g_.weights[axis]));
  } else {
    g_.axes[axis].weights(begin, end, scale, at<float>(g_.weights[axis]));
  }
}

void TileWorker::locate_planes() {
  std::int64_t* const sources = at<std::int64_t>(g_.plane_sources);
  std::int64_t* const targets = at<std::int64_t>(g_.plane_targets);
  const std::int64_t channels = b_.is_lanes() ? 1 : b_.plan.channels();
  std::int64_t batch = plane_begin_ / channels, channel = plane_begin_ % channels;
  std::int64_t source = batch * b_.source.batch + channel * b_.source.channel;
  std::int64_t target = batch * b_.target.batch + channel * b_.target.channel;
  for (std::int64_t p = 0; p < plane_count_; ++p) {
    sources[p] = source;
    targets[p] = target;
    source += b_.source.channel;
    target += b_.target.channel;
    if (++channel == channels) {
      channel = 0;
      ++batch;
      source = batch * b_.source.batch;
      target = batch * b_.target.batch;
    }
  }
  if (!b_.direct) {
    std::int64_t* const images = at<std::int64_t>(g_.plane_images);
    const std::int64_t bytes = image_plane_bytes();
    for (std::int64_t p = 0; p < plane_count_; ++p) images[p] = p * bytes;
  }
  source_ = b_.source_view.data;
  for (int axis = 0; axis < kAxes; ++axis) source_ += source_begin_[axis] * b_.source.axis[axis];
  if (b_.is_lanes()) source_ += lane_begin_ * b_.source.channel;
  depth_pitch_ = b_.source.axis[kDepth];
  row_pitch_ = b_.source.axis[kRows];
}

void TileWorker::pack() {
  char* const packed = at<char>(g_.packed);
  const std::int64_t row = row_elements_ * b_.element_bytes, depth = row * source_size_[kRows];
  const std::int64_t plane = depth * source_size_[kDepth];
  std::int64_t* const sources = at<std::int64_t>(g_.plane_sources);
  const StridedBlock block = {
      {source_size_[kDepth], source_size_[kRows], source_size_[kColumns], lane_count_},
      {depth, row, lane_count_ * b_.element_bytes, b_.element_bytes},
      {depth_pitch_, row_pitch_, b_.source.axis[kColumns], b_.source.channel}};
  for (std::int64_t p = 0; p < plane_count_; ++p) {
    strided_copy(packed + p * plane, source_ + sources[p], block,
                 static_cast<int>(b_.element_bytes), false);
    sources[p] = p * plane;
  }
  source_ = packed;
  depth_pitch_ = depth;
  row_pitch_ = row;
  round_operands(at<float>(g_.packed), plane_count_ * plane / b_.element_bytes,
                 b_.plan.problem.rounding, conversions_);
}

CombineArgs TileWorker::combine_args(int axis) const {
  CombineArgs args;  // every field is set: zeroing it first took as long as a short row
  args.planes = 0;
  args.source_offsets = at<std::int64_t>(g_.from);
  args.target_offsets = at<std::int64_t>(g_.to);
  args.source = nullptr;
  args.target = nullptr;
  args.source_pitch_bytes = args.target_pitch_bytes = 0;
  args.runs = at<Run>(g_.runs[axis]);
  args.run_count = run_count_[axis];
  args.scale = scale_of(axis);
  args.weights = b_.plan.weighted[axis] ? at<void>(g_.weights[axis]) : nullptr;
  args.column_weights = nullptr;
  args.plane_factors = nullptr;
  args.run_factors = nullptr;
  args.columns = 0;
  args.block = g_.block_of(axis);
  args.first_row = source_begin_[axis];
  args.axis_rows = g_.axes[axis].sources();
  args.scratch = at<void>(g_.partial);
  args.announce_bytes = b_.announce_bytes;
  return args;
}

// Leaves one dense plane of sums per run of depth, where the row pass will look for them.
void TileWorker::sum_depth() {
  const std::int64_t row_sums = row_elements_ * sum_bytes_;
  const std::int64_t plane_sums = row_sums * source_size_[kRows];
  std::int64_t* const sources = at<std::int64_t>(g_.plane_sources);
  std::int64_t* const from = at<std::int64_t>(g_.from);
  std::int64_t* const to = at<std::int64_t>(g_.to);
  CombineArgs args = combine_args(kDepth);
  args.source_pitch_bytes = depth_pitch_;
  args.target_pitch_bytes = plane_sums;
  // Rows that follow each other are one long row; partial sums of long runs want short ones.
  const bool rows_join =
      row_pitch_ == row_elements_ * b_.element_bytes && args.block <= kLongestDirectRun;
  args.planes = rows_join ? 1 : source_size_[kRows];
  args.columns = rows_join ? row_elements_ * source_size_[kRows] : row_elements_;
  for (std::int64_t r = 0; r < args.planes; ++r) {
    from[r] = r * row_pitch_;
    to[r] = r * row_sums;
  }
  for (std::int64_t p = 0; p < plane_count_; ++p) {
    args.source = source_ + sources[p];
    sources[p] = p * run_count_[kDepth] * plane_sums;
    args.target = at<char>(g_.depth_sums) + sources[p];
    kernels_.combine_source(args);
  }
  source_ = at<char>(g_.depth_sums);
  depth_pitch_ = plane_sums;
  row_pitch_ = row_sums;
}

// Stride 1 reads beyond both ends of the sources, where zeros must be. No pass writes there, so
// they last until another column tile comes.
void TileWorker::zero_margins() {
  if (g_.inner != Inner::slide || margins_ready_for_ == tile_[kColumns]) return;
  margins_ready_for_ = tile_[kColumns];
  const std::int64_t rows = g_.step_planes * g_.step_rows;
  std::memset(at<char>(g_.row_sums), 0, static_cast<std::size_t>(rows * sum_pitch_));
}

// What all steps of a tile have in common.
void TileWorker::prepare_passes() {
  row_pass_ = combine_args(kRows);
  row_pass_.source_pitch_bytes = row_pitch_;
  row_pass_.target = at<char>(g_.row_sums) + margin_ * sum_bytes_;
  row_pass_.target_pitch_bytes = sum_pitch_;
  row_pass_.columns = row_elements_;
  const std::int64_t source_bytes = g_.sums_depth ? sum_bytes_ : b_.element_bytes;
  rows_may_join_ = g_.axes[kRows].covers_every_index_once() && !b_.plan.weighted[kRows] &&
                   (b_.is_lanes() || !b_.plan.weighted[kColumns]) &&
                   sum_pitch_ == row_elements_ * sum_bytes_ &&
                   (run_count_[kRows] == 1 || row_pitch_ == row_elements_ * source_bytes);

  const std::int64_t image_column = lane_count_ * b_.element_bytes;
  target_row_pitch_ = b_.direct ? b_.target.axis[kRows] : size_[kColumns] * image_column;
  if (b_.is_lanes()) {
    lane_pass_ = combine_args(kColumns);
    lane_pass_.source_pitch_bytes = lane_count_ * sum_bytes_;
    lane_pass_.target_pitch_bytes = b_.direct ? b_.target.axis[kColumns] : image_column;
    lane_pass_.columns = lane_count_;
    if (b_.plan.finished[kColumns]) lane_pass_.run_factors = at<void>(g_.weights[kColumns]);
    return;
  }
  if (b_.plan.weighted[kColumns]) row_pass_.column_weights = at<void>(g_.weights[kColumns]);
  column_pass_.source = at<char>(g_.row_sums);
  column_pass_.source_pitch_bytes = sum_pitch_;
  column_pass_.target_pitch_bytes = target_row_pitch_;
  column_pass_.columns = size_[kColumns];
  column_pass_.source_columns = sum_pitch_ / sum_bytes_;
  column_pass_.base = g_.base;
  column_pass_.levels = g_.levels;
  column_pass_.level_rows = g_.level_rows;
  column_pass_.level_pitch = g_.level_pitch;
  column_pass_.scratch = at<void>(g_.partial);
  column_pass_.announce_bytes = b_.announce_bytes;
  column_pass_.kernel = g_.inner == Inner::slide ? g_.slide_kernel() : 0;
  if (g_.inner == Inner::spread) table_ = b_.plan.tables.table(tile_[kColumns]);
  column_pass_.table = &table_;
  column_pass_.column_factors =
      b_.plan.finished[kColumns] ? at<void>(g_.weights[kColumns]) : nullptr;
}

// What rows of targets at one depth are multiplied by, if anything.
template <class Sum>
const void* TileWorker::row_factors(std::int64_t depth) const {
  const Sum* const rows = at<Sum>(g_.weights[kRows]);
  if (!b_.plan.finished[kDepth]) return b_.plan.finished[kRows] ? rows : nullptr;
  const Sum factor = at<Sum>(g_.weights[kDepth])[depth];
  Sum* const both = at<Sum>(g_.row_weights);
  for (std::int64_t r = 0; r < size_[kRows]; ++r) {
    both[r] = b_.plan.finished[kRows] ? rows[r] * factor : factor;
  }
  return both;
}

// Rows and columns of one depth of the tile; `source_depth` counts depth_pitch_ steps.
void TileWorker::write_depth(std::int64_t source_depth, const Run& depth_run) {
  row_pass_.source = source_ + source_depth * depth_pitch_;
  row_factors_ = sum_bytes_ == sizeof(double) ? row_factors<double>(depth_run.target)
                                              : row_factors<float>(depth_run.target);
  if (b_.direct) {
    target_ = b_.target_view.data + target_origin(depth_run.target);
    target_planes_ = at<std::int64_t>(g_.plane_targets);
  } else {
    target_ = at<char>(g_.image);
    target_planes_ = at<std::int64_t>(g_.plane_images);
  }
  Step step{};
  for (; step.first_plane < plane_count_; step.first_plane += g_.step_planes) {
    step.planes = std::min(g_.step_planes, plane_count_ - step.first_plane);
    for (step.first_run = 0; step.first_run < run_count_[kRows]; step.first_run += step.runs) {
      step.runs = runs_of_step(step.first_run);
      sum_rows(step);
      b_.is_lanes() ? write_lanes(step) : write_columns(step);
      if (b_.stream) stream_step(step, depth_run.target);
    }
  }
}

// As many as fit. Long runs end a step with a block, so that no partial sum is needed twice.
std::int64_t TileWorker::runs_of_step(std::int64_t first_run) const {
  const std::int64_t count = std::min(g_.step_rows, run_count_[kRows] - first_run);
  const std::int64_t block = g_.block_of(kRows);
  if (block <= kLongestDirectRun || first_run + count == run_count_[kRows]) return count;
  const Run* const runs = at<Run>(g_.runs[kRows]);
  const auto block_of = [&](std::int64_t r) {
    return (runs[r].first + source_begin_[kRows]) / block;
  };
  for (std::int64_t shorter = count; shorter > 0; --shorter) {
    if (block_of(first_run + shorter) != block_of(first_run + shorter - 1)) return shorter;
  }
  return count;
}

// Leaves one row of sums per run and plane, one after the other.
void TileWorker::sum_rows(const Step& step) {
  CombineArgs& args = row_pass_;
  args.source_offsets = at<std::int64_t>(g_.plane_sources) + step.first_plane;
  const auto combine = g_.sums_depth ? kernels_.combine_sums : kernels_.combine_source;
  if (rows_may_join_) {
    CombineArgs joined = args;
    if (join_rows(step, joined)) return combine(joined);
  }
  std::int64_t* const to = at<std::int64_t>(g_.to);
  for (std::int64_t p = 0; p < step.planes; ++p) to[p] = p * step.runs * sum_pitch_;
  args.planes = step.planes;
  args.runs = at<Run>(g_.runs[kRows]) + step.first_run;
  args.run_count = step.runs;
  combine(args);
}

// Where each row is used once and unchanged but for a factor, rows and planes that follow each
// other are one long row.
bool TileWorker::join_rows(const Step& step, CombineArgs& args) const {
  static constexpr Run kWhole{0, 1, 0, 1};
  at<std::int64_t>(g_.to)[0] = 0;
  const std::int64_t element_bytes = g_.sums_depth ? sum_bytes_ : b_.element_bytes;
  args.columns = row_elements_ * step.runs;
  const std::int64_t plane_bytes = args.columns * element_bytes;
  for (std::int64_t p = 1; p < step.planes; ++p) {
    if (args.source_offsets[p] - args.source_offsets[p - 1] != plane_bytes) return false;
  }
  args.source += at<Run>(g_.runs[kRows])[step.first_run].first * row_pitch_;
  args.columns *= step.planes;
  args.planes = 1;
  args.runs = &kWhole;
  args.run_count = 1;
  return true;
}

void TileWorker::write_columns(const Step& step) {
  SpreadArgs& args = column_pass_;
  args.target = target_;
  args.target_offsets = target_planes_ + step.first_plane;
  args.planes = step.planes;
  args.runs = at<Run>(g_.runs[kRows]) + step.first_run;
  args.run_count = step.runs;
  args.row_factors = row_factors_;
  switch (g_.inner) {
    case Inner::fill: return kernels_.fill(args);
    case Inner::slide: return kernels_.slide(args);
    default: return kernels_.spread(args);
  }
}

// Sums along columns, then copies rows that repeat.
void TileWorker::write_lanes(const Step& step) {
  const Run* const row_runs = at<Run>(g_.runs[kRows]) + step.first_run;
  std::int64_t* const from = at<std::int64_t>(g_.from);
  std::int64_t* const to = at<std::int64_t>(g_.to);
  CombineArgs& args = lane_pass_;
  args.planes = step.runs;
  args.plane_factors = row_factors_ ? at<void>(g_.step_factors) : nullptr;
  for (std::int64_t r = 0; r < step.runs; ++r) {
    from[r] = r * sum_pitch_;
    to[r] = row_runs[r].target * target_row_pitch_;
    if (row_factors_) {
      std::memcpy(at<char>(g_.step_factors) + r * sum_bytes_,
                  static_cast<const char*>(row_factors_) + row_runs[r].target * sum_bytes_,
                  static_cast<std::size_t>(sum_bytes_));
    }
  }
  const StridedBlock row_block = {{1, 1, size_[kColumns], lane_count_},
                                  {0, 0, args.target_pitch_bytes, b_.element_bytes},
                                  {0, 0, args.target_pitch_bytes, b_.element_bytes}};
  for (std::int64_t p = 0; p < step.planes; ++p) {
    args.source = at<char>(g_.row_sums) + p * step.runs * sum_pitch_;
    args.target = target_ + target_planes_[step.first_plane + p];
    kernels_.combine_target(args);
    for (std::int64_t r = 0; r < step.runs; ++r) {
      char* const first = args.target + to[r];
      for (std::int64_t q = 1; q < row_runs[r].repeat; ++q) {
        strided_copy(first + q * target_row_pitch_, first, row_block,
                     static_cast<int>(b_.element_bytes), true);
      }
    }
  }
}

// Depths with the same cover are copies of the first.
void TileWorker::repeat_depth(const Run& depth_run) {
  if (!b_.direct) {
    // What is streamed has left for the first depth already.
    const std::int64_t first = b_.stream ? 1 : 0;
    for (std::int64_t q = first; q < depth_run.repeat; ++q) copy_image(depth_run.target + q);
    return;
  }
  if (depth_run.repeat == 1) return;
  const std::int64_t* const targets = at<std::int64_t>(g_.plane_targets);
  const std::int64_t lane_stride = b_.is_lanes() ? b_.target.channel : b_.element_bytes;
  const StridedBlock block = {{1, size_[kRows], size_[kColumns], lane_count_},
                              {0, b_.target.axis[kRows], b_.target.axis[kColumns], lane_stride},
                              {0, b_.target.axis[kRows], b_.target.axis[kColumns], lane_stride}};
  for (std::int64_t p = 0; p < plane_count_; ++p) {
    char* const first = b_.target_view.data + targets[p] + target_origin(depth_run.target);
    for (std::int64_t q = 1; q < depth_run.repeat; ++q) {
      strided_copy(first + q * b_.target.axis[kDepth], first, block,
                   static_cast<int>(b_.element_bytes), true);
    }
  }
}

void TileWorker::copy_image(std::int64_t depth) {
  const std::int64_t* const targets = at<std::int64_t>(g_.plane_targets);
  const std::int64_t column = lane_count_ * b_.element_bytes, row = size_[kColumns] * column;
  const std::int64_t lane_stride = b_.is_lanes() ? b_.target.channel : b_.element_bytes;
  const StridedBlock block = {{1, size_[kRows], size_[kColumns], lane_count_},
                              {0, b_.target.axis[kRows], b_.target.axis[kColumns], lane_stride},
                              {0, row, column, b_.element_bytes}};
  for (std::int64_t p = 0; p < plane_count_; ++p) {
    char* const target = b_.target_view.data + targets[p] + target_origin(depth);
    const char* const image = at<char>(g_.image) + p * image_plane_bytes();
    if (b_.stream) {
      streamed_bytes_ = 0;
      stream_rows(target, image, 0, size_[kRows]);
    } else if (!b_.is_lanes() && b_.target.axis[kColumns] == 2 * b_.element_bytes) {
      for (std::int64_t r = 0; r < size_[kRows]; ++r) {
        conversions_.put_every_second(target + r * b_.target.axis[kRows], image + r * row,
                                      size_[kColumns], static_cast<std::size_t>(b_.element_bytes));
      }
    } else {
      strided_copy(target, image, block, static_cast<int>(b_.element_bytes), true);
    }
  }
}

// Rows leave as soon as they are done: computing goes on while they are written. In larger portions
// the one would wait for the other (k3s2, float16, beyond the caches: 1.3 times as long).
void TileWorker::stream_step(const Step& step, std::int64_t depth) {
  const Run* const runs = at<Run>(g_.runs[kRows]);
  const Run& last = runs[step.first_run + step.runs - 1];
  for (std::int64_t p = step.first_plane; p < step.first_plane + step.planes; ++p) {
    char* const target =
        b_.target_view.data + at<std::int64_t>(g_.plane_targets)[p] + target_origin(depth);
    const char* const image = at<char>(g_.image) + p * image_plane_bytes();
    if (step.first_run == 0) streamed_bytes_ = 0;
    stream_rows(target, image, runs[step.first_run].target, last.target + last.repeat);
  }
}

// Rows that follow each other leave in whole cache lines: what is left of the last one goes with
// the next rows, or with the end of the plane.
void TileWorker::stream_rows(char* target, const char* image, std::int64_t begin,
                             std::int64_t end) {
  const std::int64_t row = size_[kColumns] * lane_count_ * b_.element_bytes;
  if (!has_stride(size_[kRows], b_.target.axis[kRows], row)) {
    for (std::int64_t r = begin; r < end; ++r) {
      conversions_.stream(target + r * b_.target.axis[kRows], image + r * row,
                          static_cast<std::size_t>(row));
    }
    return;
  }
  std::int64_t until = end * row;
  if (end < size_[kRows]) {
    const auto over = reinterpret_cast<std::uintptr_t>(target + until) % kLineBytes;
    until = std::max(streamed_bytes_, until - static_cast<std::int64_t>(over));
  }
  conversions_.stream(target + streamed_bytes_, image + streamed_bytes_,
                      static_cast<std::size_t>(until - streamed_bytes_));
  streamed_bytes_ = until;
}

struct TileJob {
  const PoolBinding& binding;
  char* workspace;
  TaskQueue tasks;
};

void work_on_tiles(void* context, int worker) {
  TileJob& job = *static_cast<TileJob*>(context);
  const PoolGeometry& geometry = job.binding.geometry;
  TileWorker tiles(job.binding, job.workspace + static_cast<std::size_t>(worker) * geometry.bytes);
  job.tasks.work(worker, [&](std::int64_t task) { tiles.run(task); });
  if (job.binding.stream) job.binding.plan.conversions->stream_fence();
}

}  // namespace

bool run_pool_tiles(const PoolPlan::Impl& plan, const TensorView& source, const TensorView& target,
                    char* workspace, int threads) noexcept {
  const PoolBinding binding = bind(plan, source, target);
  if (binding.pack && !binding.geometry.can_pack) return false;
  const std::uintptr_t misalignment = reinterpret_cast<std::uintptr_t>(workspace) % kLineBytes;
  // Waking a thread costs as much as a tile or two.
  const std::int64_t tasks = binding.geometry.tasks;
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, ceil_divide(tasks, 2)));
  TileJob job{binding, workspace + (kLineBytes - misalignment) % kLineBytes,
              TaskQueue(tasks, workers)};
  run_parallel(workers, work_on_tiles, &job);
  return true;
}

}  // namespace backops

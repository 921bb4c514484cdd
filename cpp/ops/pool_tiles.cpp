// Runs a pooling plan tile by tile: sum along depth, sum along rows, spread along columns.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/strided_copy.h"
#include "base/threads.h"
#include "ops/pool_plan.h"

namespace backops {
namespace {

// Results this large do not stay in any cache: writing past them spares reading them first.
constexpr std::int64_t kStreamBytes = std::int64_t{48} << 20;
// Shorter pieces are not worth their unaligned ends.
constexpr std::int64_t kShortestStream = 1024;

// A plan's geometry bound to two tensors.
struct Binding {
  const PoolPlan::Impl& plan;
  const PoolGeometry& geometry;
  const TensorView& grad_output;
  const TensorView& grad_input;
  PoolStrides source, target;
  std::int64_t element_bytes;
  bool pack;    // grad_output goes through a dense copy
  bool direct;  // passes write to grad_input; otherwise to an image that is copied
  bool stream;  // the image is copied past the caches
  char* workspace;
  std::atomic<std::int64_t> next_task{0};

  bool is_lanes() const { return geometry.inner == Inner::lanes; }
};

// A size of 1 has no stride that could matter.
bool has_stride(std::int64_t size, std::int64_t stride, std::int64_t expected) {
  return size == 1 || stride == expected;
}

// Whether grad_input's folded axes lie one after the other.
bool is_foldable(const PoolPlan::Impl& plan, const PoolStrides& target) {
  std::int64_t expected = static_cast<std::int64_t>(plan.element_bytes());
  for (int axis = kColumns; axis > kColumns - plan.folded_axes; --axis) {
    const std::int64_t size = plan.by_rows->axes[axis].in();
    if (!has_stride(size, target.axis[axis], expected)) return false;
    expected *= size;
  }
  return true;
}

const PoolGeometry& choose_geometry(const PoolPlan::Impl& plan, const PoolStrides& target) {
  const std::int64_t element_bytes = static_cast<std::int64_t>(plan.element_bytes());
  if (plan.folded && is_foldable(plan, target)) return *plan.folded;
  const bool rows_contiguous =
      has_stride(plan.by_rows->axes[kColumns].in(), target.axis[kColumns], element_bytes);
  if (!rows_contiguous && plan.by_lanes && target.channel == element_bytes) return *plan.by_lanes;
  return *plan.by_rows;
}

bool needs_packing(const PoolPlan::Impl& plan, const PoolGeometry& g, const PoolStrides& source) {
  if (plan.problem.rounding != Rounding::none) return true;
  const std::int64_t element_bytes = static_cast<std::int64_t>(plan.element_bytes());
  const std::int64_t columns = g.axes[kColumns].out();
  if (g.inner != Inner::lanes) return !has_stride(columns, source.axis[kColumns], element_bytes);
  return source.channel != element_bytes || g.tile_lanes != g.lanes ||
         !has_stride(columns, source.axis[kColumns], element_bytes * g.lanes);
}

// Whether a tile's rows of grad_input are contiguous pieces long enough to stream.
bool can_stream(const PoolGeometry& g, const PoolStrides& target, std::int64_t element_bytes) {
  const bool lanes = g.inner == Inner::lanes;
  const std::int64_t column_bytes = element_bytes * g.lanes;
  if (lanes && (g.tile_lanes != g.lanes || target.channel != element_bytes)) return false;
  if (!has_stride(g.axes[kColumns].in(), target.axis[kColumns], column_bytes)) return false;
  const std::int64_t row_bytes = g.tile[kColumns] * column_bytes;
  const bool rows_join = g.tile[kColumns] == g.axes[kColumns].in() &&
                         has_stride(g.axes[kRows].in(), target.axis[kRows], row_bytes);
  return (rows_join ? row_bytes * g.tile[kRows] : row_bytes) >= kShortestStream;
}

// Everything one thread does. `scratch` is its part of the workspace.
class TileWorker {
 public:
  TileWorker(const Binding& binding, char* scratch)
      : b_(binding),
        g_(binding.geometry),
        kernels_(*binding.plan.kernels),
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
  void round(std::int64_t elements) const;
  void sum_depth();
  void sum_rows(std::int64_t depth_run);
  void join_rows(CombineArgs& args, const Run& whole) const;
  void zero_margins();
  void write_columns(char* target, const std::int64_t* plane_targets, std::int64_t row_pitch);
  void write_lanes(char* target, const std::int64_t* plane_targets, std::int64_t row_pitch,
                   std::int64_t column_pitch);
  void write_plane(const Run& depth_run);
  void repeat_plane(const Run& depth_run);
  void copy_image(std::int64_t depth);
  void stream_image(char* target, const char* image) const;
  CombineArgs combine_args(int axis) const;

  // The first pass applies what all windows have in common.
  double scale_of(int axis) const {
    return axis == (g_.sums_depth ? kDepth : kRows) ? b_.plan.scale : 1.0;
  }

  std::int64_t target_origin(std::int64_t depth) const {
    return (begin_[kDepth] + depth) * b_.target.axis[kDepth] +
           begin_[kRows] * b_.target.axis[kRows] + begin_[kColumns] * b_.target.axis[kColumns];
  }
  std::int64_t image_plane_bytes() const {
    return size_[kRows] * size_[kColumns] * lane_count_ * b_.element_bytes;
  }

  const Binding& b_;
  const PoolGeometry& g_;
  const PoolKernels& kernels_;
  char* const scratch_;
  const std::int64_t sum_bytes_;

  // The tile at hand: where it begins, how large it is, and the outputs it needs.
  std::int64_t plane_begin_, plane_count_, lane_begin_, lane_count_;
  std::int64_t tile_[kAxes] = {-1, -1, -1};
  std::int64_t begin_[kAxes], size_[kAxes], source_begin_[kAxes], source_size_[kAxes];
  std::int64_t run_count_[kAxes];

  // Where the row pass reads: planes at at(plane_sources), dense rows of row_elements_.
  const char* source_;
  std::int64_t depth_pitch_, row_pitch_, row_elements_;

  std::int64_t sum_pitch_ = 0;            // bytes from one row of sums to the next
  std::int64_t margins_ready_for_ = -1;   // column tile whose margins are zero already
};

void TileWorker::run(std::int64_t task) {
  locate(task);
  locate_planes();
  if (b_.pack) pack();
  if (g_.sums_depth) sum_depth();
  const Run* const runs = at<Run>(g_.runs[kDepth]);
  for (std::int64_t r = 0; r < run_count_[kDepth]; ++r) {
    sum_rows(g_.sums_depth ? r : runs[r].first);
    write_plane(runs[r]);
    repeat_plane(runs[r]);
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
  const std::int64_t sums =
      g_.inner == Inner::slide ? size_[kColumns] + g_.slide_kernel() - 1 : row_elements_;
  sum_pitch_ = sums * sum_bytes_;
  zero_margins();
}

// What depends on the place along one axis only; most axes have one tile, and are entered once.
void TileWorker::enter(int axis, std::int64_t tile) {
  const AxisWindows& windows = g_.axes[axis];
  tile_[axis] = tile;
  begin_[axis] = tile * g_.tile[axis];
  size_[axis] = std::min(g_.tile[axis], windows.in() - begin_[axis]);
  source_begin_[axis] = windows.cover(begin_[axis]).first;
  source_size_[axis] = windows.cover(begin_[axis] + size_[axis] - 1).last - source_begin_[axis];
  if (axis != kColumns || b_.is_lanes()) make_runs(axis);
  if (b_.plan.weighted[axis]) make_weights(axis);
}

// Neighbours with the same cover become one run.
void TileWorker::make_runs(int axis) {
  Run* const runs = at<Run>(g_.runs[axis]);
  std::int64_t count = 0;
  AxisWindows::Covers covers(g_.axes[axis], begin_[axis]);
  Cover previous{-1, -1};
  for (std::int64_t i = 0; i < size_[axis]; ++i, covers.next()) {
    const Cover cover = covers.get();
    if (cover == previous) {
      ++runs[count - 1].repeat;
      continue;
    }
    runs[count++] = {cover.first - source_begin_[axis], cover.last - cover.first, i, 1};
    previous = cover;
  }
  run_count_[axis] = count;
}

void TileWorker::make_weights(int axis) {
  const std::int64_t begin = source_begin_[axis], end = begin + source_size_[axis];
  const double scale = scale_of(axis);
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
  for (std::int64_t p = 0; p < plane_count_; ++p) {
    sources[p] = batch * b_.source.batch + channel * b_.source.channel;
    targets[p] = batch * b_.target.batch + channel * b_.target.channel;
    if (++channel == channels) {
      channel = 0;
      ++batch;
    }
  }
  source_ = b_.grad_output.data;
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
  round(plane_count_ * plane / b_.element_bytes);
}

void TileWorker::round(std::int64_t elements) const {
  float* const values = at<float>(g_.packed);
  switch (b_.plan.problem.rounding) {
    case Rounding::none: return;
    case Rounding::float16: return kernels_.round_to_float16(values, elements);
    case Rounding::hf32_11: return round_to_hf32(values, elements, 11);
    case Rounding::hf32_10: return round_to_hf32(values, elements, 10);
  }
}

CombineArgs TileWorker::combine_args(int axis) const {
  CombineArgs args{};
  args.source_offsets = at<std::int64_t>(g_.from);
  args.target_offsets = at<std::int64_t>(g_.to);
  args.runs = at<Run>(g_.runs[axis]);
  args.run_count = run_count_[axis];
  args.scale = scale_of(axis);
  args.weights = b_.plan.weighted[axis] ? at<void>(g_.weights[axis]) : nullptr;
  args.block = g_.axes[axis].longest_cover();
  args.first_row = source_begin_[axis];
  args.axis_rows = g_.axes[axis].out();
  args.scratch = at<void>(g_.partial);
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
  args.compact = true;
  // Rows that follow each other are one long row; partial sums of long runs want short ones.
  const bool rows_join = row_pitch_ == row_elements_ * b_.element_bytes &&
                         args.block <= kLongestDirectRun;
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

// Stride 1 reads beyond both ends of the outputs, where zeros must be. No pass writes there, so
// they last until another column tile comes.
void TileWorker::zero_margins() {
  if (g_.inner != Inner::slide || margins_ready_for_ == tile_[kColumns]) return;
  margins_ready_for_ = tile_[kColumns];
  const std::int64_t rows = g_.tile_planes * g_.tile[kRows];
  std::memset(at<char>(g_.row_sums), 0, static_cast<std::size_t>(rows * sum_pitch_));
}

// One run per row of sums, in order; `depth_run` counts depth_pitch_ steps.
void TileWorker::sum_rows(std::int64_t depth_run) {
  std::int64_t* const to = at<std::int64_t>(g_.to);
  CombineArgs args = combine_args(kRows);
  args.source = source_ + depth_run * depth_pitch_;
  args.source_offsets = at<std::int64_t>(g_.plane_sources);
  args.source_pitch_bytes = row_pitch_;
  args.target = at<char>(g_.row_sums);
  args.target_pitch_bytes = sum_pitch_;
  args.compact = true;
  args.planes = plane_count_;
  args.columns = row_elements_;
  if (g_.inner == Inner::slide) {
    const std::int64_t margin =
        source_begin_[kColumns] - (begin_[kColumns] - g_.axes[kColumns].slide_lead());
    args.target += margin * sum_bytes_;
  }
  if (b_.plan.weighted[kColumns] && !b_.is_lanes()) {
    args.column_weights = at<void>(g_.weights[kColumns]);
  }
  const Run whole{0, 1, 0, 1};
  join_rows(args, whole);
  for (std::int64_t p = 0; p < args.planes; ++p) to[p] = p * run_count_[kRows] * sum_pitch_;
  (g_.sums_depth ? kernels_.combine_sums : kernels_.combine_source)(args);
}

// Where each row is used once and unchanged but for a factor, rows and planes that follow each
// other are one long row.
void TileWorker::join_rows(CombineArgs& args, const Run& whole) const {
  const std::int64_t element_bytes = g_.sums_depth ? sum_bytes_ : b_.element_bytes;
  const bool rows_follow = run_count_[kRows] == 1 || row_pitch_ == row_elements_ * element_bytes;
  if (!g_.axes[kRows].covers_every_index_once() || !rows_follow ||
      sum_pitch_ != row_elements_ * sum_bytes_ || args.weights || args.column_weights) {
    return;
  }
  args.runs = &whole;
  args.columns *= run_count_[kRows];
  args.run_count = 1;
  const std::int64_t plane_bytes = args.columns * element_bytes;
  for (std::int64_t p = 1; p < plane_count_; ++p) {
    if (args.source_offsets[p] - args.source_offsets[p - 1] != plane_bytes) return;
  }
  args.columns *= plane_count_;
  args.planes = 1;
}

void TileWorker::write_plane(const Run& depth_run) {
  if (b_.direct) {
    char* const target = b_.grad_input.data + target_origin(depth_run.target) +
                         (b_.is_lanes() ? lane_begin_ * b_.target.channel : 0);
    const std::int64_t* const planes = at<std::int64_t>(g_.plane_targets);
    if (b_.is_lanes()) {
      return write_lanes(target, planes, b_.target.axis[kRows], b_.target.axis[kColumns]);
    }
    return write_columns(target, planes, b_.target.axis[kRows]);
  }
  char* const image = at<char>(g_.image);
  const std::int64_t column = lane_count_ * b_.element_bytes, row = size_[kColumns] * column;
  std::int64_t* const planes = at<std::int64_t>(g_.plane_images);
  for (std::int64_t p = 0; p < plane_count_; ++p) planes[p] = p * image_plane_bytes();
  if (b_.is_lanes()) return write_lanes(image, planes, row, column);
  write_columns(image, planes, row);
}

void TileWorker::write_columns(char* target, const std::int64_t* plane_targets,
                               std::int64_t row_pitch) {
  SpreadArgs args{};
  args.planes = plane_count_;
  args.target_offsets = plane_targets;
  args.source = at<char>(g_.row_sums);
  args.target = target;
  args.source_pitch_bytes = sum_pitch_;
  args.target_pitch_bytes = row_pitch;
  args.runs = at<Run>(g_.runs[kRows]);
  args.run_count = run_count_[kRows];
  args.columns = size_[kColumns];
  args.source_columns = sum_pitch_ / sum_bytes_;
  args.levels = g_.levels;
  args.scratch = at<void>(g_.partial);
  switch (g_.inner) {
    case Inner::fill: return kernels_.fill(args);
    case Inner::slide: args.kernel = g_.slide_kernel(); return kernels_.slide(args);
    default: break;
  }
  const SpreadTable table = b_.plan.tables.table(tile_[kColumns]);
  args.table = &table;
  kernels_.spread(args);
}

// Sums along columns, then copies rows that repeat.
void TileWorker::write_lanes(char* target, const std::int64_t* plane_targets,
                             std::int64_t row_pitch, std::int64_t column_pitch) {
  const Run* const row_runs = at<Run>(g_.runs[kRows]);
  std::int64_t* const from = at<std::int64_t>(g_.from);
  std::int64_t* const to = at<std::int64_t>(g_.to);
  CombineArgs args = combine_args(kColumns);
  args.source_pitch_bytes = lane_count_ * sum_bytes_;
  args.target_pitch_bytes = column_pitch;
  args.planes = run_count_[kRows];
  args.columns = lane_count_;
  const StridedBlock row_block = {{1, 1, size_[kColumns], lane_count_},
                                  {0, 0, column_pitch, b_.element_bytes},
                                  {0, 0, column_pitch, b_.element_bytes}};
  for (std::int64_t r = 0; r < args.planes; ++r) {
    from[r] = r * sum_pitch_;
    to[r] = row_runs[r].target * row_pitch;
  }
  for (std::int64_t p = 0; p < plane_count_; ++p) {
    args.source = at<char>(g_.row_sums) + p * run_count_[kRows] * sum_pitch_;
    args.target = target + plane_targets[p];
    kernels_.combine_target(args);
    for (std::int64_t r = 0; r < run_count_[kRows]; ++r) {
      char* const first = args.target + to[r];
      for (std::int64_t q = 1; q < row_runs[r].repeat; ++q) {
        strided_copy(first + q * row_pitch, first, row_block,
                     static_cast<int>(b_.element_bytes), true);
      }
    }
  }
}

// Depths with the same cover are copies of the first.
void TileWorker::repeat_plane(const Run& depth_run) {
  if (!b_.direct) {
    for (std::int64_t q = 0; q < depth_run.repeat; ++q) copy_image(depth_run.target + q);
    return;
  }
  if (depth_run.repeat == 1) return;
  const std::int64_t* const targets = at<std::int64_t>(g_.plane_targets);
  const std::int64_t lane_stride = b_.is_lanes() ? b_.target.channel : b_.element_bytes;
  const StridedBlock block = {
      {1, size_[kRows], size_[kColumns], lane_count_},
      {0, b_.target.axis[kRows], b_.target.axis[kColumns], lane_stride},
      {0, b_.target.axis[kRows], b_.target.axis[kColumns], lane_stride}};
  for (std::int64_t p = 0; p < plane_count_; ++p) {
    char* const first = b_.grad_input.data + targets[p] + target_origin(depth_run.target) +
                        (b_.is_lanes() ? lane_begin_ * b_.target.channel : 0);
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
  const StridedBlock block = {
      {1, size_[kRows], size_[kColumns], lane_count_},
      {0, b_.target.axis[kRows], b_.target.axis[kColumns], lane_stride},
      {0, row, column, b_.element_bytes}};
  for (std::int64_t p = 0; p < plane_count_; ++p) {
    char* const target = b_.grad_input.data + targets[p] + target_origin(depth) +
                         (b_.is_lanes() ? lane_begin_ * b_.target.channel : 0);
    const char* const image = at<char>(g_.image) + p * image_plane_bytes();
    if (b_.stream) {
      stream_image(target, image);
    } else {
      strided_copy(target, image, block, static_cast<int>(b_.element_bytes), true);
    }
  }
}

void TileWorker::stream_image(char* target, const char* image) const {
  const std::int64_t row = size_[kColumns] * lane_count_ * b_.element_bytes;
  if (has_stride(size_[kRows], b_.target.axis[kRows], row)) {
    kernels_.stream(target, image, static_cast<std::size_t>(row * size_[kRows]));
    return;
  }
  for (std::int64_t r = 0; r < size_[kRows]; ++r) {
    kernels_.stream(target + r * b_.target.axis[kRows], image + r * row,
                    static_cast<std::size_t>(row));
  }
}

void work_on_tiles(void* context, int worker) {
  Binding& binding = *static_cast<Binding*>(context);
  TileWorker tiles(binding, binding.workspace +
                                static_cast<std::size_t>(worker) * binding.geometry.bytes);
  for (;;) {
    const std::int64_t task = binding.next_task.fetch_add(1, std::memory_order_relaxed);
    if (task >= binding.geometry.tasks) break;
    tiles.run(task);
  }
  if (binding.stream) binding.plan.kernels->stream_fence();
}

}  // namespace

void run_pool_tiles(const PoolPlan::Impl& plan, const TensorView& grad_output,
                    const TensorView& grad_input, char* workspace, int threads) noexcept {
  const PoolStrides source = strides_of(plan, grad_output), target = strides_of(plan, grad_input);
  const PoolGeometry& geometry = choose_geometry(plan, target);
  const std::int64_t element_bytes = static_cast<std::int64_t>(plan.element_bytes());
  const bool lanes = geometry.inner == Inner::lanes;
  const std::int64_t inner_stride = lanes ? target.channel : target.axis[kColumns];
  const std::int64_t inner_size = lanes ? geometry.lanes : geometry.axes[kColumns].in();
  const bool stream = dense_bytes(plan.problem.input_shape, plan.problem.ndim,
                                  plan.problem.dtype) >= kStreamBytes &&
                      can_stream(geometry, target, element_bytes);
  const bool direct = !stream && has_stride(inner_size, inner_stride, element_bytes);
  const std::uintptr_t misalignment = reinterpret_cast<std::uintptr_t>(workspace) % 64;
  Binding binding{plan,
                  geometry,
                  grad_output,
                  grad_input,
                  source,
                  target,
                  element_bytes,
                  needs_packing(plan, geometry, source),
                  direct,
                  stream,
                  workspace + (64 - misalignment) % 64};
  // Waking a thread costs as much as a tile or two.
  const std::int64_t useful = (geometry.tasks + 1) / 2;
  run_parallel(static_cast<int>(std::min<std::int64_t>(threads, useful)), work_on_tiles, &binding);
}

}  // namespace backops

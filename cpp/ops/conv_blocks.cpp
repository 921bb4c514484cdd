// Gradients of convolutions whose channels, or windows, fill vectors. Tiles of the tensors are
// brought into scratch memory in blocks, (blocks of channels, positions, channels of a block), a
// block being one vector wide; both gradients are matrix products there, of which strides and
// dilations only change the offsets.
#include <algorithm>
#include <vector>

#include "kernels/pool/pool.h"
#include "ops/block_copy.h"
#include "ops/block_input.h"
#include "ops/block_order.h"
#include "ops/block_sizes.h"
#include "ops/block_tiles.h"
#include "ops/block_weight.h"
#include "ops/block_windows.h"
#include "ops/conv_engine.h"

namespace backops {
namespace {

constexpr double kTileBytes = 768 << 10;   // in the second-level cache
constexpr double kMostPartBytes = 2e6;     // sums of weight gradients, all parts together
constexpr double kMostSumBytes = 64e6;     // the same, where outputs are too few to be cut
constexpr double kRangeBytes = 640 << 10;  // of sums, where they are cut: in the second-level cache
constexpr double kMostSharedBytes = 16e6;  // of a tensor that is brought once for all tasks
constexpr std::int64_t kMostTaps = 1024;
constexpr double kMostWeights = 1e12;  // far from what 64 bits count
constexpr std::int64_t kMostStride = 16;
constexpr int kPair = BlockSizes::kPair;

// What is made of tiles, and their places in a worker's scratch memory, counted in sums.
template <class Sum>
struct TileLayout {
  BlockTiles tiles;
  bool does_weight, does_bias;
  std::int64_t grad_pitch = 0, input_pitch = 0, result_pitch = 0;  // of blocks
  std::int64_t input_at = 0, result_at = 0;
  // A task's own weights: sums of its outputs, or packed ones of its inputs.
  std::int64_t weights_at = 0;
  std::int64_t windows = 0;  // of a row; see BlockWindows
  std::int64_t folded_at = 0, spare_at = 0;
  std::int64_t sums = 0;
  // Tiles of the input, or of grad_output if that is all there is to bring, in the engine's memory.
  bool is_shared = false;
  std::int64_t shared_at = 0, shared_blocks = 0, shared_pitch = 0;
  bool brings_input() const { return does_weight && !is_shared; }
  bool brings_grad() const { return does_weight || !is_shared; }
  std::unique_ptr<const BlockInput<Sum>> input_gradient = nullptr;  // if there is one to be made
};

template <class Sum>
class BlocksEngine : public ConvEngine {
 public:
  BlocksEngine(const ConvShape& shape, std::unique_ptr<const BlockWindows> windows,
               const ConvCuts& cuts, Rounding rounding, const ConvKernels& kernels,
               const ConvKernels& sum_kernels, const PoolKernels& roundings)
      : s_(windows ? windows->problem() : shape),
        windows_(std::move(windows)),
        kernels_(kernels),
        sum_kernels_(sum_kernels),
        copy_(kernels, rounding, roundings),
        n_(s_, kernels.lanes),
        order_(n_, sum_kernels, windows_.get()),
        weight_gradient_(s_, n_, kernels, windows_.get()),
        is_pointwise_(!windows_ && is_pointwise(s_)) {
    schedule(cuts);
  }

  bool is_usable() const { return is_usable_; }

  std::string name() const override {
    std::string name = std::string("blocks:") + name_of(kernels_.isa);
    if (windows_) name += ":windows";
    if (cut_ == Cut::outputs) name += ":by_outputs";
    if (cut_ == Cut::outputs_and_inputs) name += ":by_outputs_and_inputs";
    return name;
  }
  Activations activations() const override { return Activations::tensors; }

  std::size_t engine_bytes() const override {
    const std::int64_t own = packed_sums() + parts_ * part_sums();
    return static_cast<std::size_t>(own + shared_sums_) * sizeof(Sum);
  }
  std::size_t worker_bytes() const override {
    return lists_at() + std::max(weight_gradient_.list_bytes(), BlockInput<Sum>::list_bytes(n_));
  }

  // Put the weights in order and bring what tasks share; the gradients of the parts; add the parts.
  int phases() const override { return 3; }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) return pack_tasks() + static_cast<std::int64_t>(shared_.size());
    if (phase == 1) return static_cast<std::int64_t>(tasks_.size());
    return has_parts() || s_.wants_bias ? n_.all_output_pairs() : 0;
  }

  bool work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 0 && task >= pack_tasks()) {
      bring_shared(b, shared_[static_cast<std::size_t>(task - pack_tasks())]);
    } else if (phase == 0) {
      const std::int64_t pair = task / n_.output_blocks;
      const bool finite = order_.pack(b.weight, pair, task % n_.output_blocks,
                                      packed_weights(b) + n_.packed_pair(pair));
      finite_flags(b)[task] = finite ? Sum{1} : Sum{0};
    } else if (phase == 1) {
      work_tiles(b, tasks_[static_cast<std::size_t>(task)]);
    } else {
      if (has_parts()) write_weights(b, task, sums(b, 0), parts_);
      if (s_.wants_bias) write_bias(b, task);
    }
    return true;
  }

 private:
  using Layout = TileLayout<Sum>;

  // How the work is cut. Sums of weight gradients that are small are cut into parts, one for the
  // tiles of each task, which makes both gradients of them. Larger ones are cut by outputs, which
  // leaves nothing to be added, and are tasks of their own. If there are more weights than
  // grad_output, tasks of the input gradient are cut by inputs, and have their weights to
  // themselves as well; otherwise they are parts of the tiles.
  enum class Cut : std::uint8_t { parts, outputs, outputs_and_inputs };

  // Tiles and pairs of blocks: of outputs, whose weight gradients are summed, and of inputs.
  struct Task {
    const Layout* layout;
    Range tiles, output_pairs, input_pairs;
    std::int64_t part;  // whose sums are made
  };

  // A block of a tile that several tasks want.
  struct SharedBlock {
    std::size_t layout;
    std::int64_t tile, block;
  };

  std::int64_t pack_tasks() const {
    return packs_all() ? n_.all_input_pairs() * n_.output_blocks : 0;
  }
  bool has_parts() const { return s_.wants_weight && cut_ == Cut::parts; }
  bool packs_all() const { return s_.wants_input && cut_ != Cut::outputs_and_inputs; }

  // Memory of the engine: packed weights, a number for each block of them that tells whether they
  // are finite, and the sums of the parts. Unless tasks have their own.
  std::int64_t packed_sums() const {
    if (!packs_all()) return 0;
    return ceil_divide(n_.padded_weights() + pack_tasks(), n_.lanes) * n_.lanes;
  }
  std::int64_t weight_sums() const { return has_parts() ? n_.padded_weights() : 0; }
  std::int64_t part_sums() const {
    return weight_sums() + (s_.wants_bias ? n_.groups * n_.padded_outputs() : 0);
  }
  Sum* packed_weights(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.memory); }
  Sum* finite_flags(const ConvBuffers& b) const { return packed_weights(b) + n_.padded_weights(); }
  Sum* sums(const ConvBuffers& b, std::int64_t part) const {
    return packed_weights(b) + packed_sums() + part * part_sums();
  }
  Sum* bias_sums(const ConvBuffers& b, std::int64_t part) const {
    return sums(b, part) + weight_sums();
  }
  Sum* shared(const ConvBuffers& b, const Layout& layout, std::int64_t tile) const {
    return sums(b, parts_) + layout.shared_at + tile * layout.shared_blocks * layout.shared_pitch;
  }

  // Memory of a worker: the largest layout, and lists.
  std::size_t lists_at() const {
    std::int64_t most = 0;
    for (const Layout& layout : layouts_) most = std::max(most, layout.sums);
    return whole_lines(static_cast<std::size_t>(most) * sizeof(Sum));
  }
  char* lists(const ConvBuffers& b) const { return b.scratch + lists_at(); }
  static Sum* grad_scratch(const ConvBuffers& b) { return reinterpret_cast<Sum*>(b.scratch); }
  static Sum* input_scratch(const ConvBuffers& b, const Layout& layout) {
    return grad_scratch(b) + layout.input_at;
  }
  static Sum* result_scratch(const ConvBuffers& b, const Layout& layout) {
    return grad_scratch(b) + layout.result_at;
  }
  static Sum* folded_scratch(const ConvBuffers& b, const Layout& layout) {
    return grad_scratch(b) + layout.folded_at;
  }
  static Sum* spare_scratch(const ConvBuffers& b, const Layout& layout) {
    return grad_scratch(b) + layout.spare_at;
  }
  static Sum* own_weights(const ConvBuffers& b, const Layout& layout) {
    return grad_scratch(b) + layout.weights_at;
  }

  void schedule(const ConvCuts& cuts) {
    const std::int64_t wanted = cuts.parts();
    layouts_.reserve(2);
    cut_ = cut_for(wanted);
    if (cut_ == Cut::parts) {
      parts_ = tasks_per_thread(s_, wanted) * wanted;
      if (s_.wants_weight) {
        const std::int64_t most = std::max(wanted, parts_of(kMostPartBytes) / wanted * wanted);
        parts_ = std::min({parts_, most, parts_of(kMostSumBytes)});
      }
      add_layout(n_.all_output_pairs(), s_.wants_input, s_.wants_weight, parts_);
      return add_tasks(parts_, 1, 1);
    }
    const std::int64_t pairs = n_.all_output_pairs();
    const auto small = static_cast<std::int64_t>(weight_bytes() / kRangeBytes) + 1;
    const std::int64_t ranges = std::min(pairs, std::max(small, 2 * wanted));
    add_layout(ceil_divide(pairs, ranges), false, true, 1);
    add_tasks(parts_, ranges, 1);
    if (!s_.wants_input) return;
    const bool by_inputs = cut_ == Cut::outputs_and_inputs;
    std::int64_t input_parts = by_inputs ? 1 : kTasksPerThread * wanted;
    add_layout(pairs, true, false, input_parts);
    add_tasks(input_parts, 1, by_inputs ? n_.all_input_pairs() : 1);
  }

  Cut cut_for(std::int64_t wanted) const {
    const bool is_small = parts_of(kMostPartBytes) >= wanted || n_.all_output_pairs() < wanted;
    if (!s_.wants_weight || is_small) return Cut::parts;
    const bool are_many = !windows_ && n_.taps > 1 && s_.weights() > s_.batch * s_.out_image() &&
                          n_.all_input_pairs() >= wanted;
    return are_many ? Cut::outputs_and_inputs : Cut::outputs;
  }

  double weight_bytes() const {
    return static_cast<double>(n_.padded_weights()) * static_cast<double>(sizeof(Sum));
  }
  // Whose sums have so many bytes.
  std::int64_t parts_of(double bytes) const {
    return static_cast<std::int64_t>(std::max(1.0, bytes / weight_bytes()));
  }

  // Of the last layout; no more parts than it has tiles.
  void add_tasks(std::int64_t& parts, std::int64_t output_ranges, std::int64_t input_ranges) {
    if (!is_usable_) return;
    const Layout& layout = layouts_.back();
    parts = std::min(parts, layout.tiles.count());
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t i = 0; i < output_ranges * input_ranges; ++i) {
        tasks_.push_back({&layout, share_of(layout.tiles.count(), parts, part),
                          share_of(n_.all_output_pairs(), output_ranges, i / input_ranges),
                          share_of(n_.all_input_pairs(), input_ranges, i % input_ranges), part});
      }
    }
  }

  void add_layout(std::int64_t most_pairs, bool does_input, bool does_weight,
                  std::int64_t least_tiles) {
    const std::int64_t grad_blocks = std::min(most_pairs * kPair, n_.groups * n_.output_blocks);
    const std::int64_t input_blocks = does_weight ? n_.groups * n_.input_blocks : 0;
    const std::int64_t result_blocks = does_input ? kPair : 0;
    TileSums per_position{grad_blocks * n_.lanes, input_blocks * n_.lanes,
                          result_blocks * n_.lanes};
    if (windows_) {
      per_position.input = does_weight ? ceil_divide(windows_->row_sums(s_.out[2]), s_.out[2]) : 0;
      per_position.result = 0;  // row by row
    }
    const auto tiles_of = [&](const ConvShape& shape) {
      return BlockTiles(shape, does_input, per_position, kTileBytes / sizeof(Sum), least_tiles);
    };
    BlockTiles tiles = tiles_of(s_);
    if (windows_ && tiles.tile(0).outputs[2].size() < s_.out[2]) {
      tiles = tiles_of(windows_->cut_problem());
    }
    is_usable_ = is_usable_ && tiles.fit();
    if (!is_usable_) return;
    const std::int64_t row = tiles.tile(0).grad.step[1];
    // Odd numbers of lines, so that blocks do not fall into the same sets of a cache.
    const auto pitch = [this](std::int64_t places) { return (places | 1) * n_.lanes; };
    Layout layout{tiles, does_weight, s_.wants_bias && layouts_.empty()};
    layout.grad_pitch = pitch(tiles.grad_places());
    layout.input_pitch = windows_ ? n_.lanes : pitch(tiles.input_places());
    layout.result_pitch = pitch(windows_ ? row : tiles.result_places());
    if (does_weight && !has_parts()) {
      share(layout, input_blocks, layout.input_pitch);
    } else if (does_input && !packs_all()) {
      share(layout, grad_blocks, layout.grad_pitch);
    }
    layout.input_at = layout.brings_grad() ? grad_blocks * layout.grad_pitch : 0;
    layout.result_at =
        layout.input_at + (layout.brings_input() ? input_blocks * layout.input_pitch : 0);
    layout.weights_at = layout.result_at + result_blocks * layout.result_pitch;
    if (windows_) place_windows(layout, row);
    std::int64_t own_weights = 0;
    if (does_weight && !has_parts()) {
      own_weights = grad_blocks * n_.lanes * n_.padded_inputs() * n_.taps;
    } else if (does_input && !packs_all()) {
      own_weights = kPair * n_.lanes * n_.padded_outputs() * n_.taps;
    }
    layout.sums = layout.weights_at + own_weights;
    if (does_input) {
      layout.input_gradient = std::make_unique<const BlockInput<Sum>>(
          s_, n_, kernels_, layout.tiles, layout.grad_pitch, layout.result_pitch);
    }
    layouts_.push_back(std::move(layout));
  }

  // Many tasks want these blocks of every tile: brought once, if there is the memory for them.
  void share(Layout& layout, std::int64_t blocks, std::int64_t pitch) {
    const std::int64_t tiles = layout.tiles.count();
    const double bytes = static_cast<double>(tiles) * static_cast<double>(blocks * pitch) *
                         static_cast<double>(sizeof(Sum));
    if (windows_ || bytes > kMostSharedBytes) return;
    layout.is_shared = true;
    layout.shared_at = shared_sums_;
    layout.shared_blocks = blocks;
    layout.shared_pitch = pitch;
    shared_sums_ += tiles * blocks * pitch;
    for (std::int64_t i = 0; i < tiles * blocks; ++i) {
      shared_.push_back({layouts_.size(), i / blocks, i % blocks});
    }
  }

  void bring_shared(const ConvBuffers& b, const SharedBlock& own) const {
    const Layout& layout = layouts_[own.layout];
    const Tile tile = layout.tiles.tile(own.tile);
    Sum* const to = shared(b, layout, own.tile) + own.block * layout.shared_pitch;
    const std::int64_t all = layout.does_weight ? s_.channels : s_.outputs;
    const Range channels{own.block * n_.lanes, std::min((own.block + 1) * n_.lanes, all)};
    clear_spare_lanes(to, channels.size(), layout.shared_pitch);
    if (layout.does_weight) {
      copy_.bring(b.input, s_.in, tile.input, channels, to, layout.shared_pitch);
    } else {
      copy_.bring(b.grad_output, s_.out, tile.grad, channels, to, layout.shared_pitch);
    }
  }

  // Rows of numbers instead of blocks of the input.
  void place_windows(Layout& layout, std::int64_t row) {
    const auto after = [this](std::int64_t place, std::int64_t sums) {
      return place + ceil_divide(sums, n_.lanes) * n_.lanes;
    };
    const std::int64_t rows =
        layout.does_weight ? layout.tiles.input_places() / layout.tiles.tile(0).input.step[1] : 0;
    layout.windows = row;
    layout.spare_at = after(layout.input_at, rows * windows_->row_sums(row));
    layout.folded_at = after(layout.spare_at, BlockWindows::kSpareSums);
    layout.result_at = after(layout.folded_at, windows_->row_sums(row));
    layout.weights_at = layout.result_at + kPair * layout.result_pitch;
  }

  bool are_weights_finite(const ConvBuffers& b, std::int64_t pair) const {
    const Sum* const flags = finite_flags(b) + pair * n_.output_blocks;
    return std::all_of(flags, flags + n_.output_blocks, [](Sum flag) { return flag != 0; });
  }

  void work_tiles(const ConvBuffers& b, const Task& task) const {
    const Layout& layout = *task.layout;
    const Range blocks = n_.output_blocks_of(task.output_pairs);
    const Range outputs{blocks.begin * n_.lanes, std::min(blocks.end * n_.lanes, s_.outputs)};
    if (layout.brings_grad()) clear_spare_lanes(grad_scratch(b), outputs.size(), layout.grad_pitch);
    if (layout.does_bias) {
      std::fill_n(bias_sums(b, task.part) + blocks.begin * n_.lanes, blocks.size() * n_.lanes,
                  Sum{0});
    }
    const bool are_own_finite = !layout.input_gradient || packs_all() || pack_own(b, task);
    for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
      const Tile tile = layout.tiles.tile(index);
      const Sum* grad = grad_scratch(b);
      if (layout.brings_grad()) {
        copy_.bring(b.grad_output, s_.out, tile.grad, outputs, grad_scratch(b), layout.grad_pitch);
      } else {
        grad = shared(b, layout, index);
      }
      if (layout.does_bias) sum_bias(b, layout, tile, blocks, task.part);
      if (layout.does_weight) add_to_weight(b, task, tile, index);
      if (layout.input_gradient) write_input(b, task, tile, grad, are_own_finite);
    }
    if (layout.does_weight && !has_parts()) write_own(b, task);
  }

  // The weights of one pair.
  bool pack_own(const ConvBuffers& b, const Task& task) const {
    bool finite = true;
    for (std::int64_t block = 0; block < n_.output_blocks; ++block) {
      Sum* const packed = own_weights(b, *task.layout);
      finite = order_.pack(b.weight, task.input_pairs.begin, block, packed) && finite;
    }
    return finite;
  }

  void write_own(const ConvBuffers& b, const Task& task) const {
    for (std::int64_t pair = task.output_pairs.begin; pair < task.output_pairs.end; ++pair) {
      write_weights(b, pair, own_sums(b, task), 1);
    }
  }
  // As if they were those of all pairs.
  Sum* own_sums(const ConvBuffers& b, const Task& task) const {
    return own_weights(b, *task.layout) - n_.sums_of_pair(task.output_pairs.begin);
  }

  // Of the last block: channels are brought around them.
  void clear_spare_lanes(Sum* blocks, std::int64_t channels, std::int64_t pitch) const {
    if (channels % n_.lanes == 0) return;
    std::fill_n(blocks + channels / n_.lanes * pitch, pitch, Sum{0});
  }

  void sum_bias(const ConvBuffers& b, const Layout& layout, const Tile& tile, const Range& blocks,
                std::int64_t part) const {
    const Range& columns = tile.outputs[2];
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      const Sum* row = grad_scratch(b) + tile.grad.place(image, d, h, columns.begin) * n_.lanes;
      for (std::int64_t i = blocks.begin; i < blocks.end; ++i, row += layout.grad_pitch) {
        kernels_.sum({row, n_.lanes, columns.size(), bias_sums(b, part) + i * n_.lanes});
      }
    });
  }

  void add_to_weight(const ConvBuffers& b, const Task& task, const Tile& tile,
                     std::int64_t index) const {
    const Layout& layout = *task.layout;
    Sum* const input = layout.is_shared ? shared(b, layout, index) : input_scratch(b, layout);
    Tile own = is_pointwise_ ? in_one_row(tile) : tile;
    if (windows_) {
      own.input = windows_->rows_of(tile.input, layout.windows);
      windows_->bring(copy_, b.input, own.input, tile.outputs[2], input, spare_scratch(b, layout));
    } else if (!layout.is_shared) {
      copy_.bring(b.input, s_.in, tile.input, {0, s_.channels}, input, layout.input_pitch);
    }
    weight_gradient_.add_tile(
        {grad_scratch(b), layout.grad_pitch, input, layout.input_pitch, task.output_pairs,
         has_parts() ? sums(b, task.part) : own_sums(b, task), lists(b)},
        own, index == task.tiles.begin);
  }

  void write_input(const ConvBuffers& b, const Task& task, const Tile& tile, const Sum* all_grad,
                   bool are_own_finite) const {
    if (windows_) return write_windows(b, *task.layout, tile);
    const Layout& layout = *task.layout;
    const Tile positions = is_pointwise_ ? in_one_row(tile) : tile;
    Sum* const results = result_scratch(b, layout);
    for (std::int64_t pair = task.input_pairs.begin; pair < task.input_pairs.end; ++pair) {
      const std::int64_t group = pair / n_.input_pairs();
      const Sum* const grad = all_grad + group * n_.output_blocks * layout.grad_pitch;
      const Sum* const weights =
          packs_all() ? packed_weights(b) + n_.packed_pair(pair) : own_weights(b, layout);
      const bool are_finite =
          is_pointwise_ || (packs_all() ? are_weights_finite(b, pair) : are_own_finite);
      layout.input_gradient->write_tile(
          {grad, weights, n_.blocks_of_input_pair(pair), are_finite, results, lists(b)}, positions);
      const std::int64_t first = pair % n_.input_pairs() * kPair * n_.lanes;
      const Range channels{group * n_.inputs + first,
                           group * n_.inputs + std::min(first + kPair * n_.lanes, n_.inputs)};
      copy_.put(b.grad_input, s_.in, tile.results, channels, results, layout.result_pitch);
    }
  }

  // Row by row: they are still in the first-level cache when they are folded.
  void write_windows(const ConvBuffers& b, const Layout& layout, const Tile& tile) const {
    Sum* const results = result_scratch(b, layout);
    Sum* const folded = folded_scratch(b, layout);
    Tile row = tile;
    row.results.axes[2] = windows_->reaching(tile);
    const std::int64_t count = row.results.axes[2].size();
    const auto write_row = [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      row.images = row.results.images = {image, image + 1};
      row.results.axes[0] = {d, d + 1};
      row.results.axes[1] = {h, h + 1};
      std::fill_n(folded, windows_->row_sums(layout.windows), Sum{0});
      for (std::int64_t pair = 0; pair < n_.input_pairs(); ++pair) {
        const int blocks = n_.blocks_of_input_pair(pair);
        layout.input_gradient->write_tile(
            {grad_scratch(b), packed_weights(b) + n_.packed_pair(pair), blocks, true, results,
             lists(b)},
            row);
        for (int i = 0; i < blocks; ++i) {
          windows_->fold(sum_kernels_, results + i * layout.result_pitch, count, pair * kPair + i,
                         folded);
        }
      }
      windows_->put(copy_, b.grad_input, tile, {image, d, h}, folded, spare_scratch(b, layout));
    };
    for_rows(tile.images, tile.results.axes, write_row);
  }

  void write_weights(const ConvBuffers& b, std::int64_t pair, Sum* all_sums,
                     std::int64_t parts) const {
    order_.write(b.grad_weight, pair, all_sums + n_.sums_of_pair(pair), parts, part_sums());
  }

  void write_bias(const ConvBuffers& b, std::int64_t pair) const {
    const Range blocks = n_.output_blocks_of({pair, pair + 1});
    const std::int64_t end = std::min(blocks.end * n_.lanes, s_.outputs);
    for (std::int64_t o = blocks.begin * n_.lanes; o < end; ++o) {
      Sum sum = bias_sums(b, 0)[o];
      for (std::int64_t part = 1; part < parts_; ++part) sum += bias_sums(b, part)[o];
      static_cast<Sum*>(b.grad_bias)[o] = sum;
    }
  }

  const ConvShape s_;
  const std::unique_ptr<const BlockWindows> windows_;  // null if channels are many enough
  const ConvKernels& kernels_;                         // of the tensors' dtype
  const ConvKernels& sum_kernels_;                     // of the sums'
  const BlockCopy<Sum> copy_;
  const BlockSizes n_;
  const BlockOrder<Sum> order_;
  const BlockWeight<Sum> weight_gradient_;
  const bool is_pointwise_;
  std::vector<Layout> layouts_;
  std::vector<Task> tasks_;
  std::vector<SharedBlock> shared_;
  std::int64_t shared_sums_ = 0;
  bool is_usable_ = true;
  Cut cut_ = Cut::parts;
  std::int64_t parts_ = 1;
};

// The same outputs of one channel and one tap: the bias gradient knows no others.
ConvShape without_kernel(const ConvShape& problem) {
  ConvShape s = problem;
  s.channels = s.groups = 1;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    s.in[axis] = s.out[axis];
    s.kernel[axis] = s.stride[axis] = s.dilation[axis] = 1;
    s.padding[axis] = 0;
  }
  return s;
}

double padded_channels(const ConvShape& s, std::int64_t lanes) {
  return static_cast<double>(ceil_divide(s.channels / s.groups, lanes) * lanes) *
         static_cast<double>(ceil_divide(s.outputs / s.groups, lanes) * lanes);
}

// In lists of a size that is worth it, and in 64 bits.
bool can_be_counted(const ConvShape& s, std::int64_t lanes) {
  if (*std::max_element(s.stride, s.stride + kMaxConvRank) > kMostStride) return false;
  if (s.kernel_positions() > kMostTaps) return false;
  const double kernels = static_cast<double>(s.groups) * static_cast<double>(s.kernel_positions());
  return padded_channels(s, lanes) * kernels <= kMostWeights;
}

bool fits_blocks(const ConvShape& s, double most_waste, std::int64_t lanes) {
  if (!can_be_counted(s, lanes)) return false;
  if (!s.wants_input && !s.wants_weight) return true;
  const std::int64_t inputs = s.channels / s.groups, outputs = s.outputs / s.groups;
  if (inputs % lanes == 0 && outputs % lanes == 0) return true;
  // Blocks of several groups would not be neighbours in the tensors.
  return s.groups == 1 && padded_channels(s, lanes) <= most_waste * static_cast<double>(inputs) *
                                                           static_cast<double>(outputs);
}

template <class Sum>
std::unique_ptr<const ConvEngine> make_blocks(const ConvShape& shape,
                                              std::unique_ptr<const BlockWindows> windows,
                                              const ConvCuts& cuts, Rounding rounding, DType dtype,
                                              Isa isa) {
  const DType sums = shape.is_double ? DType::float64 : DType::float32;
  auto engine = std::make_unique<BlocksEngine<Sum>>(
      shape, std::move(windows), cuts, rounding, conv_kernels(isa, dtype), conv_kernels(isa, sums),
      pool_kernels(isa, dtype));
  if (!engine->is_usable()) return nullptr;
  return engine;
}

}  // namespace

std::unique_ptr<const ConvEngine> make_blocks_engine(const ConvShape& problem, double most_waste,
                                                     const ConvCuts& cuts, Rounding rounding,
                                                     DType dtype, Isa isa) {
  const bool is_bias_only = !problem.wants_input && !problem.wants_weight;
  const ConvShape shape = is_bias_only ? without_kernel(problem) : problem;
  if (!fits_blocks(shape, most_waste, conv_kernels(isa, dtype).lanes)) return nullptr;
  return shape.is_double ? make_blocks<double>(shape, nullptr, cuts, rounding, dtype, isa)
                         : make_blocks<float>(shape, nullptr, cuts, rounding, dtype, isa);
}

std::unique_ptr<const ConvEngine> make_windows_engine(const ConvShape& shape, const ConvCuts& cuts,
                                                      Rounding rounding, DType dtype, Isa isa) {
  const std::int64_t lanes = conv_kernels(isa, dtype).lanes;
  if (!BlockWindows::fits(shape, lanes)) return nullptr;
  auto windows = std::make_unique<const BlockWindows>(shape, lanes);
  if (!can_be_counted(shape, lanes) || !can_be_counted(windows->problem(), lanes)) return nullptr;
  return shape.is_double
             ? make_blocks<double>(shape, std::move(windows), cuts, rounding, dtype, isa)
             : make_blocks<float>(shape, std::move(windows), cuts, rounding, dtype, isa);
}

}  // namespace backops

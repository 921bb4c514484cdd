// Gradients of convolutions with many channels. Tiles of the tensors are brought into scratch
// memory in blocks, (blocks of channels, positions, channels of a block), a block being one vector
// wide; both gradients are matrix products there, of which strides and dilations only change the
// offsets.
//
// The input gradient reads grad_output with zeros around it. The weight gradient needs none: it
// sums over the outputs whose window has the tap inside the input.
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/pool/pool.h"
#include "ops/block_copy.h"
#include "ops/block_tiles.h"
#include "ops/conv_engine.h"

namespace backops {
namespace {

constexpr double kTileBytes = 768 << 10;        // in the second-level cache
constexpr std::int64_t kPanelBytes = 96 << 10;  // of weights, likewise
constexpr std::int64_t kPositionsAtOnce = 200;  // of grad_output, in the first-level cache
constexpr double kMostPartBytes = 2e6;          // sums of weight gradients, all parts together
constexpr double kMostSumBytes = 64e6;          // the same, where outputs are too few to be cut
constexpr double kTaskWork = 1e8;               // operations that are worth a task of their own
constexpr std::int64_t kFixedCuts = 4;          // where the bits must not depend on the threads
constexpr std::int64_t kTasksPerThread = 4;     // that even out the work
constexpr std::int64_t kMostTaps = 1024;
constexpr std::int64_t kMostStride = 16;
constexpr double kMostWaste = 1.5;  // of lanes that have no channel
constexpr int kPair = 2;            // blocks of channels that are worked on together

// A tap that reaches input positions of one class, and how many outputs back.
struct BlockTap {
  std::int64_t tap, shift[kMaxConvRank];
};

// The taps of one class along each axis, and their products for as many blocks of outputs as are
// worked on together, by the number of blocks of input channels.
struct TapClass {
  std::vector<BlockTap> taps;
  std::vector<BlockRun> runs[kPair];
};

// Tiles and their places in a worker's scratch memory, counted in sums.
struct TileLayout {
  BlockTiles tiles;
  bool does_input, does_weight, does_bias;
  std::int64_t grad_blocks;                            // that lie in scratch memory
  std::int64_t grad_pitch, input_pitch, result_pitch;  // of blocks
  std::int64_t input_at, result_at, sums;
  std::vector<TapClass> classes;
};

// Tiles and pairs of blocks of outputs, and whose sums are made of them.
struct BlockTask {
  const TileLayout* layout;
  Range tiles, pairs;
  std::int64_t part;
};

// Outputs of a row whose windows have a tap inside the input, and where that is.
struct TapColumns {
  std::int64_t output, input, count;
};

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Whether every input position belongs to one output and one tap.
bool is_pointwise(const ConvShape& s) {
  const auto is = [](const std::int64_t (&values)[kMaxConvRank], std::int64_t value) {
    return std::all_of(values, values + kMaxConvRank,
                       [value](std::int64_t own) { return own == value; });
  };
  return is(s.kernel, 1) && is(s.stride, 1) && is(s.padding, 0);
}

template <class Sum>
class BlocksEngine : public ConvEngine {
 public:
  BlocksEngine(const ConvShape& shape, const ConvCuts& cuts, Rounding rounding,
               const ConvKernels& kernels, const ConvKernels& sum_kernels,
               const PoolKernels& roundings)
      : s_(shape),
        kernels_(kernels),
        sum_kernels_(sum_kernels),
        copy_(kernels, rounding, roundings),
        lanes_(kernels.lanes),
        inputs_(s_.channels / s_.groups),
        outputs_(s_.outputs / s_.groups),
        input_blocks_(ceil_divide(inputs_, lanes_)),
        output_blocks_(ceil_divide(outputs_, lanes_)),
        taps_(s_.kernel_positions()),
        is_pointwise_(is_pointwise(s_)),
        panel_blocks_(std::clamp<std::int64_t>(
            kPanelBytes / (taps_ * lanes_ * kPair * lanes_ * bytes_of_sum()), 1, output_blocks_)) {
    for (int axis = 0; axis < kMaxConvRank; ++axis) axes_.emplace_back(s_, axis);
    schedule(cuts);
  }

  bool is_usable() const {
    return std::all_of(layouts_.begin(), layouts_.end(),
                       [](const TileLayout& layout) { return layout.tiles.fit(); });
  }

  std::string name() const override { return std::string("blocks:") + name_of(kernels_.isa); }
  Activations activations() const override { return Activations::tensors; }

  std::size_t engine_bytes() const override {
    return static_cast<std::size_t>(packed_sums() + parts_ * part_sums()) * sizeof(Sum);
  }
  std::size_t worker_bytes() const override {
    return runs_at() + static_cast<std::size_t>(scratch_runs()) * sizeof(BlockRun) +
           static_cast<std::size_t>(kernel_rows()) * sizeof(std::int64_t) +
           static_cast<std::size_t>(s_.kernel[2]) * sizeof(TapColumns);
  }

  // Put the weights in order; the gradients of the parts; add the parts.
  int phases() const override { return 3; }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) return s_.wants_input ? s_.groups * input_pairs() * output_blocks_ : 0;
    if (phase == 1) return static_cast<std::int64_t>(tasks_.size());
    return s_.wants_weight || s_.wants_bias ? pairs() : 0;
  }

  bool work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 0) {
      pack_weights(b, task);
    } else if (phase == 1) {
      work_tiles(b, tasks_[static_cast<std::size_t>(task)]);
    } else {
      if (s_.wants_weight) write_weights(b, task);
      if (s_.wants_bias) write_bias(b, task);
    }
    return true;
  }

 private:
  static constexpr std::int64_t bytes_of_sum() { return sizeof(Sum); }

  // Blocks that are left over have no partner.
  std::int64_t input_pairs() const { return ceil_divide(input_blocks_, kPair); }
  std::int64_t output_pairs() const { return ceil_divide(output_blocks_, kPair); }
  std::int64_t pairs() const { return s_.groups * output_pairs(); }
  static int vectors_of(std::int64_t pair, std::int64_t blocks) {
    return static_cast<int>(std::min<std::int64_t>(kPair, blocks - pair * kPair));
  }
  // The first of a pair of output blocks, among those of all groups.
  std::int64_t first_block(std::int64_t pair) const {
    return pair / output_pairs() * output_blocks_ + pair % output_pairs() * kPair;
  }
  Range blocks_of(const Range& pairs) const {
    return {first_block(pairs.begin), first_block(pairs.end)};
  }

  std::int64_t kernel_rows() const { return s_.kernel[0] * s_.kernel[1]; }
  std::int64_t rows_at_once() const {
    return std::max<std::int64_t>(1, kPositionsAtOnce / s_.out[2]);
  }

  // Memory of the engine: packed weights, a number for each pack_weights task that tells whether
  // they are finite, and the sums of the parts.
  std::int64_t packed_sums() const {
    if (!s_.wants_input) return 0;
    return ceil_divide(padded_weights() + tasks(0), lanes_) * lanes_;
  }
  std::int64_t padded_inputs() const { return input_blocks_ * lanes_; }
  std::int64_t padded_outputs() const { return output_blocks_ * lanes_; }
  std::int64_t padded_weights() const {
    return s_.groups * padded_inputs() * padded_outputs() * taps_;
  }
  std::int64_t weight_sums() const { return s_.wants_weight ? padded_weights() : 0; }
  std::int64_t part_sums() const {
    return weight_sums() + (s_.wants_bias ? s_.groups * padded_outputs() : 0);
  }
  Sum* packed_weights(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.memory); }
  Sum* sums(const ConvBuffers& b, std::int64_t part) const {
    return packed_weights(b) + packed_sums() + part * part_sums();
  }
  Sum* bias_sums(const ConvBuffers& b, std::int64_t part) const {
    return sums(b, part) + weight_sums();
  }
  // Of a pair of blocks of inputs: (output blocks, taps, outputs, inputs of the pair).
  std::int64_t packed_pair(std::int64_t group, std::int64_t pair) const {
    return (group * padded_inputs() + pair * kPair * lanes_) * padded_outputs() * taps_;
  }
  // Of a pair of blocks of outputs: (inputs, taps, outputs of the pair).
  std::int64_t sums_of_pair(std::int64_t pair) const {
    return first_block(pair) * lanes_ * padded_inputs() * taps_;
  }

  // Memory of a worker: the largest layout, lists of runs, and how long they are.
  std::size_t runs_at() const {
    std::int64_t most = 0;
    for (const TileLayout& layout : layouts_) most = std::max(most, layout.sums);
    return whole_lines(static_cast<std::size_t>(most) * sizeof(Sum));
  }
  std::int64_t scratch_runs() const {
    return std::max(kernel_rows() * rows_at_once(), panel_blocks_ * taps_);
  }
  BlockRun* scratch_run(const ConvBuffers& b) const {
    return reinterpret_cast<BlockRun*>(b.scratch + runs_at());
  }
  std::int64_t* run_counts(const ConvBuffers& b) const {
    return reinterpret_cast<std::int64_t*>(scratch_run(b) + scratch_runs());
  }
  TapColumns* tap_columns(const ConvBuffers& b) const {
    return reinterpret_cast<TapColumns*>(run_counts(b) + kernel_rows());
  }
  Sum* grad_scratch(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.scratch); }
  Sum* input_scratch(const ConvBuffers& b, const TileLayout& layout) const {
    return grad_scratch(b) + layout.input_at;
  }
  Sum* result_scratch(const ConvBuffers& b, const TileLayout& layout) const {
    return grad_scratch(b) + layout.result_at;
  }

  // Where the sums of all parts together stay small, a part of the tiles is a task, and makes both
  // gradients. Weight gradients that are larger are cut by outputs, which leaves nothing to be
  // added, and are tasks of their own.
  void schedule(const ConvCuts& cuts) {
    const std::int64_t wanted = cuts.deterministic ? kFixedCuts : cuts.threads;
    const double bytes = std::max(1.0, static_cast<double>(part_sums()) * sizeof(Sum));
    const auto most_parts = static_cast<std::int64_t>(std::max(1.0, kMostPartBytes / bytes));
    layouts_.reserve(2);
    if (!s_.wants_weight || most_parts >= wanted || pairs() == 1) {
      const std::int64_t rounds =
          std::min(rounds_of(wanted), std::max<std::int64_t>(1, most_parts / wanted));
      const auto most = static_cast<std::int64_t>(std::max(1.0, kMostSumBytes / bytes));
      parts_ = std::min(rounds * wanted, most);
      add_layout(pairs(), s_.wants_input, s_.wants_weight, parts_);
      add_tasks(layouts_[0], parts_, 1);
      return;
    }
    const std::int64_t ranges = std::min(pairs(), 2 * ceil_divide(wanted, most_parts));
    parts_ = most_parts;
    add_layout(ceil_divide(pairs(), ranges), false, true, parts_);
    add_tasks(layouts_[0], parts_, ranges);
    if (!s_.wants_input) return;
    std::int64_t tile_tasks = kTasksPerThread * wanted;
    add_layout(pairs(), true, false, tile_tasks);
    add_tasks(layouts_[1], tile_tasks, 1);
  }

  // Tasks that a thread should have to itself.
  std::int64_t rounds_of(std::int64_t threads) const {
    const double products = 2.0 * static_cast<double>(s_.batch * s_.out_positions()) *
                            static_cast<double>(s_.weights());
    const auto rounds =
        static_cast<std::int64_t>(products / kTaskWork / static_cast<double>(threads));
    return std::clamp<std::int64_t>(rounds, 1, kTasksPerThread);
  }

  void add_tasks(const TileLayout& layout, std::int64_t& parts, std::int64_t ranges) {
    const std::int64_t tiles = layout.tiles.count();
    parts = std::min(parts, tiles);
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t range = 0; range < ranges; ++range) {
        tasks_.push_back({&layout,
                          {part * tiles / parts, (part + 1) * tiles / parts},
                          {range * pairs() / ranges, (range + 1) * pairs() / ranges},
                          part});
      }
    }
  }

  void add_layout(std::int64_t most_pairs, bool does_input, bool does_weight,
                  std::int64_t least_tiles) {
    const std::int64_t blocks = std::min(most_pairs * kPair, s_.groups * output_blocks_);
    const TileSums per_position{blocks * lanes_, does_weight ? s_.groups * padded_inputs() : 0,
                                does_input ? kPair * lanes_ : 0};
    TileLayout layout{BlockTiles(s_, per_position, kTileBytes / sizeof(Sum), least_tiles),
                      does_input,
                      does_weight,
                      s_.wants_bias && layouts_.empty(),
                      blocks,
                      0,
                      0,
                      0,
                      0,
                      0,
                      0,
                      {}};
    // Odd numbers of lines, so that blocks do not fall into the same sets of a cache.
    const auto pitch = [this](std::int64_t places) { return (places | 1) * lanes_; };
    layout.grad_pitch = pitch(layout.tiles.grad_places());
    layout.input_pitch = does_weight ? pitch(layout.tiles.input_places()) : 0;
    layout.result_pitch = does_input ? pitch(layout.tiles.result_places()) : 0;
    layout.input_at = blocks * layout.grad_pitch;
    layout.result_at = layout.input_at + s_.groups * input_blocks_ * layout.input_pitch;
    layout.sums = layout.result_at + kPair * layout.result_pitch;
    if (does_input && layout.tiles.fit()) list_classes(layout);
    layouts_.push_back(std::move(layout));
  }

  void list_classes(TileLayout& layout) const {
    const Box grad = layout.tiles.tile(0).grad;
    for (const ResidueClass& d : axes_[0].classes) {
      for (const ResidueClass& h : axes_[1].classes) {
        for (const ResidueClass& w : axes_[2].classes) {
          layout.classes.push_back(class_of(d, h, w, grad, layout.grad_pitch));
        }
      }
    }
  }

  TapClass class_of(const ResidueClass& d, const ResidueClass& h, const ResidueClass& w,
                    const Box& grad, std::int64_t grad_pitch) const {
    TapClass own;
    for (std::size_t i = 0; i < d.taps.size(); ++i) {
      for (std::size_t j = 0; j < h.taps.size(); ++j) {
        for (std::size_t k = 0; k < w.taps.size(); ++k) {
          own.taps.push_back({(d.taps[i] * s_.kernel[1] + h.taps[j]) * s_.kernel[2] + w.taps[k],
                              {d.shifts[i], h.shifts[j], w.shifts[k]}});
        }
      }
    }
    for (std::int64_t block = 0; block < panel_blocks_; ++block) {
      for (const BlockTap& tap : own.taps) {
        const std::int64_t back =
            tap.shift[0] * grad.step[0] + tap.shift[1] * grad.step[1] + tap.shift[2];
        for (std::int64_t vectors = 1; vectors <= kPair; ++vectors) {
          own.runs[vectors - 1].push_back({block * grad_pitch - back * lanes_,
                                           (block * taps_ + tap.tap) * lanes_ * vectors * lanes_});
        }
      }
    }
    return own;
  }

  void pack_weights(const ConvBuffers& b, std::int64_t task) const {
    const std::int64_t block = task % output_blocks_;
    const std::int64_t pair = task / output_blocks_ % input_pairs();
    const std::int64_t group = task / output_blocks_ / input_pairs();
    const std::int64_t width = vectors_of(pair, input_blocks_) * lanes_;
    const std::int64_t inputs = std::min(width, inputs_ - pair * kPair * lanes_);
    const std::int64_t outputs = std::min(lanes_, outputs_ - block * lanes_);
    Sum* from = static_cast<Sum*>(const_cast<void*>(b.weight)) +
                ((group * outputs_ + block * lanes_) * inputs_ + pair * kPair * lanes_) * taps_;
    Sum* to = packed_weights(b) + packed_pair(group, pair) + block * taps_ * lanes_ * width;
    if (inputs < width || outputs < lanes_) std::fill_n(to, taps_ * lanes_ * width, Sum{0});
    bool finite = true;
    for (std::int64_t o = 0; o < outputs; ++o, from += inputs_ * taps_, to += width) {
      finite = finite && all_finite(from, inputs * taps_);
      sum_kernels_.to_lanes({reinterpret_cast<char*>(from), taps_ * bytes_of_sum(), bytes_of_sum(),
                             to, lanes_ * width, lanes_, inputs, taps_});
    }
    packed_weights(b)[padded_weights() + task] = finite ? Sum{1} : Sum{0};
  }

  // Whether no exponent has all bits set, which adding one to it would carry on.
  static bool all_finite(const Sum* values, std::int64_t count) {
    using Bits = std::conditional_t<sizeof(Sum) == 8, std::uint64_t, std::uint32_t>;
    constexpr int kMantissaBits = std::numeric_limits<Sum>::digits - 1;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(Sum) - 1);
    constexpr Bits kExponent = kSign - (Bits{1} << kMantissaBits);
    Bits carried = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, values + i, sizeof bits);
      carried |= (bits & kExponent) + (Bits{1} << kMantissaBits);
    }
    return (carried & kSign) == 0;
  }

  bool are_weights_finite(const ConvBuffers& b, std::int64_t group, std::int64_t pair) const {
    const Sum* const finite =
        packed_weights(b) + padded_weights() + (group * input_pairs() + pair) * output_blocks_;
    return std::all_of(finite, finite + output_blocks_, [](Sum value) { return value != 0; });
  }

  void work_tiles(const ConvBuffers& b, const BlockTask& task) const {
    const TileLayout& layout = *task.layout;
    const Range blocks = blocks_of(task.pairs);
    const Range outputs{blocks.begin * lanes_, std::min(blocks.end * lanes_, s_.outputs)};
    clear_spare_lanes(grad_scratch(b), outputs.size(), layout.grad_pitch);
    if (layout.does_weight) {
      clear_spare_lanes(input_scratch(b, layout), s_.channels, layout.input_pitch);
    }
    if (layout.does_bias) {
      std::fill_n(bias_sums(b, task.part) + blocks.begin * lanes_, blocks.size() * lanes_, Sum{0});
    }
    for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
      const Tile tile = layout.tiles.tile(index);
      const Tile positions = is_pointwise_ ? in_one_row(tile) : tile;
      copy_.bring(b.grad_output, s_.out, tile.grad, outputs, grad_scratch(b), layout.grad_pitch);
      if (layout.does_bias) sum_bias(b, layout, tile, blocks, task.part);
      if (layout.does_weight) {
        copy_.bring(b.input, s_.in, tile.input, {0, s_.channels}, input_scratch(b, layout),
                    layout.input_pitch);
        sum_weights(b, task, positions, index != task.tiles.begin);
      }
      if (layout.does_input) sum_input(b, layout, tile, positions);
    }
  }

  // Of the last block: channels are brought around them.
  void clear_spare_lanes(Sum* blocks, std::int64_t channels, std::int64_t pitch) const {
    if (channels % lanes_ != 0) std::fill_n(blocks + channels / lanes_ * pitch, pitch, Sum{0});
  }

  void sum_bias(const ConvBuffers& b, const TileLayout& layout, const Tile& tile,
                const Range& blocks, std::int64_t part) const {
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      const Sum* row =
          grad_scratch(b) + tile.grad.place(image, d, h, tile.outputs[2].begin) * lanes_;
      for (std::int64_t i = blocks.begin; i < blocks.end; ++i, row += layout.grad_pitch) {
        kernels_.sum({row, lanes_, tile.outputs[2].size(), bias_sums(b, part) + i * lanes_});
      }
    });
  }

  // A few rows of outputs at a time, or a part of one, which stay in the first-level cache.
  void sum_weights(const ConvBuffers& b, const BlockTask& task, const Tile& tile, bool adds) const {
    const Range(&o)[kMaxConvRank] = tile.outputs;
    const std::int64_t pieces = ceil_divide(o[2].size(), kPositionsAtOnce);
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const Range columns{o[2].begin + piece * o[2].size() / pieces,
                          o[2].begin + (piece + 1) * o[2].size() / pieces};
      for (std::int64_t tap = 0; tap < s_.kernel[2]; ++tap) {
        tap_columns(b)[tap] = columns_of(columns, tap);
      }
      sum_columns(b, task, tile, adds || piece > 0);
    }
  }

  void sum_columns(const ConvBuffers& b, const BlockTask& task, const Tile& tile, bool adds) const {
    const Range(&o)[kMaxConvRank] = tile.outputs;
    const std::int64_t per_image = o[0].size() * o[1].size();
    const std::int64_t rows = tile.images.size() * per_image;
    for (std::int64_t first = 0; first < rows; first += rows_at_once()) {
      std::fill_n(run_counts(b), kernel_rows(), std::int64_t{0});
      for (std::int64_t row = first; row < std::min(first + rows_at_once(), rows); ++row) {
        add_row(b, tile, tile.images.begin + row / per_image,
                o[0].begin + row % per_image / o[1].size(), o[1].begin + row % o[1].size());
      }
      sum_rows(b, task, adds || first > 0);
    }
  }

  // To the lists of those kernel rows that meet the input there.
  void add_row(const ConvBuffers& b, const Tile& tile, std::int64_t image, std::int64_t d,
               std::int64_t h) const {
    const LaneAxis &depth = axes_[0], &height = axes_[1];
    const std::int64_t right = tile.grad.place(image, d, h, 0) * lanes_;
    for (std::int64_t row = 0; row < kernel_rows(); ++row) {
      const std::int64_t input_d =
          d * depth.stride - depth.padding + row / height.kernel * depth.dilation;
      const std::int64_t input_h =
          h * height.stride - height.padding + row % height.kernel * height.dilation;
      if (input_d < 0 || input_d >= depth.in || input_h < 0 || input_h >= height.in) continue;
      scratch_run(b)[row * rows_at_once() + run_counts(b)[row]++] = {
          tile.input.place(image, input_d, input_h, 0) * lanes_, right};
    }
  }

  void sum_rows(const ConvBuffers& b, const BlockTask& task, bool adds) const {
    const TileLayout& layout = *task.layout;
    const std::int64_t first = first_block(task.pairs.begin);
    for (std::int64_t pair = task.pairs.begin; pair < task.pairs.end; ++pair) {
      const std::int64_t group = pair / output_pairs();
      const int vectors = vectors_of(pair % output_pairs(), output_blocks_);
      const Sum* const grad = grad_scratch(b) + (first_block(pair) - first) * layout.grad_pitch;
      Sum* total = sums(b, task.part) + sums_of_pair(pair);
      for (std::int64_t block = 0; block < input_blocks_; ++block) {
        const Sum* const input =
            input_scratch(b, layout) + (group * input_blocks_ + block) * layout.input_pitch;
        for (std::int64_t tap = 0; tap < taps_; ++tap) {
          sum_tap(b, tap, grad, layout.grad_pitch, input, vectors, adds,
                  total + tap * vectors * lanes_);
        }
        total += lanes_ * taps_ * vectors * lanes_;
      }
    }
  }

  void sum_tap(const ConvBuffers& b, std::int64_t tap, const Sum* grad, std::int64_t grad_pitch,
               const Sum* input, int vectors, bool adds, Sum* total) const {
    const LaneAxis& a = axes_[2];
    const std::int64_t row = tap / a.kernel;
    const TapColumns& columns = tap_columns(b)[tap % a.kernel];
    kernels_.multiply_channels({input + columns.input * lanes_, grad + columns.output * lanes_,
                                scratch_run(b) + row * rows_at_once(),
                                columns.count == 0 ? 0 : run_counts(b)[row], columns.count,
                                a.stride * lanes_, lanes_, grad_pitch, total,
                                taps_ * vectors * lanes_, lanes_, lanes_, vectors, adds, 0, 0});
  }

  TapColumns columns_of(const Range& outputs, std::int64_t tap) const {
    if (is_pointwise_) return {outputs.begin, outputs.begin, outputs.size()};
    const LaneAxis& a = axes_[2];
    const std::int64_t shift = tap * a.dilation - a.padding;
    const std::int64_t begin =
        std::max(outputs.begin, shift < 0 ? ceil_divide(-shift, a.stride) : 0);
    const std::int64_t end =
        a.in <= shift ? 0 : std::min(outputs.end, (a.in - 1 - shift) / a.stride + 1);
    return {begin, begin * a.stride + shift, std::max<std::int64_t>(0, end - begin)};
  }

  void sum_input(const ConvBuffers& b, const TileLayout& layout, const Tile& tile,
                 const Tile& positions) const {
    for (std::int64_t group = 0; group < s_.groups; ++group) {
      for (std::int64_t pair = 0; pair < input_pairs(); ++pair) {
        const bool are_finite = is_pointwise_ || are_weights_finite(b, group, pair);
        for (std::int64_t block = 0; block < output_blocks_; block += panel_blocks_) {
          sum_images(b, layout, positions, {group, pair, block}, are_finite);
        }
        const std::int64_t first = pair * kPair * lanes_;
        const Range channels{group * inputs_ + first,
                             group * inputs_ + std::min(first + kPair * lanes_, inputs_)};
        copy_.put(b.grad_input, s_.in, tile.results, channels, result_scratch(b, layout),
                  layout.result_pitch);
      }
    }
  }

  // Kernels of one tap have no use for rows, or for images.
  static Tile in_one_row(const Tile& tile) {
    const Box& box = tile.results;
    const std::int64_t row = box.axes[2].size(), rows = box.axes[1].size() * row;
    const std::int64_t places = box.axes[0].size() * rows;
    const bool has_gaps = box.step[1] != row || (box.axes[0].size() > 1 && box.step[0] != rows) ||
                          (tile.images.size() > 1 && box.image_step != places);
    if (has_gaps) return tile;
    const Range axes[kMaxConvRank] = {{0, 1}, {0, 1}, {0, tile.images.size() * places}};
    Tile one = tile;
    one.images = {0, 1};
    std::copy(axes, axes + kMaxConvRank, one.outputs);
    for (Box* own : {&one.grad, &one.input, &one.results}) {
      own->images = one.images;
      std::copy(axes, axes + kMaxConvRank, own->axes);
    }
    return one;
  }

  // Blocks of outputs from `block` on, as many as are worked on together.
  struct Panel {
    std::int64_t group, pair, block;
  };

  // Short rows are worked on in twos, of two images.
  void sum_images(const ConvBuffers& b, const TileLayout& layout, const Tile& tile,
                  const Panel& panel, bool are_finite) const {
    const bool are_short =
        ceil_divide(tile.results.axes[2].size(), axes_[2].stride) <= kernels_.most_twins;
    for (std::int64_t image = tile.images.begin; image < tile.images.end;) {
      const bool are_twins = are_short && image + 1 < tile.images.end;
      for_rows({image, image + 1}, tile.results.axes,
               [&](std::int64_t, std::int64_t d, std::int64_t h) {
                 sum_row(b, layout, tile, panel, image, d, h, are_finite, are_twins);
               });
      image += are_twins ? 2 : 1;
    }
  }

  void sum_row(const ConvBuffers& b, const TileLayout& layout, const Tile& tile, const Panel& panel,
               std::int64_t image, std::int64_t d, std::int64_t h, bool are_finite,
               bool are_twins) const {
    const LaneAxis& a = axes_[2];
    const Range& columns = tile.results.axes[2];
    const std::int64_t outer =
        axes_[0].class_of(d) * static_cast<std::int64_t>(axes_[1].classes.size()) +
        axes_[1].class_of(h);
    const std::int64_t output_d = axes_[0].output_of(d), output_h = axes_[1].output_of(h);
    const int vectors = vectors_of(panel.pair, input_blocks_);
    const std::int64_t blocks = std::min(panel_blocks_, output_blocks_ - panel.block);
    const Sum* const grad = grad_scratch(b) +
                            (panel.group * output_blocks_ + panel.block) * layout.grad_pitch +
                            tile.grad.place(image, output_d, output_h, 0) * lanes_;
    Sum* const result = result_scratch(b, layout) + tile.results.place(image, d, h, 0) * lanes_;
    BlockProducts products{nullptr,
                           packed_weights(b) + packed_pair(panel.group, panel.pair) +
                               panel.block * taps_ * lanes_ * vectors * lanes_,
                           nullptr,
                           0,
                           lanes_,
                           1,
                           vectors * lanes_,
                           lanes_,
                           nullptr,
                           a.stride * lanes_,
                           layout.result_pitch,
                           0,
                           vectors,
                           panel.block > 0,
                           tile.grad.image_step * lanes_,
                           tile.results.image_step * lanes_};
    // Weights that are not finite must not meet the zeros around grad_output: position by
    // position, taps that have an output. Others may, but rows of zeros are not worth the time.
    const auto classes = static_cast<std::int64_t>(a.classes.size());
    const std::int64_t end =
        are_finite ? std::min(columns.begin + classes, columns.end) : columns.end;
    const bool is_inside = has_all_outputs(axes_[0], d) && has_all_outputs(axes_[1], h);
    for (std::int64_t first = columns.begin; first < end; ++first) {
      const TapClass& own =
          layout.classes[static_cast<std::size_t>(outer * classes + a.class_of(first))];
      products.left = grad + a.output_of(first) * lanes_;
      products.sums = result + first * lanes_;
      products.rows = are_finite ? ceil_divide(columns.end - first, a.stride) : 1;
      products.runs = own.runs[vectors - 1].data();
      products.run_count = blocks * static_cast<std::int64_t>(own.taps.size());
      if (!is_inside || !are_finite) {
        products.run_count = keep_runs(products, own, scratch_run(b), [&](const BlockTap& tap) {
          return is_output(0, output_d - tap.shift[0]) && is_output(1, output_h - tap.shift[1]) &&
                 (are_finite || a.has_output(first, tap.shift[2]));
        });
        products.runs = scratch_run(b);
      }
      (are_twins ? kernels_.multiply_twins : kernels_.multiply_positions)(products);
    }
  }

  bool is_output(int axis, std::int64_t index) const { return index >= 0 && index < s_.out[axis]; }
  // Whether all taps of input position `i` have an output.
  static bool has_all_outputs(const LaneAxis& a, std::int64_t i) {
    const std::vector<std::int64_t>& shifts =
        a.classes[static_cast<std::size_t>(a.class_of(i))].shifts;
    return shifts.empty() || (a.has_output(i, shifts.front()) && a.has_output(i, shifts.back()));
  }

  template <class Keeps>
  static std::int64_t keep_runs(const BlockProducts& products, const TapClass& own, BlockRun* kept,
                                const Keeps& keeps) {
    std::int64_t count = 0;
    const auto taps = static_cast<std::int64_t>(own.taps.size());
    for (std::int64_t i = 0; i < products.run_count; ++i) {
      if (keeps(own.taps[static_cast<std::size_t>(i % taps)])) kept[count++] = products.runs[i];
    }
    return count;
  }

  void write_weights(const ConvBuffers& b, std::int64_t pair) const {
    const std::int64_t width = vectors_of(pair % output_pairs(), output_blocks_) * lanes_;
    const std::int64_t outputs = std::min(width, outputs_ - pair % output_pairs() * kPair * lanes_);
    const std::int64_t block_sums = taps_ * lanes_ * width;
    for (std::int64_t block = 0; block < input_blocks_; ++block) {
      Sum* const total = sums(b, 0) + sums_of_pair(pair) + block * block_sums;
      for (std::int64_t part = 1; part < parts_; ++part) {
        const Sum* const more = sums(b, part) + sums_of_pair(pair) + block * block_sums;
        for (std::int64_t i = 0; i < block_sums; ++i) total[i] += more[i];
      }
      const std::int64_t inputs = std::min(lanes_, inputs_ - block * lanes_);
      Sum* const to = static_cast<Sum*>(b.grad_weight) +
                      (first_block(pair) * lanes_ * inputs_ + block * lanes_) * taps_;
      sum_kernels_.from_lanes({reinterpret_cast<char*>(to), inputs_ * taps_ * bytes_of_sum(),
                               bytes_of_sum(), total, width, lanes_, outputs, inputs * taps_});
    }
  }

  void write_bias(const ConvBuffers& b, std::int64_t pair) const {
    const Range blocks = blocks_of({pair, pair + 1});
    const std::int64_t end = std::min(blocks.end * lanes_, s_.outputs);
    for (std::int64_t o = blocks.begin * lanes_; o < end; ++o) {
      Sum sum = bias_sums(b, 0)[o];
      for (std::int64_t part = 1; part < parts_; ++part) sum += bias_sums(b, part)[o];
      static_cast<Sum*>(b.grad_bias)[o] = sum;
    }
  }

  const ConvShape s_;
  const ConvKernels& kernels_;      // of the tensors' dtype
  const ConvKernels& sum_kernels_;  // of the sums'
  const BlockCopy<Sum> copy_;
  const std::int64_t lanes_;
  const std::int64_t inputs_, outputs_;              // channels of one group
  const std::int64_t input_blocks_, output_blocks_;  // likewise
  const std::int64_t taps_;
  const bool is_pointwise_;
  const std::int64_t panel_blocks_;  // of outputs, whose weights are used together
  std::vector<LaneAxis> axes_;
  std::vector<TileLayout> layouts_;
  std::vector<BlockTask> tasks_;
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

bool fits_blocks(const ConvShape& s, std::int64_t lanes) {
  if (*std::max_element(s.stride, s.stride + kMaxConvRank) > kMostStride) return false;
  if (s.kernel_positions() > kMostTaps) return false;
  if (!s.wants_input && !s.wants_weight) return true;
  const std::int64_t inputs = s.channels / s.groups, outputs = s.outputs / s.groups;
  if (inputs % lanes == 0 && outputs % lanes == 0) return true;
  // Blocks of several groups would not be neighbours in the tensors.
  const std::int64_t padded =
      ceil_divide(inputs, lanes) * ceil_divide(outputs, lanes) * lanes * lanes;
  return s.groups == 1 && static_cast<double>(padded) <= kMostWaste * static_cast<double>(inputs) *
                                                             static_cast<double>(outputs);
}

template <class Sum>
std::unique_ptr<const ConvEngine> make_blocks(const ConvShape& shape, const ConvCuts& cuts,
                                              Rounding rounding, DType dtype, Isa isa) {
  const DType sums = shape.is_double ? DType::float64 : DType::float32;
  auto engine =
      std::make_unique<BlocksEngine<Sum>>(shape, cuts, rounding, conv_kernels(isa, dtype),
                                          conv_kernels(isa, sums), pool_kernels(isa, dtype));
  if (!engine->is_usable()) return nullptr;
  return engine;
}

}  // namespace

std::unique_ptr<const ConvEngine> make_blocks_engine(const ConvShape& problem, const ConvCuts& cuts,
                                                     Rounding rounding, DType dtype, Isa isa) {
  const bool is_bias_only = !problem.wants_input && !problem.wants_weight;
  const ConvShape shape = is_bias_only ? without_kernel(problem) : problem;
  if (!fits_blocks(shape, conv_kernels(isa, dtype).lanes)) return nullptr;
  return shape.is_double ? make_blocks<double>(shape, cuts, rounding, dtype, isa)
                         : make_blocks<float>(shape, cuts, rounding, dtype, isa);
}

}  // namespace backops

// Products of depthwise convolutions and of others with many small groups. Each lane of a vector is
// a group: tiles are brought into scratch memory with zeros around them, where all products are
// sums over taps without borders, and where strides and dilations cost nothing.
//
// Tensors that have vectors of channels side by side already are worked on in place
// (lanes/in_place.h).
#include "ops/conv/lanes/engine.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "kernels/convert/convert.h"
#include "ops/conv/axes.h"
#include "ops/conv/copy.h"
#include "ops/conv/finite.h"
#include "ops/conv/lanes/in_place_input.h"
#include "ops/conv/lanes/in_place_weights.h"
#include "ops/conv/lanes/taps.h"
#include "ops/conv/parts.h"
#include "ops/conv/tiles.h"

namespace backops {
namespace {

// Parts of the tiles whose weights are summed on their own. How many there are does not depend on
// the threads, so neither do the bits.
constexpr std::int64_t kMostParts = 16;
constexpr double kMostSumBytes = 64e6;  // of all parts together
// Blocks of a task, whose channels are side by side in channels-last tensors: all 60 blocks of 960
// channels together took 0.37 ms, 16 at a time take 0.22 (8 images of 7x7 positions).
constexpr std::int64_t kMostBlocksOfTask = 16;
constexpr std::int64_t kMostBlocksAtOnce = 2;
constexpr double kTileShare = 0.125;  // of a second-level cache, for one block
// Of results that are written together, and of taps that are listed for them.
constexpr std::int64_t kPositionsAtOnce = 128;
constexpr std::int64_t kMostListed = 4096;

template <class Sum>
class LanesEngine : public ConvEngine {
 public:
  LanesEngine(const ConvTask& task, const ConvKernels& kernels)
      : s_(task.shape),
        kernels_(kernels),
        copy_(kernels, task.rounding, convert_kernels(kernels.isa)),
        weights_(s_, copy_),
        width_(kernels.width),
        inputs_(s_.group_inputs()),
        outputs_(s_.group_outputs()),
        planes_(s_),
        blocks_(ceil_divide(s_.groups, width_)),
        tiles_(tiles_of(
            s_,
            {planes_.count() * outputs_ * width_, s_.makes_weight ? inputs_ * width_ : 0, 0,
             s_.makes_input, true},
            kTileShare * static_cast<double>(task.cpu.level2_bytes) / sizeof(Sum),
            most_growth(kTileShare * static_cast<double>(task.cpu.level2_bytes), kMostParts),
            ceil_divide(kMostParts, blocks_))) {
    if (!tiles_.fit()) return;
    parts_ = parts_for();
    blocks_of_task_ = std::clamp<std::int64_t>(parts_ * blocks_ / (4 * task.cuts.threads), 1,
                                               std::min(blocks_, kMostBlocksOfTask));
    blocks_at_once_ = std::min(blocks_of_task_, kMostBlocksAtOnce);
    if (task.rounding == Rounding::none) look_for_places();
    place_tile();
  }

  bool fits() const { return tiles_.fit(); }

  std::string name() const override {
    return std::string("lanes:") + name_of(kernels_.isa) +
           (kernels_.size == VectorSize::half ? ":half" : "");
  }

  std::size_t engine_bytes() const override {
    const std::int64_t vectors = packed_vectors() * blocks_ + sum_vectors() * blocks_ * parts_;
    return static_cast<std::size_t>(vectors * width_) * sizeof(Sum);
  }
  std::size_t worker_bytes() const override {
    const std::size_t tile = list_at() + list_bytes();
    return std::max({tile, weights_in_place_ ? weights_in_place_->list_bytes() : 0,
                     input_in_place_ ? input_in_place_->list_bytes() : 0});
  }

  // Put the weights in order; the products of the parts; add the parts.
  int phases() const override { return 3; }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) return s_.makes_input ? blocks_ : 0;
    if (phase == 1) return parts_ * block_tasks();
    return makes_sums() ? blocks_ : 0;
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 0) {
      pack_weights(b, task);
    } else if (phase == 1) {
      const std::int64_t first = task % block_tasks() * blocks_of_task_;
      work_part(b, task / block_tasks(), {first, std::min(first + blocks_of_task_, blocks_)});
    } else {
      write_sums(b, task);
    }
  }

 private:
  void look_for_places() {
    if (s_.makes_input && InPlaceInput<Sum>::fits(s_)) {
      input_in_place_ = std::make_unique<const InPlaceInput<Sum>>(s_, kernels_);
    }
    // Beside the input product, while what it reads is in the cache.
    if (makes_sums() && (input_in_place_ || !s_.makes_input) &&
        InPlaceWeights<Sum>::fits(s_, kernels_)) {
      weights_in_place_ = std::make_unique<const InPlaceWeights<Sum>>(s_, kernels_);
    }
  }

  std::int64_t parts_for() const {
    const double groups = static_cast<double>(blocks_ * width_);
    const double bytes = static_cast<double>(group_weights()) * groups * sizeof(Sum);
    const auto most = static_cast<std::int64_t>(std::min(kMostSumBytes / bytes, 1e6));
    return std::clamp<std::int64_t>(most, 1, std::min(tiles_.count(), kMostParts));
  }

  bool makes_sums() const { return s_.makes_weight || s_.makes_bias; }
  std::int64_t block_tasks() const { return ceil_divide(blocks_, blocks_of_task_); }
  std::int64_t group_weights() const { return outputs_ * inputs_ * s_.taps(); }
  // One more tells whether all weights are finite; then the bias of each input.
  std::int64_t bias_vectors() const { return s_.adds_bias ? inputs_ : 0; }
  std::int64_t packed_vectors() const {
    return s_.makes_input ? group_weights() + 1 + bias_vectors() : 0;
  }
  std::int64_t weight_vectors() const { return s_.makes_weight ? group_weights() : 0; }
  std::int64_t sum_vectors() const { return weight_vectors() + (s_.makes_bias ? outputs_ : 0); }

  Range groups_of(const Range& blocks) const {
    return {blocks.begin * width_, std::min(blocks.end * width_, s_.groups)};
  }
  Range groups_of(std::int64_t block) const { return groups_of(Range{block, block + 1}); }

  Sum* packed_weights(const ConvBuffers& b, std::int64_t block) const {
    return reinterpret_cast<Sum*>(b.memory) + packed_vectors() * block * width_;
  }
  Sum* sums(const ConvBuffers& b, std::int64_t part, std::int64_t block) const {
    return packed_weights(b, blocks_) + (part * blocks_ + block) * sum_vectors() * width_;
  }

  // A block's scratch memory: outputs, inputs, rows of results.
  void place_tile() {
    const Tile tile = tiles_.tile(0);
    output_volume_ = tiles_.output_places() * width_;
    input_volume_ = s_.makes_weight ? tiles_.input_places() * width_ : 0;
    const std::int64_t columns = s_.makes_input ? tile.results.step[1] : 0;
    row_at_ = planes_.count() * outputs_ * output_volume_ + inputs_ * input_volume_;
    // Odd numbers of lines, so that blocks do not fall into the same sets of a cache.
    const auto line = static_cast<std::int64_t>(kLineBytes / sizeof(Sum));
    if (s_.makes_input) {
      taps_ = GroupTaps(s_, tile.output, outputs_, output_volume_, width_);
      const std::int64_t row_taps = taps_.axis(2).stride * static_cast<std::int64_t>(taps_.most());
      rows_at_once_ = std::max<std::int64_t>(
          1, std::min({kPositionsAtOnce / columns, kMostListed / std::max(row_taps, line),
                       tile.results.axes[1].size()}));
    }
    block_pitch_ = (ceil_divide(row_at_ + rows_at_once_ * columns * width_, line) | 1) * line;
    for (std::int64_t d = 0; d < s_.kernel[0]; ++d) {
      for (std::int64_t h = 0; h < s_.kernel[1]; ++h) {
        row_offsets_.push_back(
            (d * s_.dilation[0] * tile.input.step[0] + h * s_.dilation[1] * tile.input.step[1]) *
            width_);
      }
    }
  }
  static Sum* scratch(const ConvBuffers& b) { return reinterpret_cast<Sum*>(b.scratch); }
  // Behind the blocks.
  std::size_t list_at() const {
    return static_cast<std::size_t>(block_pitch_ * blocks_at_once_) * sizeof(Sum);
  }
  std::size_t list_bytes() const {
    if (!s_.makes_input) return 0;
    const auto lists = static_cast<std::size_t>(rows_at_once_ * taps_.axis(2).stride);
    return lists * (sizeof(GroupTaps::List) + taps_.most() * sizeof(GatherTap));
  }

  // Vectors of one weight of every group: (outputs, inputs, taps).
  void pack_weights(const ConvBuffers& b, std::int64_t block) const {
    const Range groups = groups_of(block);
    Sum* const packed = packed_weights(b, block);
    std::fill_n(packed, group_weights() * width_, Sum{0});
    for (std::int64_t i = 0; i < outputs_ * inputs_; ++i) {
      weights_.bring(b.weight, b.weight.at(groups.begin * outputs_ + i / inputs_, i % inputs_),
                     b.weight.group_stride_bytes, groups.size(), packed + i * s_.taps() * width_,
                     width_);
    }
    copy_.round(packed, group_weights() * width_);
    packed[group_weights() * width_] =
        all_finite(packed, group_weights() * width_) ? Sum{1} : Sum{0};
    for (std::int64_t i = 0; i < bias_vectors(); ++i) {
      const Bias own{b.bias.data + (groups.begin * inputs_ + i) * b.bias.stride_bytes,
                     inputs_ * b.bias.stride_bytes};
      Sum* const to = packed + (group_weights() + 1 + i) * width_;
      std::fill_n(to, width_, Sum{0});
      copy_.bring_bias(own, {0, groups.size()}, to);
    }
  }
  // Of an input of every group; null where there is none.
  const Sum* bias(const ConvBuffers& b, std::int64_t block, std::int64_t input) const {
    if (!s_.adds_bias) return nullptr;
    return packed_weights(b, block) + (group_weights() + 1 + input) * width_;
  }
  bool are_weights_finite(const ConvBuffers& b, std::int64_t block) const {
    return packed_weights(b, block)[group_weights() * width_] != 0;
  }

  void work_part(const ConvBuffers& b, std::int64_t part, const Range& blocks) const {
    for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
      std::fill_n(sums(b, part, block), sum_vectors() * width_, Sum{0});
    }
    const bool is_input_in_place = input_in_place_ && input_in_place_->takes(b);
    const bool are_sums_in_place =
        weights_in_place_ && weights_in_place_->takes(b) && (is_input_in_place || !s_.makes_input);
    if (is_input_in_place || are_sums_in_place) {
      work_in_place(b, part, blocks, is_input_in_place, are_sums_in_place);
      if (are_sums_in_place || !makes_sums()) return;
    }
    // Where the channels of a tensor lie side by side, those of several blocks are brought
    // together: memory is read and written in the order in which it lies there.
    const bool is_channels_last =
        std::abs(b.output.channel_stride_bytes) < std::abs(b.output.stride_bytes[2]);
    const std::int64_t at_once = is_channels_last ? blocks_at_once_ : 1;
    const Range tiles = share_of(tiles_.count(), parts_, part);
    for (std::int64_t first = blocks.begin; first < blocks.end; first += at_once) {
      const Range own{first, std::min(first + at_once, blocks.end)};
      for (std::int64_t index = tiles.begin; index < tiles.end; ++index) {
        work_tile(b, part, own, tiles_.tile(index), s_.makes_input && !is_input_in_place);
      }
      for (std::int64_t block = own.begin; block < own.end; ++block) {
        Sum* const total = sums(b, part, block);
        if (!all_finite(total, weight_vectors() * width_)) sum_again(b, tiles, block, total);
      }
    }
  }

  // Numbers that are not finite may have met the zeros around the input.
  void sum_again(const ConvBuffers& b, const Range& tiles, std::int64_t block, Sum* total) const {
    std::fill_n(total, weight_vectors() * width_, Sum{0});
    for (std::int64_t index = tiles.begin; index < tiles.end; ++index) {
      const Tile tile = tiles_.tile(index);
      bring(b, {block, block + 1}, tile);
      sum_weights_carefully(scratch(b), tile, total);
    }
  }

  // A share of the rows of all images, a few rows at a time.
  void work_in_place(const ConvBuffers& b, std::int64_t part, const Range& blocks,
                     bool writes_input, bool sums_weights) const {
    constexpr std::int64_t kRowsAtOnce = 8;
    Sum* const own = sums(b, part, blocks.begin);
    const typename InPlaceWeights<Sum>::Work weights{
        b,
        blocks.begin,
        blocks.size(),
        s_.makes_weight ? own : nullptr,
        s_.makes_bias ? own + weight_vectors() * width_ : nullptr,
        sum_vectors() * width_};
    const typename InPlaceInput<Sum>::Work input{b,
                                                 blocks.begin,
                                                 blocks.size(),
                                                 packed_weights(b, blocks.begin),
                                                 packed_vectors() * width_,
                                                 bias(b, blocks.begin, 0)};
    const ConvAxis height(s_, rows_axis(s_));
    const Range rows = share_of(s_.batch * height.out, parts_, part);
    for (std::int64_t first = rows.begin, next; first < rows.end; first = next) {
      const std::int64_t image = first / height.out, begin = first % height.out;
      next = std::min({first + kRowsAtOnce, (image + 1) * height.out, rows.end});
      const Range outputs{begin, begin + next - first};
      if (sums_weights) weights_in_place_->sum(weights, image, outputs);
      if (writes_input) input_in_place_->write(input, image, height.finished_by(outputs));
    }
  }

  void bring(const ConvBuffers& b, const Range& blocks, const Tile& tile) const {
    const Range groups = groups_of(blocks);
    for (std::int64_t o = 0; o < outputs_; ++o) {
      copy_.bring_planes(planes_, of_each_group(b.output, o, outputs_), tile.output, groups,
                         scratch(b) + o * output_volume_, block_pitch_, outputs_ * output_volume_);
    }
    for (std::int64_t i = 0; s_.makes_weight && i < inputs_; ++i) {
      copy_.bring(of_each_group(b.input, i, inputs_), s_.in, tile.input, groups,
                  scratch(b) + outputs_ * output_volume_ + i * input_volume_, block_pitch_);
    }
  }

  void work_tile(const ConvBuffers& b, std::int64_t part, const Range& blocks, const Tile& tile,
                 bool writes_input) const {
    bring(b, blocks, tile);
    for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
      const Sum* const own = scratch(b) + (block - blocks.begin) * block_pitch_;
      Sum* const total = sums(b, part, block);
      if (s_.makes_bias) sum_bias(own, tile, total + weight_vectors() * width_);
      if (s_.makes_weight) sum_weights(own, tile, total);
    }
    if (writes_input) write_input(b, blocks, tile);
  }

  // Channel `index` of every group, as if a group were a channel.
  static Activation of_each_group(const Activation& tensor, std::int64_t index,
                                  std::int64_t per_group) {
    Activation own = tensor;
    own.data += index * tensor.channel_stride_bytes;
    own.channel_stride_bytes *= per_group;
    return own;
  }

  void sum_bias(const Sum* own, const Tile& tile, Sum* total) const {
    const Range& columns = tile.outputs[2];
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      const Sum* row = own + tile.output.place(image, d, h, columns.begin) * width_;
      for (std::int64_t o = 0; o < outputs_; ++o, row += output_volume_) {
        kernels_.sum({row, width_, columns.size(), total + o * width_});
      }
    });
  }

  void sum_weights(const Sum* own, const Tile& tile, Sum* total) const {
    const Range& columns = tile.outputs[2];
    const std::int64_t* const stride = s_.stride;
    const std::int64_t* const padding = s_.padding;
    const auto rows = static_cast<std::int64_t>(row_offsets_.size());
    const Sum* const inputs = own + outputs_ * output_volume_;
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      const Sum* const output = own + tile.output.place(image, d, h, columns.begin) * width_;
      const std::int64_t window =
          tile.input.place(image, d * stride[0] - padding[0], h * stride[1] - padding[1],
                           columns.begin * stride[2] - padding[2]);
      for (std::int64_t pair = 0; pair < outputs_ * inputs_; ++pair) {
        kernels_.correlate({output + pair / inputs_ * output_volume_,
                            inputs + pair % inputs_ * input_volume_ + window * width_,
                            row_offsets_.data(), rows, s_.kernel[2], s_.dilation[2] * width_,
                            width_, stride[2] * width_, columns.size(),
                            total + pair * s_.taps() * width_, s_.kernel[2], 1, 0, columns.size()});
      }
    });
  }

  // Tap by tap, over the outputs whose window has it inside the input.
  void sum_weights_carefully(const Sum* own, const Tile& tile, Sum* total) const {
    static constexpr std::int64_t kHere = 0;
    const Sum* const inputs = own + outputs_ * output_volume_;
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      for (std::int64_t tap = 0; tap < s_.taps(); ++tap) {
        const std::int64_t i = input_of(0, d, tap / (s_.kernel[1] * s_.kernel[2]));
        const std::int64_t j = input_of(1, h, tap / s_.kernel[2] % s_.kernel[1]);
        const Range columns = outputs_with(tap % s_.kernel[2], tile.outputs[2]);
        if (i < 0 || i >= s_.in[0] || j < 0 || j >= s_.in[1] || columns.size() <= 0) continue;
        const Sum* const output = own + tile.output.place(image, d, h, columns.begin) * width_;
        const std::int64_t first = input_of(2, columns.begin, tap % s_.kernel[2]);
        const Sum* const input = inputs + tile.input.place(image, i, j, first) * width_;
        for (std::int64_t pair = 0; pair < outputs_ * inputs_; ++pair) {
          kernels_.correlate({output + pair / inputs_ * output_volume_,
                              input + pair % inputs_ * input_volume_, &kHere, 1, 1, width_, width_,
                              s_.stride[2] * width_, columns.size(),
                              total + (pair * s_.taps() + tap) * width_, 1, 1, 0, columns.size()});
        }
      }
    });
  }
  std::int64_t input_of(int axis, std::int64_t output, std::int64_t tap) const {
    return output * s_.stride[axis] - s_.padding[axis] + tap * s_.dilation[axis];
  }
  // Of these, whose window has a tap along the row inside the input.
  Range outputs_with(std::int64_t tap, const Range& outputs) const {
    const std::int64_t shift = tap * s_.dilation[2] - s_.padding[2];
    const std::int64_t begin = ceil_divide(std::max<std::int64_t>(0, -shift), s_.stride[2]);
    const std::int64_t end = floor_divide(s_.in[2] - 1 - shift, s_.stride[2]) + 1;
    return common(outputs, {begin, end});
  }

  // A few rows at a time: they are still in the first-level cache when they are written. The taps
  // of a row are listed once for all images and blocks.
  void write_input(const ConvBuffers& b, const Range& blocks, const Tile& tile) const {
    if (tile.results.axes[2].size() <= 0) return;
    const Range &slices = tile.results.axes[0], &rows = tile.results.axes[1];
    for (std::int64_t d = slices.begin; d < slices.end; ++d) {
      for (std::int64_t h = rows.begin; h < rows.end; h += rows_at_once_) {
        const Range own{h, std::min(h + rows_at_once_, rows.end)};
        list_taps(b, tile, d, own);
        for (std::int64_t image = tile.images.begin; image < tile.images.end; ++image) {
          for (std::int64_t i = 0; i < inputs_; ++i) {
            for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
              write_rows(b, tile, block, blocks.begin, i, {image, d, own});
            }
            put_rows(b, tile, groups_of(blocks), i, {image, d, own});
          }
        }
      }
    }
  }

  struct Rows {
    std::int64_t image, d;
    Range h;
  };

  // For each row, those of each class of columns.
  GroupTaps::List* tap_lists(const ConvBuffers& b) const {
    return reinterpret_cast<GroupTaps::List*>(b.scratch + list_at());
  }
  void list_taps(const ConvBuffers& b, const Tile& tile, std::int64_t d, const Range& rows) const {
    GroupTaps::List* list = tap_lists(b);
    auto* kept = reinterpret_cast<GatherTap*>(list + rows_at_once_ * taps_.axis(2).stride);
    const Range& columns = tile.results.axes[2];
    for (std::int64_t h = rows.begin; h < rows.end; ++h) {
      for (std::int64_t i = 0; i < taps_.axis(2).stride; ++i) {
        if (columns.begin + i >= columns.end) break;
        list[i] = taps_.of(d, h, columns.begin + i, kept);
        kept += list[i].count;
      }
      list += taps_.axis(2).stride;
    }
  }

  void write_rows(const ConvBuffers& b, const Tile& tile, std::int64_t block, std::int64_t first,
                  std::int64_t channel, const Rows& rows) const {
    Sum* const own = scratch(b) + (block - first) * block_pitch_;
    const Sum* const weights = packed_weights(b, block) + channel * s_.taps() * width_;
    const Range& columns = tile.results.axes[2];
    const ConvAxis& along = taps_.axis(2);
    const bool are_finite = are_weights_finite(b, block);
    const GroupTaps::List* list = tap_lists(b);
    Sum* to = own + row_at_;
    for (std::int64_t h = rows.h.begin; h < rows.h.end; ++h) {
      const Sum* const output = own + tile.output.place(rows.image, taps_.axis(0).output_of(rows.d),
                                                        taps_.axis(1).output_of(h), 0) *
                                          width_;
      if (!are_finite) {
        taps_.write_carefully(output, weights, bias(b, block, channel), rows.d, h, columns, to);
      }
      for (std::int64_t i = 0; are_finite && i < std::min(along.stride, columns.size()); ++i) {
        kernels_.gather({output + along.output_of(columns.begin + i) * width_, weights,
                         list[i].taps, list[i].count, to + i * width_, along.stride * width_,
                         ceil_divide(columns.size() - i, along.stride), bias(b, block, channel)});
      }
      list += along.stride;
      to += columns.size() * width_;
    }
  }

  void put_rows(const ConvBuffers& b, const Tile& tile, const Range& groups, std::int64_t channel,
                const Rows& rows) const {
    const Activation result = of_each_group(b.input_product, channel, inputs_);
    const Range& columns = tile.results.axes[2];
    const bool joins = result.stride_bytes[1] == columns.size() * result.stride_bytes[2];
    const std::int64_t at_once = joins ? rows.h.size() : 1;
    for (std::int64_t h = rows.h.begin; h < rows.h.end; h += at_once) {
      kernels_.from_lanes({result.at(rows.image, groups.begin, rows.d, h, columns.begin),
                           result.channel_stride_bytes, result.stride_bytes[2],
                           scratch(b) + row_at_ + (h - rows.h.begin) * columns.size() * width_,
                           width_, block_pitch_, groups.size(), at_once * columns.size()});
    }
  }

  void write_sums(const ConvBuffers& b, std::int64_t block) const {
    const Range groups = groups_of(block);
    Sum* const total = sums(b, 0, block);
    add_parts(total, sum_vectors() * width_, parts_, blocks_ * sum_vectors() * width_);
    const Weights& weight = b.weight_product;
    for (std::int64_t i = 0; s_.makes_weight && i < outputs_ * inputs_; ++i) {
      weights_.put(weight, {weight.at(groups.begin * outputs_ + i / inputs_, i % inputs_),
                            weight.output_stride_bytes, weight.group_stride_bytes, 1, groups.size(),
                            total + i * s_.taps() * width_, width_});
    }
    const std::int64_t stride = b.bias_sums.stride_bytes;
    for (std::int64_t o = 0; s_.makes_bias && o < outputs_; ++o) {
      copy_.put_line(b.bias_sums.data + (groups.begin * outputs_ + o) * stride, outputs_ * stride,
                     groups.size(), total + (weight_vectors() + o) * width_);
    }
  }

  const ConvShape s_;
  const ConvKernels& kernels_;
  const TileCopy<Sum> copy_;
  const WeightCopy<Sum> weights_;
  const std::int64_t width_;
  const std::int64_t inputs_, outputs_;  // channels of one group
  const OutputPlanes planes_;
  const std::int64_t blocks_;  // of as many groups as there are lanes
  const ConvTiles tiles_;
  std::int64_t parts_ = 1, blocks_of_task_ = 1, blocks_at_once_ = 1;
  std::int64_t output_volume_ = 0, input_volume_ = 0;  // sums of one channel in scratch memory
  std::int64_t row_at_ = 0, rows_at_once_ = 1, block_pitch_ = 0;
  GroupTaps taps_;
  std::vector<std::int64_t> row_offsets_;  // of kernel rows
  // For tensors that allow it.
  std::unique_ptr<const InPlaceInput<Sum>> input_in_place_;
  std::unique_ptr<const InPlaceWeights<Sum>> weights_in_place_;
};

}  // namespace

std::unique_ptr<const ConvEngine> make_lanes_engine(const ConvTask& task, VectorSize size) {
  const ConvKernels& kernels = conv_kernels(task.cpu.isa(), task.dtype, size);
  const auto made = [](auto engine) -> std::unique_ptr<const ConvEngine> {
    if (!engine->fits()) return nullptr;
    return engine;
  };
  if (task.shape.is_double) return made(std::make_unique<LanesEngine<double>>(task, kernels));
  return made(std::make_unique<LanesEngine<float>>(task, kernels));
}

}  // namespace backops

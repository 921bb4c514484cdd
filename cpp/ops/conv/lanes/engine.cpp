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
#include "ops/conv/lanes/input.h"
#include "ops/conv/lanes/order.h"
#include "ops/conv/lanes/packed.h"
#include "ops/conv/lanes/weights.h"
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

template <class Sum>
class LanesEngine : public ConvEngine {
 public:
  LanesEngine(const ConvTask& task, const ConvKernels& kernels)
      : s_(LaneOrder<Sum>::problem(task.shape, kernels)),
        kernels_(kernels),
        copy_(kernels, task.rounding, convert_kernels(kernels.isa)),
        order_(task.shape, copy_),
        packed_(s_, order_, copy_),
        width_(kernels.width),
        inputs_(s_.group_inputs()),
        outputs_(s_.group_outputs()),
        planes_(s_),
        height_(s_, rows_axis(s_)),
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
    const auto block_bytes = packed_.pitch() * static_cast<std::int64_t>(sizeof(Sum));
    const std::int64_t at_hand = std::max<std::int64_t>(
        1, task.cpu.level1_bytes / 2 / std::max<std::int64_t>(block_bytes, 1));
    blocks_of_task_ = std::clamp<std::int64_t>(parts_ * blocks_ / (4 * task.cuts.threads), 1,
                                               std::min({blocks_, kMostBlocksOfTask, at_hand}));
    blocks_at_once_ = std::min(blocks_of_task_, kMostBlocksAtOnce);
    if (task.rounding == Rounding::none) look_for_places(task.cpu.announce_bytes());
    place_tile();
  }

  bool fits() const { return tiles_.fit(); }

  std::string name() const override {
    return std::string("lanes:") + name_of(kernels_.isa) +
           (kernels_.size == VectorSize::half ? ":half" : "");
  }

  std::size_t engine_bytes() const override {
    const std::int64_t sums = packed_.pitch() + sum_vectors() * width_ * parts_;
    return static_cast<std::size_t>(sums * blocks_) * sizeof(Sum);
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
      packed_.pack(b, task, groups_of(task));
    } else if (phase == 1) {
      const std::int64_t first = task % block_tasks() * blocks_of_task_;
      work_part(b, task / block_tasks(), {first, std::min(first + blocks_of_task_, blocks_)});
    } else {
      write_sums(b, task);
    }
  }

 private:
  void look_for_places(std::int64_t ahead_bytes) {
    if (s_.makes_input && InPlaceInput<Sum>::fits(s_)) {
      input_in_place_ =
          std::make_unique<const InPlaceInput<Sum>>(s_, kernels_, order_.groups(), ahead_bytes);
    }
    // Beside the input product, while what it reads is in the cache.
    if (makes_sums() && (input_in_place_ || !s_.makes_input) &&
        InPlaceWeights<Sum>::fits(s_, kernels_)) {
      weights_in_place_ =
          std::make_unique<const InPlaceWeights<Sum>>(s_, kernels_, order_.groups());
    }
  }

  std::int64_t parts_for() const {
    const double groups = static_cast<double>(blocks_ * width_);
    const double bytes = static_cast<double>(order_.vectors()) * groups * sizeof(Sum);
    const auto most = static_cast<std::int64_t>(std::min(kMostSumBytes / bytes, 1e6));
    return std::clamp<std::int64_t>(most, 1, std::min(tiles_.count(), kMostParts));
  }

  bool makes_sums() const { return s_.makes_weight || s_.makes_bias; }
  std::int64_t block_tasks() const { return ceil_divide(blocks_, blocks_of_task_); }
  std::int64_t weight_vectors() const { return s_.makes_weight ? order_.vectors() : 0; }
  std::int64_t sum_vectors() const { return weight_vectors() + (s_.makes_bias ? outputs_ : 0); }

  Range groups_of(const Range& blocks) const {
    return {blocks.begin * width_, std::min(blocks.end * width_, s_.groups)};
  }
  Range groups_of(std::int64_t block) const { return groups_of(Range{block, block + 1}); }

  Sum* sums(const ConvBuffers& b, std::int64_t part, std::int64_t block) const {
    return reinterpret_cast<Sum*>(b.memory) + packed_.pitch() * blocks_ +
           (part * blocks_ + block) * sum_vectors() * width_;
  }

  // A block's scratch memory: outputs, inputs, rows of results.
  void place_tile() {
    const Tile tile = tiles_.tile(0);
    output_volume_ = tiles_.output_places() * width_;
    input_volume_ = s_.makes_weight ? tiles_.input_places() * width_ : 0;
    results_at_ = planes_.count() * outputs_ * output_volume_ + inputs_ * input_volume_;
    weight_product_ = std::make_unique<const LaneWeights<Sum>>(s_, kernels_, order_.groups(), tile,
                                                               output_volume_, input_volume_);
    std::int64_t results = 0;
    if (s_.makes_input) {
      input_product_ = std::make_unique<const LaneInput<Sum>>(s_, kernels_, order_.groups(), tile,
                                                              output_volume_);
      results = input_product_->result_sums();
    }
    // Odd numbers of lines, so that blocks do not fall into the same sets of a cache.
    const auto line = static_cast<std::int64_t>(kLineBytes / sizeof(Sum));
    block_pitch_ = (ceil_divide(results_at_ + results, line) | 1) * line;
  }
  static Sum* scratch(const ConvBuffers& b) { return reinterpret_cast<Sum*>(b.scratch); }
  // Behind the blocks.
  std::size_t list_at() const {
    return static_cast<std::size_t>(block_pitch_ * blocks_at_once_) * sizeof(Sum);
  }
  std::size_t list_bytes() const { return input_product_ ? input_product_->list_bytes() : 0; }

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
        if (!all_finite(total, weight_vectors(), width_, groups_of(block).size())) {
          sum_again(b, tiles, block, total);
        }
      }
    }
  }

  // Numbers that are not finite may have met the zeros around the input.
  void sum_again(const ConvBuffers& b, const Range& tiles, std::int64_t block, Sum* total) const {
    std::fill_n(total, weight_vectors() * width_, Sum{0});
    for (std::int64_t index = tiles.begin; index < tiles.end; ++index) {
      const Tile tile = tiles_.tile(index);
      bring(b, {block, block + 1}, tile);
      weight_product_->add_carefully(scratch(b), tile, total);
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
                                                 packed_.weights(b, blocks.begin),
                                                 packed_.pitch(),
                                                 packed_.bias(b, blocks.begin),
                                                 writes_input && packed_.are_finite(b, blocks)};
    const Range rows = share_of(s_.batch * height_.out, parts_, part);
    for (std::int64_t first = rows.begin, next; first < rows.end; first = next) {
      const std::int64_t image = first / height_.out, begin = first % height_.out;
      next = std::min({first + kRowsAtOnce, (image + 1) * height_.out, rows.end});
      const Range outputs{begin, begin + next - first};
      if (sums_weights) weights_in_place_->sum(weights, image, outputs);
      if (writes_input) input_in_place_->write(input, image, height_.finished_by(outputs));
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
      if (s_.makes_bias) weight_product_->add_bias(own, tile, total + weight_vectors() * width_);
      if (s_.makes_weight) weight_product_->add(own, tile, total);
    }
    if (writes_input) write_input(b, blocks, tile);
  }

  void write_input(const ConvBuffers& b, const Range& blocks, const Tile& tile) const {
    input_product_->write(
        {b, blocks, groups_of(blocks), scratch(b), block_pitch_, results_at_,
         packed_.weights(b, blocks.begin), packed_.pitch(), packed_.bias(b, blocks.begin),
         packed_.finite(b, blocks.begin), b.scratch + list_at()},
        tile);
  }

  void write_sums(const ConvBuffers& b, std::int64_t block) const {
    const Range groups = groups_of(block);
    Sum* const total = sums(b, 0, block);
    add_parts(total, sum_vectors() * width_, parts_, blocks_ * sum_vectors() * width_);
    if (s_.makes_weight) order_.put(b.weight_product, groups, total);
    const std::int64_t stride = b.bias_sums.stride_bytes;
    for (std::int64_t o = 0; s_.makes_bias && o < outputs_; ++o) {
      copy_.put_line(b.bias_sums.data + (groups.begin * outputs_ + o) * stride, outputs_ * stride,
                     groups.size(), total + (weight_vectors() + o) * width_);
    }
  }

  const ConvShape s_;
  const ConvKernels& kernels_;
  const TileCopy<Sum> copy_;
  const LaneOrder<Sum> order_;
  const PackedLanes<Sum> packed_;
  const std::int64_t width_;
  const std::int64_t inputs_, outputs_;  // channels of a lane
  const OutputPlanes planes_;
  const ConvAxis height_;      // that rows in place are counted along
  const std::int64_t blocks_;  // of as many groups as there are lanes
  const ConvTiles tiles_;
  std::int64_t parts_ = 1, blocks_of_task_ = 1, blocks_at_once_ = 1;
  std::int64_t output_volume_ = 0, input_volume_ = 0;  // sums of one channel in scratch memory
  std::int64_t results_at_ = 0, block_pitch_ = 0;
  std::unique_ptr<const LaneWeights<Sum>> weight_product_;
  std::unique_ptr<const LaneInput<Sum>> input_product_;  // if it is wanted
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

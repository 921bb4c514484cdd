// Gradients of depthwise convolutions and of others with many small groups. Each lane of a vector
// is a group: rows of an image are brought side by side into padded scratch memory, where both
// gradients are sums over taps without borders, and where strides and dilations cost nothing.
//
// Tensors that have vectors of channels side by side already are worked on in place
// (ops/lane_rows.h).
//
// An image is worked through in chunks of rows that stay in the first-level cache; rows that the
// next chunk needs again are kept. For volumes the rows are slices.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/pool/pool.h"
#include "ops/conv_engine.h"
#include "ops/dense_copy.h"
#include "ops/lane_geometry.h"
#include "ops/lane_rows.h"

namespace backops {
namespace {

// Parts of the batch whose weight gradients are summed on their own. How many there are does not
// depend on the threads, so neither do the bits.
constexpr std::int64_t kMostParts = 16;
constexpr double kMostSumBytes = 64e6;  // of all parts together
// Blocks of a task, whose channels are side by side in channels-last tensors: all 60 blocks of 960
// channels together took 0.37 ms, 16 at a time take 0.22 (8 images of 7x7 positions).
constexpr std::int64_t kMostBlocksOfTask = 16;
constexpr std::int64_t kMostBlocksAtOnce = 2;
// Scratch memory of a block that is aimed at, and the most that is used where rows are long.
constexpr std::int64_t kWantedScratchBytes = 40 << 10;
constexpr double kMostScratchBytes = 4e6;
constexpr std::int64_t kMostTaps = 4096;
constexpr std::int64_t kMostStride = 16;

// The taps of the positions whose three axes are of given classes.
struct TapList {
  std::int64_t first, count;
};

// Blocks of groups that are worked on together, each in scratch memory of its own.
struct Blocks {
  std::int64_t first, count;
};

// Rows of grad_output [first_grad, end_grad) and of the padded input [first_input, end_input),
// along the slab axis, that are in scratch memory. Those beyond the tensors are zero.
struct Chunk {
  std::int64_t begin, end;  // the outputs it is about
  std::int64_t first_grad, end_grad;
  std::int64_t first_input, end_input;
  Range results;  // rows of grad_input that can be finished
};

template <class Sum>
class LanesEngine : public ConvEngine {
 public:
  LanesEngine(const ConvShape& shape, int threads, Rounding rounding, const ConvKernels& kernels,
              const PoolKernels& roundings)
      : s_(shape),
        rounding_(rounding),
        kernels_(kernels),
        roundings_(roundings),
        lanes_(kernels.lanes),
        inputs_(s_.channels / s_.groups),
        outputs_(s_.outputs / s_.groups),
        blocks_((s_.groups + lanes_ - 1) / lanes_),
        parts_(parts_of(s_, lanes_)),
        blocks_of_task_(std::clamp<std::int64_t>(parts_ * blocks_ / (4 * threads), 1,
                                                 std::min(blocks_, kMostBlocksOfTask))),
        blocks_at_once_(std::min(blocks_of_task_, kMostBlocksAtOnce)),
        g_(s_),
        grad_slab_(g_.mid.padded_out * g_.row.padded_out * lanes_),
        input_slab_(g_.mid.padded_in * g_.row.padded_in * lanes_) {
    choose_chunk();
    list_taps();
    if (is_in_place(s_, g_, rounding_, kernels_)) {
      rows_in_place_ = std::make_unique<const LaneRows<Sum>>(g_, kernels_, rows_);
    }
    for (std::int64_t d = 0; d < g_.slab.kernel; ++d) {
      for (std::int64_t h = 0; h < g_.mid.kernel; ++h) {
        row_offsets_.push_back(d * g_.slab.dilation * input_slab_ +
                               h * g_.mid.dilation * g_.row.padded_in * lanes_);
      }
    }
  }

  std::string name() const override { return std::string("lanes:") + name_of(kernels_.isa); }
  Activations activations() const override { return Activations::tensors; }

  std::size_t engine_bytes() const override {
    const std::int64_t vectors = packed_vectors() * blocks_ + sum_vectors() * blocks_ * parts_;
    return static_cast<std::size_t>(vectors * lanes_) * sizeof(Sum);
  }
  std::size_t worker_bytes() const override {
    const std::size_t lists = rows_in_place_ ? rows_in_place_->list_bytes() : 0;
    return std::max(scratch_bytes(), whole_lines(lists));
  }

  // Put the weights in order; the gradients of the parts; add the parts.
  int phases() const override { return 3; }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) return s_.wants_input ? blocks_ : 0;
    if (phase == 1) return parts_ * block_tasks();
    return s_.wants_weight || s_.wants_bias ? blocks_ : 0;
  }

  bool work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 0) {
      pack_weights(b, task);
    } else if (phase == 1) {
      const std::int64_t first = task % block_tasks() * blocks_of_task_;
      work_part(b, task / block_tasks(), {first, std::min(blocks_of_task_, blocks_ - first)});
    } else {
      add_parts(b, task);
    }
    return true;
  }

 private:
  static bool is_in_place(const ConvShape& s, const Geometry& g, Rounding rounding,
                          const ConvKernels& kernels) {
    const bool are_sums = size_of(kernels.dtype) == sizeof(Sum) && rounding == Rounding::none;
    return are_sums && LaneRows<Sum>::fits(s, g, kernels.lanes);
  }

  static std::int64_t parts_of(const ConvShape& s, std::int64_t lanes) {
    const double groups = static_cast<double>(s.groups + lanes);  // lanes without a group included
    const double bytes = static_cast<double>(s.weights() / s.groups) * groups * sizeof(Sum);
    const auto most = static_cast<std::int64_t>(kMostSumBytes / bytes);
    return std::clamp<std::int64_t>(most, 1, std::min(s.batch, kMostParts));
  }

  // Scratch memory of one block.
  std::size_t block_bytes() const {
    const std::int64_t sums =
        grad_volume_ * outputs_ + input_volume_ * inputs_ + g_.row.in * lanes_;
    return whole_lines(static_cast<std::size_t>(sums) * sizeof(Sum));
  }
  std::int64_t block_pitch() const {
    return static_cast<std::int64_t>(block_bytes() / sizeof(Sum));
  }
  std::size_t scratch_bytes() const {
    return block_bytes() * static_cast<std::size_t>(blocks_at_once_);
  }
  std::int64_t block_tasks() const { return (blocks_ + blocks_of_task_ - 1) / blocks_of_task_; }
  std::int64_t taps() const { return s_.kernel_positions(); }
  std::int64_t group_weights() const { return outputs_ * inputs_ * taps(); }
  // Per input channel. Taps that reach no position are not listed.
  std::int64_t used_taps() const { return static_cast<std::int64_t>(taps_.size()); }
  // One more tells whether all weights are finite.
  std::int64_t packed_vectors() const { return s_.wants_input ? inputs_ * used_taps() + 1 : 0; }
  std::int64_t weight_vectors() const { return s_.wants_weight ? group_weights() : 0; }
  std::int64_t sum_vectors() const { return weight_vectors() + (s_.wants_bias ? outputs_ : 0); }

  std::int64_t groups_in(const Blocks& blocks) const {
    return std::min<std::int64_t>(blocks.count * lanes_, s_.groups - blocks.first * lanes_);
  }
  std::int64_t groups_in(std::int64_t block) const { return groups_in(Blocks{block, 1}); }
  Sum* packed_weights(const ConvBuffers& b, std::int64_t block) const {
    return reinterpret_cast<Sum*>(b.memory) + packed_vectors() * block * lanes_;
  }
  Sum* sums(const ConvBuffers& b, std::int64_t part, std::int64_t block) const {
    return packed_weights(b, blocks_) + (part * blocks_ + block) * sum_vectors() * lanes_;
  }
  Sum* grad_scratch(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.scratch); }
  Sum* input_scratch(const ConvBuffers& b) const {
    return grad_scratch(b) + outputs_ * grad_volume_;
  }
  Sum* row_scratch(const ConvBuffers& b) const {
    return input_scratch(b) + inputs_ * input_volume_;
  }

  bool all_finite(const Sum* vectors, std::int64_t count) const {
    Sum none = 0;
    for (std::int64_t i = 0; i < count * lanes_; ++i) none += vectors[i] * 0;
    return none == 0;
  }

  void choose_chunk() {
    const LaneAxis& a = g_.slab;
    const std::int64_t beyond = std::max<std::int64_t>(0, a.output_of(a.in - 1) + 1 - a.out);
    const std::int64_t input_sums = s_.wants_weight ? inputs_ * input_slab_ : 0;
    const std::int64_t fixed =
        (a.most_shift + beyond) * outputs_ * grad_slab_ + (a.reach + 1 - a.stride) * input_sums;
    const std::int64_t per_row = outputs_ * grad_slab_ + a.stride * input_sums;
    const std::int64_t wanted = kWantedScratchBytes / static_cast<std::int64_t>(sizeof(Sum));
    rows_ = std::clamp<std::int64_t>((wanted - fixed) / per_row, 1, a.out);
    grad_volume_ = (a.most_shift + rows_ + beyond) * grad_slab_;
    input_volume_ = s_.wants_weight ? ((rows_ - 1) * a.stride + a.reach + 1) * input_slab_ : 0;
  }

  Chunk chunk_at(std::int64_t begin) const {
    const LaneAxis& a = g_.slab;
    Chunk c{};
    c.begin = begin;
    c.end = std::min(begin + rows_, a.out);
    const bool is_last = c.end == a.out;
    c.first_grad = begin - a.most_shift;
    c.end_grad = is_last ? std::max(a.out, a.output_of(a.in - 1) + 1) : c.end;
    c.first_input = begin * a.stride;
    c.end_input = (c.end - 1) * a.stride + a.reach + 1;
    c.results = a.finished_by({begin, c.end});
    return c;
  }

  const TapList& taps_of(std::int64_t slab, std::int64_t mid, std::size_t row) const {
    const std::size_t outer =
        static_cast<std::size_t>(slab) * g_.mid.classes.size() + static_cast<std::size_t>(mid);
    return tap_lists_[outer * g_.row.classes.size() + row];
  }

  void list_taps() {
    for (const ResidueClass& slab : g_.slab.classes) {
      for (const ResidueClass& mid : g_.mid.classes) {
        for (const ResidueClass& row : g_.row.classes) {
          const auto first = static_cast<std::int64_t>(taps_.size());
          for (std::int64_t o = 0; o < outputs_; ++o) list_taps_of(slab, mid, row, o);
          tap_lists_.push_back({first, static_cast<std::int64_t>(taps_.size()) - first});
        }
      }
    }
  }

  void list_taps_of(const ResidueClass& slab, const ResidueClass& mid, const ResidueClass& row,
                    std::int64_t output) {
    for (std::size_t i = 0; i < slab.taps.size(); ++i) {
      for (std::size_t j = 0; j < mid.taps.size(); ++j) {
        for (std::size_t k = 0; k < row.taps.size(); ++k) {
          const std::int64_t tap =
              (slab.taps[i] * g_.mid.kernel + mid.taps[j]) * g_.row.kernel + row.taps[k];
          taps_.push_back(
              {output * inputs_ * taps() + tap, slab.shifts[i], mid.shifts[j], row.shifts[k]});
          const std::int64_t place = (mid.shifts[j] * g_.row.padded_out + row.shifts[k]) * lanes_;
          gather_taps_.push_back({output * grad_volume_ - slab.shifts[i] * grad_slab_ - place,
                                  static_cast<std::int64_t>(gather_taps_.size()) * lanes_});
        }
      }
    }
  }

  // A vector of one weight of every group per tap, in the order in which the taps are listed.
  void pack_weights(const ConvBuffers& b, std::int64_t block) const {
    const Sum* const from = static_cast<const Sum*>(b.weight) + block * lanes_ * group_weights();
    const std::int64_t groups = groups_in(block);
    Sum* const packed = packed_weights(b, block);
    Sum* to = packed;
    for (std::int64_t c = 0; c < inputs_; ++c) {
      for (const Tap& tap : taps_) {
        for (std::int64_t lane = 0; lane < lanes_; ++lane) {
          const Sum* const own = from + lane * group_weights() + c * taps() + tap.weight;
          *to++ = lane < groups ? *own : Sum{0};
        }
      }
    }
    *to = all_finite(packed, inputs_ * used_taps()) ? Sum{1} : Sum{0};
  }
  bool are_weights_finite(const ConvBuffers& b, std::int64_t block) const {
    return packed_weights(b, block)[inputs_ * used_taps() * lanes_] != 0;
  }

  void work_part(const ConvBuffers& b, std::int64_t part, const Blocks& blocks) const {
    for (std::int64_t i = 0; i < blocks.count; ++i) {
      std::fill_n(sums(b, part, blocks.first + i), sum_vectors() * lanes_, Sum{0});
    }
    if (rows_in_place_ && rows_in_place_->takes(b)) return work_in_place(b, part, blocks);
    for (std::int64_t i = 0; i < blocks.count; i += blocks_at_once_) {
      work_blocks(b, part, {blocks.first + i, std::min(blocks_at_once_, blocks.count - i)});
    }
  }

  void work_in_place(const ConvBuffers& b, std::int64_t part, const Blocks& blocks) const {
    Sum* const own_sums = sums(b, part, blocks.first);
    const typename LaneRows<Sum>::Work work{
        b,
        blocks.first,
        blocks.count,
        s_.wants_input ? packed_weights(b, blocks.first) : nullptr,
        packed_vectors() * lanes_,
        s_.wants_weight ? own_sums : nullptr,
        s_.wants_bias ? own_sums + weight_vectors() * lanes_ : nullptr,
        sum_vectors() * lanes_};
    const Range images = images_of(part);
    for (std::int64_t image = images.begin; image < images.end; ++image) {
      rows_in_place_->work_image(work, image);
    }
  }

  // Where the channels of a tensor lie side by side, those of several blocks are brought together:
  // memory is read and written in the order in which it lies there.
  void work_blocks(const ConvBuffers& b, std::int64_t part, const Blocks& blocks) const {
    std::memset(b.scratch, 0, scratch_bytes());
    if (std::abs(b.grad_output.channel_stride_bytes) < std::abs(b.grad_output.stride_bytes[2])) {
      return work_images(b, part, blocks);
    }
    for (std::int64_t i = 0; i < blocks.count; ++i) {
      work_images(scratch_of(b, i), part, {blocks.first + i, 1});
    }
  }

  Range images_of(std::int64_t part) const {
    return {part * s_.batch / parts_, (part + 1) * s_.batch / parts_};
  }

  void work_images(const ConvBuffers& b, std::int64_t part, const Blocks& blocks) const {
    const Range images = images_of(part);
    for (std::int64_t image = images.begin; image < images.end; ++image) {
      for (std::int64_t row = 0; row < g_.slab.out; row += rows_) {
        work_chunk(b, part, image, blocks, chunk_at(row));
      }
    }
  }

  void work_chunk(const ConvBuffers& b, std::int64_t part, std::int64_t image, const Blocks& blocks,
                  const Chunk& c) const {
    bring_grad(b, image, blocks, c);
    if (s_.wants_weight) bring_input(b, image, blocks, c);
    for (std::int64_t i = 0; i < blocks.count; ++i) {
      const ConvBuffers own = scratch_of(b, i);
      Sum* const total = sums(b, part, blocks.first + i);
      if (s_.wants_bias) sum_bias(own, c, total + weight_vectors() * lanes_);
      if (s_.wants_weight) sum_weights(own, c, total);
    }
    if (s_.wants_input) sum_input(b, image, blocks, c);
  }

  ConvBuffers scratch_of(const ConvBuffers& b, std::int64_t block_at_once) const {
    ConvBuffers own = b;
    own.scratch += static_cast<std::size_t>(block_at_once) * block_bytes();
    return own;
  }

  static char* place_of(const Activation& tensor, std::int64_t image, std::int64_t channel) {
    return tensor.data + image * tensor.image_stride_bytes + channel * tensor.channel_stride_bytes;
  }

  void bring_grad(const ConvBuffers& b, std::int64_t image, const Blocks& blocks,
                  const Chunk& c) const {
    const LaneAxis& a = g_.slab;
    for (std::int64_t o = 0; o < outputs_; ++o) {
      Sum* const slabs = grad_scratch(b) + o * grad_volume_;
      const char* const from = place_of(b.grad_output, image, blocks.first * lanes_ * outputs_ + o);
      keep_slabs(slabs, blocks, grad_slab_, c.begin == 0 ? 0 : rows_, a.most_shift);
      for (std::int64_t d = c.begin; d < c.end_grad; ++d) {
        Sum* const to = slabs + (d - c.first_grad) * grad_slab_;
        if (d >= a.out) {
          clear_slabs(to, blocks, grad_slab_);
          continue;
        }
        for (std::int64_t h = 0; h < g_.mid.out; ++h) {
          bring_row(b.grad_output, from, d, h, outputs_, blocks, g_.row.out, to + grad_row(h));
        }
      }
    }
  }

  void bring_input(const ConvBuffers& b, std::int64_t image, const Blocks& blocks,
                   const Chunk& c) const {
    const LaneAxis& a = g_.slab;
    const std::int64_t kept = std::max<std::int64_t>(0, a.reach + 1 - a.stride);
    for (std::int64_t i = 0; i < inputs_; ++i) {
      Sum* const slabs = input_scratch(b) + i * input_volume_;
      const char* const from = place_of(b.input, image, blocks.first * lanes_ * inputs_ + i);
      if (c.begin != 0) keep_slabs(slabs, blocks, input_slab_, rows_ * a.stride, kept);
      for (std::int64_t d = c.first_input + (c.begin == 0 ? 0 : kept); d < c.end_input; ++d) {
        Sum* const to = slabs + (d - c.first_input) * input_slab_;
        if (d < a.padding || d >= a.padding + a.in) {
          clear_slabs(to, blocks, input_slab_);
          continue;
        }
        for (std::int64_t h = 0; h < g_.mid.used_in; ++h) {
          Sum* const row = to + ((g_.mid.padding + h) * g_.row.padded_in + g_.row.padding) * lanes_;
          bring_row(b.input, from, d - a.padding, h, inputs_, blocks, g_.row.used_in, row);
        }
      }
    }
  }

  // Moves `count` slabs that lie `distance` slabs on to the front; makes them zero if it is 0.
  void keep_slabs(Sum* slabs, const Blocks& blocks, std::int64_t slab, std::int64_t distance,
                  std::int64_t count) const {
    if (distance == 0) return clear_slabs(slabs, blocks, count * slab);
    for (std::int64_t i = 0; i < blocks.count; ++i, slabs += block_pitch()) {
      std::memmove(slabs, slabs + distance * slab,
                   static_cast<std::size_t>(count * slab) * sizeof(Sum));
    }
  }
  void clear_slabs(Sum* slabs, const Blocks& blocks, std::int64_t count) const {
    for (std::int64_t i = 0; i < blocks.count; ++i)
      std::fill_n(slabs + i * block_pitch(), count, Sum{0});
  }

  void bring_row(const Activation& tensor, const char* from, std::int64_t d, std::int64_t h,
                 std::int64_t channel_step, const Blocks& blocks, std::int64_t count,
                 Sum* to) const {
    kernels_.to_lanes({const_cast<char*>(from) + d * tensor.stride_bytes[g_.slab_axis] +
                           h * tensor.stride_bytes[g_.mid_axis],
                       channel_step * tensor.channel_stride_bytes, tensor.stride_bytes[2], to,
                       lanes_, block_pitch(), groups_in(blocks), count});
    if constexpr (sizeof(Sum) == sizeof(float)) {
      for (std::int64_t i = 0; i < blocks.count; ++i) {
        round_operands(to + i * block_pitch(), count * lanes_, rounding_, roundings_);
      }
    }
  }

  // Where a row begins in a slab of grad_output.
  std::int64_t grad_row(std::int64_t h) const {
    return ((g_.mid.low_pad + h) * g_.row.padded_out + g_.row.low_pad) * lanes_;
  }
  const Sum* grad_of(const ConvBuffers& b, const Chunk& c, std::int64_t d, std::int64_t h) const {
    return grad_scratch(b) + (d - c.first_grad) * grad_slab_ + grad_row(h);
  }
  // Where the window of the first output of a row begins.
  const Sum* input_of(const ConvBuffers& b, const Chunk& c, std::int64_t d, std::int64_t h) const {
    return input_scratch(b) + (d * g_.slab.stride - c.first_input) * input_slab_ +
           h * g_.mid.stride * g_.row.padded_in * lanes_;
  }

  template <class Body>
  void for_output_rows(const Chunk& c, const Body& body) const {
    for (std::int64_t d = c.begin; d < c.end; ++d) {
      for (std::int64_t h = 0; h < g_.mid.out; ++h) body(d, h);
    }
  }

  void sum_bias(const ConvBuffers& b, const Chunk& c, Sum* total) const {
    for_output_rows(c, [&](std::int64_t d, std::int64_t h) {
      for (std::int64_t o = 0; o < outputs_; ++o) {
        kernels_.sum(
            {grad_of(b, c, d, h) + o * grad_volume_, lanes_, g_.row.out, total + o * lanes_});
      }
    });
  }

  void sum_weights(const ConvBuffers& b, const Chunk& c, Sum* total) const {
    const LaneAxis& row = g_.row;
    for_output_rows(c, [&](std::int64_t d, std::int64_t h) {
      for (std::int64_t pair = 0; pair < outputs_ * inputs_; ++pair) {
        kernels_.correlate({grad_of(b, c, d, h) + pair / inputs_ * grad_volume_,
                            input_of(b, c, d, h) + pair % inputs_ * input_volume_,
                            row_offsets_.data(), static_cast<std::int64_t>(row_offsets_.size()),
                            row.kernel, row.dilation * lanes_, lanes_, row.stride * lanes_, row.out,
                            total + pair * taps() * lanes_, row.kernel, 1, 0, row.out});
      }
    });
  }

  void sum_input(const ConvBuffers& b, std::int64_t image, const Blocks& blocks,
                 const Chunk& c) const {
    const Activation& tensor = b.grad_input;
    for (std::int64_t i = 0; i < inputs_; ++i) {
      char* const to = place_of(tensor, image, blocks.first * lanes_ * inputs_ + i);
      for (std::int64_t d = c.results.begin; d < c.results.end; ++d) {
        for (std::int64_t h = 0; h < g_.mid.in; ++h) {
          for (std::int64_t block = 0; block < blocks.count; ++block) {
            sum_row_of_block(scratch_of(b, block), c, blocks.first + block, i, d, h);
          }
          kernels_.from_lanes(
              {to + d * tensor.stride_bytes[g_.slab_axis] + h * tensor.stride_bytes[g_.mid_axis],
               inputs_ * tensor.channel_stride_bytes, tensor.stride_bytes[2], row_scratch(b),
               lanes_, block_pitch(), groups_in(blocks), g_.row.in});
        }
      }
    }
  }

  void sum_row_of_block(const ConvBuffers& b, const Chunk& c, std::int64_t block,
                        std::int64_t channel, std::int64_t d, std::int64_t h) const {
    const Sum* const weights = packed_weights(b, block) + channel * used_taps() * lanes_;
    if (are_weights_finite(b, block)) {
      sum_row(b, c, weights, d, h);
    } else {
      sum_row_carefully(b, c, weights, d, h);
    }
  }

  void sum_row(const ConvBuffers& b, const Chunk& c, const Sum* weights, std::int64_t d,
               std::int64_t h) const {
    const Sum* const grad = grad_of(b, c, g_.slab.output_of(d), g_.mid.output_of(h));
    for (std::size_t w = 0; w < g_.row.classes.size(); ++w) {
      const ResidueClass& own = g_.row.classes[w];
      const TapList& list = taps_of(g_.slab.class_of(d), g_.mid.class_of(h), w);
      kernels_.gather({grad + g_.row.output_of(own.first_input) * lanes_, weights,
                       gather_taps_.data() + list.first, list.count, lanes_,
                       row_scratch(b) + own.first_input * lanes_, g_.row.stride * lanes_, own.count,
                       1, 0});
    }
  }

  // For weights that are not finite, which must not meet the zeros of the padding: position by
  // position, tap by tap, where there is an output.
  void sum_row_carefully(const ConvBuffers& b, const Chunk& c, const Sum* weights, std::int64_t d,
                         std::int64_t h) const {
    const Sum* const grad = grad_of(b, c, g_.slab.output_of(d), g_.mid.output_of(h));
    for (std::int64_t w = 0; w < g_.row.in; ++w) {
      const TapList& list = taps_of(g_.slab.class_of(d), g_.mid.class_of(h),
                                    static_cast<std::size_t>(g_.row.class_of(w)));
      Sum* const to = row_scratch(b) + w * lanes_;
      std::fill(to, to + lanes_, Sum{0});
      for (std::int64_t t = list.first; t < list.first + list.count; ++t) {
        const Tap& tap = taps_[static_cast<std::size_t>(t)];
        if (!g_.slab.has_output(d, tap.slab_shift) || !g_.mid.has_output(h, tap.mid_shift) ||
            !g_.row.has_output(w, tap.row_shift)) {
          continue;
        }
        const Sum* const from =
            grad + g_.row.output_of(w) * lanes_ + gather_taps_[static_cast<std::size_t>(t)].source;
        for (std::int64_t lane = 0; lane < lanes_; ++lane) {
          to[lane] += weights[t * lanes_ + lane] * from[lane];
        }
      }
    }
  }

  void add_parts(const ConvBuffers& b, std::int64_t block) const {
    Sum* const total = sums(b, 0, block);
    for (std::int64_t part = 1; part < parts_; ++part) {
      const Sum* const more = sums(b, part, block);
      for (std::int64_t i = 0; i < sum_vectors() * lanes_; ++i) total[i] += more[i];
    }
    const auto write = [&](const Sum* from, void* result, std::int64_t per_group) {
      Sum* to = static_cast<Sum*>(result) + block * lanes_ * per_group;
      for (std::int64_t lane = 0; lane < groups_in(block); ++lane) {
        for (std::int64_t i = 0; i < per_group; ++i) *to++ = from[i * lanes_ + lane];
      }
    };
    if (s_.wants_weight) write(total, b.grad_weight, group_weights());
    if (s_.wants_bias) write(total + weight_vectors() * lanes_, b.grad_bias, outputs_);
  }

  struct Tap {
    std::int64_t weight;  // its place among a group's weights for input channel 0
    std::int64_t slab_shift, mid_shift, row_shift;
  };

  const ConvShape s_;
  const Rounding rounding_;
  const ConvKernels& kernels_;
  const PoolKernels& roundings_;
  const std::int64_t lanes_;
  const std::int64_t inputs_, outputs_;  // channels of one group
  const std::int64_t blocks_;            // of as many groups as there are lanes
  const std::int64_t parts_;             // of the batch
  const std::int64_t blocks_of_task_, blocks_at_once_;
  const Geometry g_;
  const std::int64_t grad_slab_, input_slab_;        // sums in one row of rows
  std::int64_t rows_ = 1;                            // outputs along the slab axis in one chunk
  std::int64_t grad_volume_ = 0, input_volume_ = 0;  // sums of one channel in scratch memory
  std::vector<TapList> tap_lists_;
  std::vector<Tap> taps_;
  std::vector<GatherTap> gather_taps_;                  // from grad_of(...)
  std::vector<std::int64_t> row_offsets_;               // of kernel rows, from input_of(...)
  std::unique_ptr<const LaneRows<Sum>> rows_in_place_;  // for tensors that allow it
};

bool fits_lanes(const ConvShape& s, std::int64_t lanes, std::int64_t most_channels) {
  const std::int64_t blocks = (s.groups + lanes - 1) / lanes;
  if (2 * s.groups < blocks * lanes || s.kernel_positions() > kMostTaps) return false;
  if (std::max(s.channels, s.outputs) / s.groups > most_channels) return false;
  if (*std::max_element(s.stride, s.stride + kMaxConvRank) > kMostStride) return false;
  const Geometry g(s);
  const auto slab_sums = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  };
  const double slabs = static_cast<double>(g.slab.reach + g.slab.stride + g.slab.kernel + 2);
  const double largest = std::max(slab_sums(g.mid.padded_in, g.row.padded_in),
                                  slab_sums(g.mid.padded_out, g.row.padded_out));
  const double channels = static_cast<double>((s.channels + s.outputs) / s.groups);
  return slabs * largest * channels * static_cast<double>(lanes) * sizeof(double) <
         kMostScratchBytes;
}

}  // namespace

std::unique_ptr<const ConvEngine> make_lanes_engine(const ConvShape& shape,
                                                    std::int64_t most_channels, int threads,
                                                    Rounding rounding, DType dtype, Isa isa) {
  const ConvKernels& kernels = conv_kernels(isa, dtype);
  const PoolKernels& roundings = pool_kernels(isa, dtype);
  if (!fits_lanes(shape, kernels.lanes, most_channels)) return nullptr;
  if (shape.is_double) {
    return std::make_unique<LanesEngine<double>>(shape, threads, rounding, kernels, roundings);
  }
  return std::make_unique<LanesEngine<float>>(shape, threads, rounding, kernels, roundings);
}

}  // namespace backops

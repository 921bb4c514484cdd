// The weight product of bfloat16 tensors. Pairs are positions of a row: vectors of outputs times
// numbers of a few inputs, as many as there are registers for the sums of. A run of products is a
// row of outputs, so rows need no zeros between them.
//
// Weights of few sums are made in parts, each of some rows of all channels, which are added up. Of
// others each task makes the weights of a few inputs from all rows: the outputs are then brought
// first, for all tasks.
#include "ops/conv/pairs/weight_product.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/careful.h"
#include "ops/conv/copy.h"
#include "ops/conv/pairs/row_words.h"
#include "ops/conv/parts.h"

namespace backops {
namespace {

constexpr std::int64_t kPair = BlockSide::kPair;
constexpr double kTileShare = 0.5;         // of a second-level cache
constexpr double kMostPartBytes = 3e6;     // of the sums of all parts
constexpr double kMostSharedBytes = 64e6;  // of outputs that are brought for all tasks

// Where a row's taps find their words. Windows `stride` apart are neighbours among the elements
// that have the same remainder.
struct RowTaps {
  struct Tap {
    std::int64_t line, shift;
  };

  explicit RowTaps(const ConvShape& s) : steps(ceil_divide(s.out[2], kPair)) {
    std::int64_t most_shift = 0;
    for (std::int64_t t = 0; t < s.kernel[2]; ++t) {
      const std::int64_t offset = t * s.dilation[2], remainder = offset % s.stride[2];
      const auto known = std::find(remainders.begin(), remainders.end(), remainder);
      taps.push_back({known - remainders.begin(), offset / s.stride[2]});
      if (known == remainders.end()) remainders.push_back(remainder);
      most_shift = std::max(most_shift, taps.back().shift);
      if (taps.back().shift % kPair != 0) every = 1;
    }
    numbers = kPair * steps + round_up(most_shift, kPair);
  }

  std::int64_t steps;                    // pairs of outputs
  std::int64_t numbers = 0;              // of a line
  std::int64_t every = kPair;            // so many numbers a word begins
  std::vector<std::int64_t> remainders;  // of lines
  std::vector<Tap> taps;

  std::int64_t lines() const { return static_cast<std::int64_t>(remainders.size()); }
  std::int64_t row_numbers() const { return lines() * numbers; }
  std::int64_t row_words() const { return row_numbers() / every; }
};

class PairWeightProduct : public WatchingEngine {
 public:
  // Of `full_pairs` are only the words of inputs, which vectors of sums need not fill.
  PairWeightProduct(const ConvTask& task, const ConvKernels& kernels, const PairKernels& pairs,
                    const PairKernels& full_pairs)
      : s_(with_joined_rows(task.shape)),
        joined_(task.shape.out[1] / s_.out[1]),
        row_size_(task.shape.out[2]),
        pairs_(pairs),
        full_pairs_(full_pairs),
        full_words_(conv_kernels(kernels.isa, DType::float32)),
        words_(conv_kernels(kernels.isa, DType::float32, kernels.size)),
        copy_(kernels, Rounding::none, convert_kernels(kernels.isa)),
        weights_(s_, copy_),
        outputs_{kernels.width, s_.groups, s_.group_outputs()},
        inputs_(even_block(s_.group_inputs(), kPair * pairs.conv.most_twins), s_),
        row_(s_),
        kernel_rows_(s_.kernel[0] * s_.kernel[1]) {
    cut(static_cast<double>(task.cpu.level2_bytes), task.cuts.parts());
  }

  bool fits() const { return fits_; }

  std::string name() const override {
    return std::string("pairs:") + name_of(pairs_.conv.isa) +
           (pairs_.conv.size == VectorSize::half ? ":half" : "") +
           (is_by_inputs_ ? ":by_inputs" : "");
  }

  std::size_t engine_bytes() const override {
    return magnitudes_at() + static_cast<std::size_t>(2 * watched()) * sizeof(Magnitudes);
  }
  std::size_t worker_bytes() const override { return lists_at() + list_bytes(); }

  // By parts: the sums; add and write them. By inputs: bring the outputs; the products.
  int phases() const override { return 2; }
  std::int64_t tasks(int phase) const override {
    if (!is_by_inputs_) return phase == 0 ? parts_ : outputs_.all_pairs();
    return phase == 0 ? cuts_ * outputs_.all_pairs() : inputs_.all_blocks() * splits_;
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    PairMagnitudes output, input;
    if (!is_by_inputs_) {
      if (phase == 1) return write_parts(b, task);
      sum_part(b, task, output, input);
    } else if (phase == 0) {
      const std::int64_t pair = task % outputs_.all_pairs(), index = task / outputs_.all_pairs();
      bring_outputs(b, cut_of(index), {pair, pair + 1}, shared_outputs(b, index), output);
    } else {
      sum_inputs(b, task / splits_, task % splits_, input);
    }
    Magnitudes* const found = magnitudes(b) + 2 * (task + (phase == 1 ? tasks(0) : 0));
    found[0] = joined(output);
    found[1] = joined(input);
  }

  bool saw_normal_only(const ConvBuffers& b) const override {
    Magnitudes output, input;
    for (std::int64_t task = 0; task < watched(); ++task) {
      output.add(magnitudes(b)[2 * task]);
      input.add(magnitudes(b)[2 * task + 1]);
    }
    return are_normal(output, input);
  }

 private:
  // Inputs in blocks that are all but equal, counted through all groups.
  struct InputBlocks {
    InputBlocks(std::int64_t most, const ConvShape& s)
        : size(most), groups(s.groups), channels(s.group_inputs()) {}

    std::int64_t size, groups, channels;

    std::int64_t blocks() const { return ceil_divide(channels, size); }
    std::int64_t all_blocks() const { return groups * blocks(); }
    std::int64_t group_of(std::int64_t block) const { return block / blocks(); }
    // Of the group.
    Range own(std::int64_t block) const {
      const std::int64_t first = block % blocks() * size;
      return {first, std::min(first + size, channels)};
    }
    // Of the tensor.
    Range all(std::int64_t block) const {
      const Range in_group = own(block);
      const std::int64_t first = group_of(block) * channels;
      return {first + in_group.begin, first + in_group.end};
    }
  };
  static std::int64_t even_block(std::int64_t channels, std::int64_t most) {
    return ceil_divide(channels, ceil_divide(channels, most));
  }

  // Rows of outputs of a slice of an image, and of the input the first that their windows have.
  struct Cut {
    std::int64_t image, d;
    Range h;
    std::int64_t first_row;
  };

  // Sums (pairs of output blocks, inputs, taps, outputs of the pair) from a pair and an input on.
  struct Sums {
    float* data;
    std::int64_t first_block, first_input, inputs;
  };

  void cut(double level2_bytes, std::int64_t wanted) {
    const auto number = [](std::int64_t value) { return static_cast<double>(value); };
    const double part_bytes = number(part_sums()) * sizeof(float);
    is_by_inputs_ =
        part_bytes * number(wanted) > kMostPartBytes || s_.batch * s_.out[0] * s_.out[1] < wanted;
    rows_at_once_ = s_.out[1];
    const double output_row = number(outputs_.all_blocks()) * number(row_.steps * outputs_.width);
    const auto bytes = [&] {
      const double words = number(all_rows()) * number(row_.row_words()) * number(inputs_.size);
      return (words + (is_by_inputs_ ? 0 : number(rows_at_once_) * output_row)) * sizeof(float);
    };
    // Of all inputs: blocks share cache lines where channels lie side by side.
    const auto input_bytes = [&] {
      if (is_by_inputs_) return 0.0;
      const std::int64_t rows = std::min(all_rows(), rows_at_once_ * kernel_rows_);
      return number(rows) * number(s_.inputs) * number(s_.in[2]) * sizeof(BFloat16);
    };
    const double most = kTileShare * level2_bytes;
    while (rows_at_once_ > 1 && (bytes() > most || bytes() + input_bytes() > level2_bytes)) {
      rows_at_once_ = ceil_divide(rows_at_once_, 2);
    }
    const std::int64_t slices = s_.batch * s_.out[0];
    if (!is_by_inputs_) {
      rows_at_once_ = std::min(rows_at_once_, ceil_divide(s_.out[1], ceil_divide(wanted, slices)));
    }
    cuts_ = slices * ceil_divide(s_.out[1], rows_at_once_);
    parts_ = std::min(cuts_, wanted);
    splits_ =
        std::min(outputs_.pairs(), ceil_divide(kTasksPerThread * wanted, inputs_.all_blocks()));
    fits_ = bytes() <= most &&
            (!is_by_inputs_ ||
             number(cuts_ * rows_at_once_) * output_row * sizeof(float) <= kMostSharedBytes);
  }
  std::int64_t source_rows() const {
    return (rows_at_once_ - 1) * s_.stride[1] + (s_.kernel[1] - 1) * s_.dilation[1] + 1;
  }
  std::int64_t all_rows() const { return s_.kernel[0] * source_rows(); }
  Cut cut_of(std::int64_t index) const {
    const std::int64_t cuts = ceil_divide(s_.out[1], rows_at_once_);
    Cut cut{};
    cut.h.begin = index % cuts * rows_at_once_;
    cut.h.end = std::min(cut.h.begin + rows_at_once_, s_.out[1]);
    cut.d = index / cuts % s_.out[0];
    cut.image = index / cuts / s_.out[0];
    cut.first_row = cut.h.begin * s_.stride[1] - s_.padding[1];
    return cut;
  }

  // Memory of the engine: the sums of the parts, or the outputs of all cuts; magnitudes.
  std::int64_t weight_sums() const {
    return outputs_.all_blocks() * outputs_.width * inputs_.channels * s_.taps();
  }
  std::int64_t bias_sums() const {
    return s_.makes_bias ? outputs_.all_blocks() * outputs_.width : 0;
  }
  std::int64_t part_sums() const { return weight_sums() + bias_sums(); }
  float* part(const ConvBuffers& b, std::int64_t index) const {
    return reinterpret_cast<float*>(b.memory) + index * part_sums();
  }
  float* shared_outputs(const ConvBuffers& b, std::int64_t index) const {
    return reinterpret_cast<float*>(b.memory) + index * output_words();
  }
  std::size_t magnitudes_at() const {
    const std::int64_t sums = is_by_inputs_ ? cuts_ * output_words() : parts_ * part_sums();
    return whole_lines(static_cast<std::size_t>(sums) * sizeof(float));
  }
  Magnitudes* magnitudes(const ConvBuffers& b) const {
    return reinterpret_cast<Magnitudes*>(b.memory + magnitudes_at());
  }
  // Tasks that have looked at numbers.
  std::int64_t watched() const { return tasks(0) + (is_by_inputs_ ? tasks(1) : 0); }

  // Memory of a worker: words of a block of inputs, of outputs; rows that become words; sums of a
  // block of inputs; lists of runs.
  std::int64_t input_words() const { return all_rows() * row_.row_words() * inputs_.size; }
  std::int64_t block_words() const { return rows_at_once_ * row_.steps * outputs_.width; }
  std::int64_t output_words() const { return outputs_.all_blocks() * block_words(); }
  float* own_words(const ConvBuffers& b) const { return reinterpret_cast<float*>(b.scratch); }
  float* own_outputs(const ConvBuffers& b) const { return own_words(b) + input_words(); }
  std::size_t staged_at() const {
    return whole_lines(
        static_cast<std::size_t>(input_words() + (is_by_inputs_ ? 0 : output_words())) *
        sizeof(float));
  }
  BFloat16* staged(const ConvBuffers& b) const {
    return reinterpret_cast<BFloat16*>(b.scratch + staged_at());
  }
  std::size_t own_sums_at() const {
    const std::int64_t input = RowWords::staged_size(inputs_.size, row_.row_numbers(), all_rows());
    const std::int64_t output =
        RowWords::staged_size(kPair * outputs_.width, kPair * row_.steps, rows_at_once_);
    return staged_at() +
           whole_lines(static_cast<std::size_t>(std::max(input, output)) * sizeof(BFloat16));
  }
  float* own_sums(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.scratch + own_sums_at());
  }
  std::size_t lists_at() const {
    const std::int64_t split = ceil_divide(outputs_.pairs(), splits_) * kPair * outputs_.width;
    const std::int64_t sums = is_by_inputs_ ? split * (inputs_.size * s_.taps() + 1) : 0;
    return own_sums_at() + whole_lines(static_cast<std::size_t>(sums) * sizeof(float));
  }
  // Of each row of the kernel, and of all rows; how many runs there are.
  std::int64_t lists() const { return kernel_rows_ + 1; }
  std::size_t list_bytes() const {
    return static_cast<std::size_t>(lists()) *
           (static_cast<std::size_t>(rows_at_once_) * sizeof(BlockRun) + sizeof(std::int64_t));
  }
  BlockRun* runs(const ConvBuffers& b, std::int64_t list) const {
    return reinterpret_cast<BlockRun*>(b.scratch + lists_at()) + list * rows_at_once_;
  }
  std::int64_t* run_counts(const ConvBuffers& b) const {
    return reinterpret_cast<std::int64_t*>(runs(b, lists()));
  }

  void sum_part(const ConvBuffers& b, std::int64_t index, PairMagnitudes& output,
                PairMagnitudes& input) const {
    std::fill_n(part(b, index), part_sums(), 0.0f);
    const Sums sums{part(b, index), 0, 0, inputs_.channels};
    float* const bias = s_.makes_bias ? part(b, index) + weight_sums() : nullptr;
    const Range pairs{0, outputs_.pairs()};
    const Range own = share_of(cuts_, parts_, index);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const Cut cut = cut_of(i);
      bring_outputs(b, cut, {0, outputs_.all_pairs()}, own_outputs(b), output);
      for (std::int64_t block = 0; block < inputs_.all_blocks(); ++block) {
        add_block(b, cut, block, pairs, own_outputs(b), sums, input);
      }
      for (std::int64_t pair = 0; bias != nullptr && pair < outputs_.all_pairs(); ++pair) {
        add_bias(b, pair, own_outputs(b), bias + outputs_.first_block(pair) * outputs_.width);
      }
    }
  }

  // All weights of a block of inputs, and some pairs of blocks of outputs of their group.
  void sum_inputs(const ConvBuffers& b, std::int64_t block, std::int64_t split,
                  PairMagnitudes& input) const {
    const Range pairs = share_of(outputs_.pairs(), splits_, split);
    const std::int64_t group = inputs_.group_of(block) * outputs_.pairs();
    const Range own = inputs_.own(block), all{group + pairs.begin, group + pairs.end};
    const Range blocks = outputs_.blocks_of(all);
    const std::int64_t lanes = blocks.size() * outputs_.width;
    const Sums sums{own_sums(b), blocks.begin, own.begin, own.size()};
    float* const bias = own_sums(b) + lanes * own.size() * s_.taps();
    std::fill_n(own_sums(b), lanes * (own.size() * s_.taps() + 1), 0.0f);
    const bool adds_bias = s_.makes_bias && own.begin == 0;
    for (std::int64_t i = 0; i < cuts_; ++i) {
      const Cut cut = cut_of(i);
      add_block(b, cut, block, pairs, shared_outputs(b, i), sums, input);
      for (std::int64_t pair = all.begin; adds_bias && pair < all.end; ++pair) {
        add_bias(b, pair, shared_outputs(b, i),
                 bias + (outputs_.first_block(pair) - blocks.begin) * outputs_.width);
      }
    }
    for (std::int64_t pair = all.begin; pair < all.end; ++pair) {
      if (s_.makes_weight) put(b, pair, sums);
      if (adds_bias) {
        put_bias(b, pair, bias + (outputs_.first_block(pair) - blocks.begin) * outputs_.width);
      }
    }
  }

  // Tensors by rows that are joined.
  Activation by_joined_rows(const Activation& tensor) const {
    Activation own = tensor;
    own.stride_bytes[1] *= joined_;
    return own;
  }
  JoinedRows joined_rows(const Activation& tensor) const {
    return {joined_, row_size_, tensor.stride_bytes[1]};
  }

  // Of pairs of blocks, (blocks, rows, steps, outputs), a zero behind an odd number of positions.
  void bring_outputs(const ConvBuffers& b, const Cut& cut, const Range& pairs, float* to,
                     PairMagnitudes& found) const {
    for (std::int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
      float* const own = to + outputs_.first_block(pair) * block_words();
      const RowWords rows(pairs_, words_, by_joined_rows(b.output), joined_rows(b.output),
                          outputs_.channels_of_pair(pair), kPair * row_.steps, cut.h.size(),
                          staged(b), {own, kPair, outputs_.width, block_words()});
      for (std::int64_t h = cut.h.begin; h < cut.h.end; ++h) {
        rows.bring(cut.image, cut.d, h, {0, 1, s_.out[2]}, h - cut.h.begin);
      }
      rows.finish(found);
    }
  }

  bool is_inside(int axis, std::int64_t input) const { return input >= 0 && input < s_.in[axis]; }
  std::int64_t input_slice(const Cut& cut, std::int64_t tap) const {
    return cut.d * s_.stride[0] - s_.padding[0] + tap * s_.dilation[0];
  }

  // Windows further apart than they are high have rows between them.
  bool is_in_a_window(std::int64_t row) const {
    for (std::int64_t tap = 0; tap < s_.kernel[1]; ++tap) {
      if ((row - tap * s_.dilation[1]) % s_.stride[1] == 0) return true;
    }
    return false;
  }

  // Rows of the input that windows of the cut have, (slices, rows, lines, numbers, inputs).
  void bring_input(const ConvBuffers& b, const Cut& cut, const Range& channels,
                   PairMagnitudes& found) const {
    const RowWords rows(full_pairs_, full_words_, by_joined_rows(b.input), joined_rows(b.input),
                        channels, row_.numbers, all_rows() * row_.lines(), staged(b),
                        {own_words(b), row_.every, channels.size(), full_words_.width});
    for (std::int64_t i = 0; i < all_rows(); ++i) {
      const std::int64_t d = input_slice(cut, i / source_rows());
      const std::int64_t h = cut.first_row + i % source_rows();
      for (std::int64_t line = 0; line < row_.lines(); ++line) {
        const std::int64_t first = row_.remainders[static_cast<std::size_t>(line)] - s_.padding[2];
        if (is_inside(0, d) && is_inside(1, h) && is_in_a_window(i % source_rows())) {
          rows.bring(cut.image, d, h, {first, s_.stride[2], s_.in[2]}, i * row_.lines() + line);
        } else {
          rows.clear(i * row_.lines() + line);
        }
      }
    }
    rows.finish(found);
  }

  // Rows of outputs whose window has the row of the kernel inside the input; then all.
  void list_runs(const ConvBuffers& b, const Cut& cut, std::int64_t row_words) const {
    const std::int64_t output_row = row_.steps * outputs_.width;
    for (std::int64_t list = 0; list < lists(); ++list) {
      const bool has_all = list == kernel_rows_;
      const std::int64_t slice = list / s_.kernel[1], tap = list % s_.kernel[1] * s_.dilation[1];
      const bool has_some = has_all || is_inside(0, input_slice(cut, slice));
      std::int64_t count = 0;
      for (std::int64_t h = 0; has_some && h < cut.h.size(); ++h) {
        const std::int64_t at = h * s_.stride[1] + tap;
        if (!has_all && !is_inside(1, cut.first_row + at)) continue;
        const std::int64_t row = has_all ? 0 : slice * source_rows() + at;
        runs(b, list)[count++] = {row * row_words, h * output_row};
      }
      run_counts(b)[list] = count;
    }
  }

  // All taps of a block of inputs and of these pairs of output blocks of its group.
  void add_block(const ConvBuffers& b, const Cut& cut, std::int64_t block, const Range& pairs,
                 const float* outputs, const Sums& sums, PairMagnitudes& input) const {
    const Range own = inputs_.own(block);
    bring_input(b, cut, inputs_.all(block), input);
    list_runs(b, cut, row_.row_words() * own.size());
    const std::int64_t group = inputs_.group_of(block) * outputs_.pairs();
    for (std::int64_t pair = group + pairs.begin; pair < group + pairs.end; ++pair) {
      BlockProducts p = products_of(pair, outputs);
      const std::int64_t lanes = p.vectors * outputs_.width;
      float* const to = sums_of(sums, pair) + (own.begin - sums.first_input) * s_.taps() * lanes;
      p.left_step = kPair / row_.every * own.size();
      p.sum_step = s_.taps() * lanes;
      p.rows = own.size();
      for (std::int64_t tap = 0; tap < s_.taps(); ++tap) {
        const RowTaps::Tap& at = row_.taps[static_cast<std::size_t>(tap % s_.kernel[2])];
        p.left = own_words(b) + (at.line * row_.numbers + at.shift) / row_.every * own.size();
        p.runs = runs(b, tap / s_.kernel[2]);
        p.run_count = run_counts(b)[tap / s_.kernel[2]];
        p.sums = to + tap * lanes;
        if (p.run_count > 0) pairs_.conv.multiply_channels(p);
      }
    }
  }
  BlockProducts products_of(std::int64_t pair, const float* outputs) const {
    BlockProducts p{};
    p.run_length = row_.steps;
    p.right = outputs + outputs_.first_block(pair) * block_words();
    p.right_step = outputs_.width;
    p.right_pitch = block_words();
    p.vectors = outputs_.blocks_of_pair(pair);
    p.sum_pitch = outputs_.width;
    p.adds = true;
    return p;
  }
  float* sums_of(const Sums& sums, std::int64_t pair) const {
    return sums.data + (outputs_.first_block(pair) - sums.first_block) * outputs_.width *
                           sums.inputs * s_.taps();
  }

  // The products with a pair of ones.
  void add_bias(const ConvBuffers& b, std::int64_t pair, const float* outputs, float* sums) const {
    static constexpr std::uint32_t kOnes = 0x3f803f80;
    BlockProducts p = products_of(pair, outputs);
    p.left = &kOnes;
    p.runs = runs(b, kernel_rows_);
    p.run_count = run_counts(b)[kernel_rows_];
    p.sums = sums;
    p.rows = 1;
    pairs_.conv.multiply_channels(p);
  }

  void write_parts(const ConvBuffers& b, std::int64_t pair) const {
    const std::int64_t lanes = outputs_.blocks_of_pair(pair) * outputs_.width;
    const Sums sums{part(b, 0), 0, 0, inputs_.channels};
    add_parts(sums_of(sums, pair), lanes * inputs_.channels * s_.taps(), parts_, part_sums());
    if (s_.makes_weight) put(b, pair, sums);
    if (!s_.makes_bias) return;
    float* const bias = part(b, 0) + weight_sums() + outputs_.first_block(pair) * outputs_.width;
    add_parts(bias, lanes, parts_, part_sums());
    put_bias(b, pair, bias);
  }
  void put(const ConvBuffers& b, std::int64_t pair, const Sums& sums) const {
    const Range own = outputs_.channels_of_pair(pair);
    const Weights& weight = b.weight_product;
    weights_.put(weight, {weight.at(own.begin, sums.first_input), weight.input_stride_bytes,
                          weight.output_stride_bytes, sums.inputs, own.size(), sums_of(sums, pair),
                          outputs_.blocks_of_pair(pair) * outputs_.width});
  }
  void put_bias(const ConvBuffers& b, std::int64_t pair, float* sums) const {
    const Range own = outputs_.channels_of_pair(pair);
    copy_.put_line(b.bias_sums.data + own.begin * b.bias_sums.stride_bytes,
                   b.bias_sums.stride_bytes, own.size(), sums);
  }

  const ConvShape s_;
  const std::int64_t joined_, row_size_;  // rows that are taken for one, and their size
  const PairKernels& pairs_;
  const PairKernels& full_pairs_;
  const ConvKernels &full_words_, &words_;
  const TileCopy<float> copy_;
  const WeightCopy<float> weights_;
  const BlockSide outputs_;
  const InputBlocks inputs_;
  const RowTaps row_;
  const std::int64_t kernel_rows_;
  bool fits_ = true, is_by_inputs_ = false;
  std::int64_t rows_at_once_ = 1, cuts_ = 1, parts_ = 1, splits_ = 1;
};

}  // namespace

ConvShape with_joined_rows(const ConvShape& shape) {
  constexpr std::int64_t kLongEnough = 48, kMostJoined = 256;
  ConvShape joined = shape;
  const std::int64_t size = shape.out[2];
  if (!shape.is_pointwise() || size > kLongEnough) return joined;
  for (std::int64_t rows = shape.out[1]; rows > 1; --rows) {
    if (shape.out[1] % rows != 0 || rows * size > kMostJoined) continue;
    joined.in[1] = joined.out[1] = shape.out[1] / rows;
    joined.in[2] = joined.out[2] = rows * size;
    break;
  }
  return joined;
}

std::unique_ptr<const ConvEngine> make_pair_weights(const ConvTask& task, VectorSize size,
                                                    std::unique_ptr<const ConvEngine> careful) {
  const ConvKernels& kernels = conv_kernels(task.cpu.isa(), task.dtype, size);
  const PairKernels* const pairs = pair_kernels(task.cpu, kernels.width);
  const PairKernels* const full =
      pair_kernels(task.cpu, conv_kernels(task.cpu.isa(), task.dtype).width);
  if (!careful || pairs == nullptr || full == nullptr) return nullptr;
  auto engine = std::make_unique<PairWeightProduct>(task, kernels, *pairs, *full);
  if (!engine->fits()) return nullptr;
  return std::make_unique<CarefulEngine>(std::move(engine), std::move(careful));
}

}  // namespace backops

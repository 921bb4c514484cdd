// The input product of turned problems with few outputs: a convolution of few channels forward. In
// rows that have the channels innermost, the numbers that a window has of one row lie side by side.
// They are the numbers of a matrix product, and windows begin `stride * channels` apart, so strides
// cost nothing and no lane is empty.
//
// Rows hold sums; or bfloat16 numbers as they are, which are multiplied in pairs. A window of an
// odd number of these takes the one behind it along, whose weight is zero.
#include "ops/conv/rows/engine.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/blocks/engine.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/careful.h"
#include "ops/conv/copy.h"
#include "ops/conv/finite.h"
#include "ops/conv/parts.h"
#include "ops/conv/rows/weights.h"

namespace backops {
namespace {

constexpr double kTileShare = 0.375;  // of a second-level cache
constexpr std::int64_t kMostColumns = 512;

template <class Sum, class Number>
class RowsEngine : public WatchingEngine {
 public:
  static constexpr bool has_pairs = !std::is_same_v<Sum, Number>;

  // `pairs` is null without pairs.
  RowsEngine(const ConvTask& task, const ConvKernels& kernels, const PairKernels* pairs)
      : s_(task.shape),
        kernels_(kernels),
        pairs_(pairs),
        copy_(kernels, task.rounding, convert_kernels(kernels.isa)),
        rows_(copy_, s_.outputs),
        inputs_{kernels.width, 1, s_.inputs},
        numbers_(round_up(s_.kernel[2] * s_.outputs, kNumbersAtOnce)),
        kernel_rows_(s_.kernel[0] * s_.kernel[1]) {
    cut(kTileShare * static_cast<double>(task.cpu.level2_bytes) / sizeof(Sum),
        tasks_per_thread(s_, task.cuts.threads) * task.cuts.threads);
  }

  bool fits() const { return fits_; }

  std::string name() const override {
    return std::string("rows:") + name_of(has_pairs ? pairs_->conv.isa : kernels_.isa) +
           (kernels_.size == VectorSize::half ? ":half" : "");
  }

  std::size_t engine_bytes() const override {
    return magnitudes_at() +
           (has_pairs ? static_cast<std::size_t>(tasks(0) + tasks(1)) * sizeof(Magnitudes) : 0);
  }
  std::size_t worker_bytes() const override {
    const std::size_t spare = static_cast<std::size_t>(kSpareSums) * sizeof(Sum);
    const std::size_t list = static_cast<std::size_t>(kernel_rows_) * sizeof(BlockRun);
    return std::max(spare_at() + spare + list,
                    has_pairs ? static_cast<std::size_t>(most_weights()) * sizeof(Sum) : 0);
  }

  // Put the weights in order; the product.
  int phases() const override { return 2; }
  std::int64_t tasks(int phase) const override {
    return phase == 0 ? inputs_.pairs() : s_.batch * s_.in[0] * row_cuts_ * column_cuts_;
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    PairMagnitudes found;
    phase == 0 ? pack(b, task, found) : write(b, task, found);
    if (has_pairs) magnitudes(b)[task + (phase == 1 ? tasks(0) : 0)] = joined(found);
  }

  bool saw_normal_only(const ConvBuffers& b) const override {
    Magnitudes weight, output;
    for (std::int64_t i = 0; i < tasks(0) + tasks(1); ++i) {
      (i < tasks(0) ? weight : output).add(magnitudes(b)[i]);
    }
    return are_normal(output, weight);
  }

 private:
  static constexpr std::int64_t kSpareSums = ChannelRows<Sum>::kSpareSums;
  static constexpr std::int64_t kNumbersAtOnce = has_pairs ? 2 : 1;

  // Results of a slice of an image.
  struct Cut {
    std::int64_t image, d;
    Range h, w;
  };

  // Rows of the source and of the results fit a cache together.
  void cut(double most_sums, std::int64_t least_tasks) {
    column_cuts_ = ceil_divide(s_.in[2], kMostColumns);
    columns_ = ceil_divide(s_.in[2], column_cuts_);
    row_numbers_ =
        round_up(((columns_ - 1) * s_.stride[2] + s_.kernel[2]) * s_.outputs + kNumbersAtOnce - 1,
                 inputs_.width);
    const auto sums = [&](std::int64_t rows) {
      const double source = static_cast<double>(s_.kernel[0]) *
                            static_cast<double>(source_rows(rows)) *
                            static_cast<double>(row_numbers_);
      return source * sizeof(Number) / sizeof(Sum) +
             static_cast<double>(rows * columns_ * BlockSide::kPair * inputs_.width);
    };
    rows_at_once_ = s_.in[1];
    while (rows_at_once_ > 1 && sums(rows_at_once_) > most_sums) {
      rows_at_once_ = ceil_divide(rows_at_once_, 2);
    }
    fits_ = sums(rows_at_once_) <= 4 * most_sums;
    const std::int64_t others = s_.batch * s_.in[0] * column_cuts_;
    const std::int64_t wanted =
        std::min(s_.in[1], std::max(ceil_divide(s_.in[1], rows_at_once_),
                                    ceil_divide(least_tasks, std::max<std::int64_t>(1, others))));
    rows_at_once_ = ceil_divide(s_.in[1], wanted);
    row_cuts_ = ceil_divide(s_.in[1], rows_at_once_);
  }

  std::int64_t source_rows(std::int64_t rows) const {
    return (rows - 1) * s_.stride[1] + (s_.kernel[1] - 1) * s_.dilation[1] + 1;
  }

  // Memory of the engine: for each pair of blocks, (kernel rows, numbers or pairs, inputs of the
  // pair of blocks); a number for each that tells whether its weights are finite; the bias;
  // magnitudes of what each task has seen.
  std::int64_t steps() const { return numbers_ / kNumbersAtOnce; }
  Sum* weights(const ConvBuffers& b, std::int64_t pair) const {
    return reinterpret_cast<Sum*>(b.memory) +
           inputs_.first_block(pair) * inputs_.width * kernel_rows_ * steps();
  }
  Sum* flags(const ConvBuffers& b) const { return weights(b, inputs_.pairs()); }
  std::int64_t bias_at() const {
    return round_up(inputs_.padded() * kernel_rows_ * steps() + inputs_.pairs(), inputs_.width);
  }
  Sum* bias(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.memory) + bias_at(); }
  std::size_t magnitudes_at() const {
    return whole_lines(static_cast<std::size_t>(bias_at() + (s_.adds_bias ? inputs_.padded() : 0)) *
                       sizeof(Sum));
  }
  Magnitudes* magnitudes(const ConvBuffers& b) const {
    return reinterpret_cast<Magnitudes*>(b.memory + magnitudes_at());
  }
  // Of a pair of blocks, as sums.
  std::int64_t most_weights() const {
    return kernel_rows_ * numbers_ * BlockSide::kPair * inputs_.width;
  }

  // Memory of a worker: rows of the source, results, what ChannelRows needs, a list. Or weights
  // that are not pairs yet.
  Number* source(const ConvBuffers& b) const { return reinterpret_cast<Number*>(b.scratch); }
  std::size_t results_at() const {
    return whole_lines(
        static_cast<std::size_t>(s_.kernel[0] * source_rows(rows_at_once_) * row_numbers_) *
        sizeof(Number));
  }
  std::int64_t result_pitch() const { return ((rows_at_once_ * columns_) | 1) * inputs_.width; }
  Sum* results(const ConvBuffers& b) const {
    return reinterpret_cast<Sum*>(b.scratch + results_at());
  }
  std::size_t spare_at() const {
    return results_at() + static_cast<std::size_t>(BlockSide::kPair * result_pitch()) * sizeof(Sum);
  }
  Sum* spare(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.scratch + spare_at()); }
  BlockRun* list(const ConvBuffers& b) const {
    return reinterpret_cast<BlockRun*>(spare(b) + kSpareSums);
  }

  // A pair of blocks of inputs.
  void pack(const ConvBuffers& b, std::int64_t pair, PairMagnitudes& found) const {
    const std::int64_t width = inputs_.blocks_of_pair(pair) * inputs_.width;
    const Range channels = inputs_.channels_of_pair(pair);
    Sum* const to = has_pairs ? reinterpret_cast<Sum*>(b.scratch) : weights(b, pair);
    const std::int64_t count = kernel_rows_ * numbers_ * width;
    const bool is_whole = channels.size() == width && numbers_ == s_.kernel[2] * s_.outputs;
    if (!is_whole) std::fill_n(to, count, Sum{0});
    for (std::int64_t row = 0; row < kernel_rows_; ++row) {
      const std::int64_t offset = row / s_.kernel[1] * b.weight.stride_bytes[0] +
                                  row % s_.kernel[1] * b.weight.stride_bytes[1];
      for (std::int64_t c = 0; c < s_.outputs; ++c) {
        kernels_.to_lanes({b.weight.at(c, channels.begin) + offset, b.weight.input_stride_bytes,
                           b.weight.stride_bytes[2], to + (row * numbers_ + c) * width,
                           s_.outputs * width, inputs_.width, channels.size(), s_.kernel[2]});
      }
    }
    if constexpr (has_pairs) {
      pairs_->pack({to, width, kernel_rows_ * steps(), width, weights(b, pair), width});
      pairs_->watch({weights(b, pair), count, &found});
    } else {
      copy_.round(to, count);
      flags(b)[pair] = all_finite(to, count) ? Sum{1} : Sum{0};
    }
    if (s_.adds_bias) {
      copy_.bring_bias(b.bias, channels, bias(b) + inputs_.first_block(pair) * inputs_.width);
    }
  }

  void write(const ConvBuffers& b, std::int64_t task, PairMagnitudes& found) const {
    Cut cut{};
    const std::int64_t column = task % column_cuts_ * columns_;
    cut.w = {column, std::min(column + columns_, s_.in[2])};
    task /= column_cuts_;
    const std::int64_t row = task % row_cuts_ * rows_at_once_;
    cut.h = {row, std::min(row + rows_at_once_, s_.in[1])};
    task /= row_cuts_;
    cut.d = task % s_.in[0];
    cut.image = task / s_.in[0];
    bring(b, cut, found);
    for (std::int64_t pair = 0; pair < inputs_.pairs(); ++pair) {
      for (std::int64_t h = cut.h.begin; h < cut.h.end; ++h) multiply(b, cut, pair, h);
      put(b, cut, pair);
    }
  }

  // Where tap i of a window that begins there is along an axis; outside of the tensor for some.
  std::int64_t output_of(int axis, std::int64_t input, std::int64_t tap) const {
    return input * s_.stride[axis] - s_.padding[axis] + tap * s_.dilation[axis];
  }
  bool is_inside(int axis, std::int64_t output) const {
    return output >= 0 && output < s_.out[axis];
  }
  // In scratch memory, from the first column of the cut on.
  std::int64_t row_at(const Cut& cut, std::int64_t slice, std::int64_t h) const {
    return (slice * source_rows(rows_at_once_) + h - output_of(1, cut.h.begin, 0)) * row_numbers_;
  }

  void bring(const ConvBuffers& b, const Cut& cut, PairMagnitudes& found) const {
    const std::int64_t first = output_of(2, cut.w.begin, 0);
    const std::int64_t end = output_of(2, cut.w.end - 1, 0) + s_.kernel[2];
    const std::int64_t begin = std::clamp<std::int64_t>(0, first, end);
    const Range inside{begin, std::clamp(s_.out[2], begin, end)};
    const Range rows =
        common({output_of(1, cut.h.begin, 0), output_of(1, cut.h.end - 1, s_.kernel[1] - 1) + 1},
               {0, s_.out[1]});
    for (std::int64_t slice = 0; slice < s_.kernel[0]; ++slice) {
      const std::int64_t d = output_of(0, cut.d, slice);
      if (!is_inside(0, d) || rows.size() <= 0) continue;
      Number* const to = source(b) + row_at(cut, slice, rows.begin);
      const std::int64_t count = (end - first) * s_.outputs + kNumbersAtOnce - 1;
      for (std::int64_t i = 0; i < rows.size(); ++i) {
        Number* const row = to + i * row_numbers_;
        std::fill(row, row + (inside.begin - first) * s_.outputs, Number{});
        std::fill(row + (inside.end - first) * s_.outputs, row + count, Number{});
      }
      rows_.bring_rows(b.output, {cut.image, d, rows.begin}, rows.size(), inside,
                       to + (inside.begin - first) * s_.outputs, row_numbers_, spare(b));
      for (std::int64_t i = 0; has_pairs && i < rows.size(); ++i) {
        pairs_->watch({to + i * row_numbers_, count, &found});
      }
    }
  }

  // A row of results. Weights that are not finite must not meet the zeros beside the source: then
  // it goes column by column.
  void multiply(const ConvBuffers& b, const Cut& cut, std::int64_t pair, std::int64_t h) const {
    const bool are_finite = has_pairs || flags(b)[pair] != 0;
    BlockProducts p{};
    p.vectors = inputs_.blocks_of_pair(pair);
    const std::int64_t width = p.vectors * inputs_.width;
    BlockRun* const runs = list(b);
    for (std::int64_t row = 0; row < kernel_rows_; ++row) {
      const std::int64_t slice = row / s_.kernel[1];
      const std::int64_t source_h = output_of(1, h, row % s_.kernel[1]);
      if (!is_inside(0, output_of(0, cut.d, slice)) || !is_inside(1, source_h)) continue;
      runs[p.run_count++] = {row_at(cut, slice, source_h), row * steps() * width};
    }
    p.runs = runs;
    p.left_step = kNumbersAtOnce;
    p.left_pitch = s_.stride[2] * s_.outputs;
    p.right_step = width;
    p.right_pitch = inputs_.width;
    p.sum_step = inputs_.width;
    p.sum_pitch = result_pitch();
    const std::int64_t at_once = are_finite ? cut.w.size() : 1;
    for (std::int64_t w = cut.w.begin; w < cut.w.end; w += at_once) {
      const Range taps = are_finite ? Range{0, s_.kernel[2]} : taps_inside(w);
      const std::int64_t skipped = taps.begin * s_.outputs;
      p.left = source(b) + (w - cut.w.begin) * p.left_pitch + skipped;
      p.right = weights(b, pair) + skipped * width;
      p.run_length = are_finite ? steps() : taps.size() * s_.outputs;
      p.sums = results(b) + ((h - cut.h.begin) * cut.w.size() + w - cut.w.begin) * inputs_.width;
      p.rows = at_once;
      (has_pairs ? pairs_->conv : kernels_).multiply_apart(p);
    }
  }

  Range taps_inside(std::int64_t w) const {
    const std::int64_t first = output_of(2, w, 0);
    const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, s_.kernel[2]);
    return {begin, std::clamp(s_.out[2] - first, begin, s_.kernel[2])};
  }

  void put(const ConvBuffers& b, const Cut& cut, std::int64_t pair) const {
    Box box{};
    box.images = {cut.image, cut.image + 1};
    box.axes[0] = {cut.d, cut.d + 1};
    box.axes[1] = cut.h;
    box.axes[2] = cut.w;
    box.step[2] = 1;
    box.step[1] = cut.w.size();
    copy_.put(b.input_product, box, inputs_.channels_of_pair(pair), results(b), result_pitch(),
              s_.adds_bias ? bias(b) + inputs_.first_block(pair) * inputs_.width : nullptr);
  }

  const ConvShape s_;
  const ConvKernels& kernels_;
  const PairKernels* const pairs_;
  const TileCopy<Sum> copy_;
  const std::conditional_t<has_pairs, ElementRows<Sum>, ChannelRows<Sum>> rows_;
  const BlockSide inputs_;
  const std::int64_t numbers_, kernel_rows_;  // numbers of a window in one row
  bool fits_ = true;
  std::int64_t rows_at_once_ = 1, row_cuts_ = 1;
  std::int64_t columns_ = 1, column_cuts_ = 1, row_numbers_ = 0;
};

}  // namespace

std::unique_ptr<const ConvEngine> make_rows_engine(const ConvTask& task, VectorSize size) {
  if (task.shape.makes_weight) return make_row_weights(task, size, make_blocks_engine(task, size));
  const ConvKernels& kernels = conv_kernels(task.cpu.isa(), task.dtype, size);
  const auto made = [](auto engine) -> std::unique_ptr<const ConvEngine> {
    if (!engine->fits()) return nullptr;
    return engine;
  };
  if (task.shape.is_double) {
    return made(std::make_unique<RowsEngine<double, double>>(task, kernels, nullptr));
  }
  const PairKernels* const pairs = row_pairs(task, size);
  if (pairs == nullptr) {
    return made(std::make_unique<RowsEngine<float, float>>(task, kernels, nullptr));
  }
  auto careful = make_blocks_engine(task, size);
  auto engine = std::make_unique<RowsEngine<float, BFloat16>>(task, kernels, pairs);
  if (!careful || !engine->fits()) return nullptr;
  return std::make_unique<CarefulEngine>(std::move(engine), std::move(careful));
}

const PairKernels* row_pairs(const ConvTask& task, VectorSize size) {
  if (task.dtype != DType::bfloat16) return nullptr;
  return pair_kernels(task.cpu, conv_kernels(task.cpu.isa(), task.dtype, size).width);
}

}  // namespace backops

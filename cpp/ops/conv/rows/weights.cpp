// The weight product of few inputs, of bfloat16 numbers: the first layer of a network. In rows that
// have the channels innermost, the numbers that a window has of one row lie side by side, and are
// the rows of a matrix product whose vectors are outputs. Positions are multiplied in pairs: a row
// is kept as the pairs of its numbers with those of the next window, so that every window begins
// `stride * channels` words after the one before.
#include "ops/conv/rows/weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/careful.h"
#include "ops/conv/copy.h"
#include "ops/conv/parts.h"
#include "ops/conv/row_cuts.h"

namespace backops {
namespace {

constexpr int kPair = BlockSide::kPair;
constexpr double kTileShare = 0.5;  // of a second-level cache

class RowWeights : public WatchingEngine {
 public:
  RowWeights(const ConvTask& task, const ConvKernels& kernels, const PairKernels& pairs)
      : s_(task.shape),
        kernels_(kernels),
        pairs_(pairs),
        copy_(kernels, Rounding::none, convert_kernels(kernels.isa)),
        source_(copy_, s_.inputs),
        outputs_{kernels.width, 1, s_.outputs},
        numbers_(s_.kernel[2] * s_.inputs),
        kernel_rows_(s_.kernel[0] * s_.kernel[1]),
        steps_(ceil_divide(s_.out[2], kPair)),
        cuts_(s_) {
    cut(kTileShare * static_cast<double>(task.cpu.level2_bytes) / sizeof(float), task.cuts.parts());
  }

  bool fits() const { return fits_; }

  std::string name() const override {
    return std::string("rows:") + name_of(pairs_.conv.isa) +
           (pairs_.conv.size == VectorSize::half ? ":half" : "");
  }

  std::size_t engine_bytes() const override {
    return magnitudes_at() + static_cast<std::size_t>(2 * parts_) * sizeof(Magnitudes);
  }
  std::size_t worker_bytes() const override { return list_at() + list_bytes(); }

  // The sums of the parts; add and write them.
  int phases() const override { return 2; }
  std::int64_t tasks(int phase) const override { return phase == 0 ? parts_ : outputs_.pairs(); }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 1) return write(b, task);
    PairMagnitudes output, input;
    sum_part(b, task, output, input);
    magnitudes(b)[2 * task] = joined(output);
    magnitudes(b)[2 * task + 1] = joined(input);
  }

  bool saw_normal_only(const ConvBuffers& b) const override {
    Magnitudes output, input;
    for (std::int64_t part = 0; part < parts_; ++part) {
      output.add(magnitudes(b)[2 * part]);
      input.add(magnitudes(b)[2 * part + 1]);
    }
    return are_normal(output, input);
  }

 private:
  void cut(double most_sums, std::int64_t wanted) {
    row_words_ =
        round_up((kPair * steps_ * s_.stride[2] + s_.kernel[2]) * s_.inputs, outputs_.width);
    const auto sums = [&] {
      return static_cast<double>(s_.kernel[0] * cuts_.source_rows()) *
                 static_cast<double>(row_words_) +
             static_cast<double>(cuts_.rows_at_once * steps_) *
                 static_cast<double>(outputs_.padded());
    };
    while (cuts_.rows_at_once > 1 && sums() > most_sums) {
      cuts_.rows_at_once = ceil_divide(cuts_.rows_at_once, 2);
    }
    fits_ = sums() <= 4 * most_sums;
    cuts_.make(wanted);
    parts_ = std::min(cuts_.count(), wanted);
  }
  // Memory of the engine: for each part the sums, (pairs of blocks, kernel rows, numbers, outputs
  // of the pair of blocks), and those of the bias; magnitudes of what each part has seen.
  std::int64_t weight_sums() const { return outputs_.padded() * kernel_rows_ * numbers_; }
  std::int64_t part_sums() const { return weight_sums() + (s_.makes_bias ? outputs_.padded() : 0); }
  float* sums(const ConvBuffers& b, std::int64_t part, std::int64_t pair) const {
    return reinterpret_cast<float*>(b.memory) + part * part_sums() +
           outputs_.first_block(pair) * outputs_.width * kernel_rows_ * numbers_;
  }
  float* bias_sums(const ConvBuffers& b, std::int64_t part) const {
    return sums(b, part, 0) + weight_sums();
  }
  std::size_t magnitudes_at() const {
    return whole_lines(static_cast<std::size_t>(parts_ * part_sums()) * sizeof(float));
  }
  Magnitudes* magnitudes(const ConvBuffers& b) const {
    return reinterpret_cast<Magnitudes*>(b.memory + magnitudes_at());
  }

  // Memory of a worker: rows of the input as words, rows of outputs as pairs of positions, one row
  // of each as it comes, a list.
  float* words(const ConvBuffers& b) const { return reinterpret_cast<float*>(b.scratch); }
  std::int64_t words_sums() const { return s_.kernel[0] * cuts_.source_rows() * row_words_; }
  // Blocks of outputs of a row.
  std::int64_t block_sums() const { return steps_ * outputs_.width; }
  std::int64_t output_row_sums() const { return outputs_.blocks() * block_sums(); }
  float* output_row(const ConvBuffers& b, std::int64_t row) const {
    return words(b) + words_sums() + row * output_row_sums();
  }
  float* staged(const ConvBuffers& b) const { return output_row(b, cuts_.rows_at_once); }
  std::int64_t staged_sums() const {
    return std::max(kPair * output_row_sums(), row_words_ + s_.stride[2] * s_.inputs);
  }
  std::size_t list_at() const {
    return whole_lines(static_cast<std::size_t>(
                           words_sums() + cuts_.rows_at_once * output_row_sums() + staged_sums()) *
                       sizeof(float));
  }
  std::size_t list_bytes() const {
    return static_cast<std::size_t>(cuts_.rows_at_once) * sizeof(BlockRun);
  }

  void sum_part(const ConvBuffers& b, std::int64_t part, PairMagnitudes& output,
                PairMagnitudes& input) const {
    std::fill_n(sums(b, part, 0), part_sums(), 0.0f);
    const Range own = share_of(cuts_.count(), parts_, part);
    for (std::int64_t index = own.begin; index < own.end; ++index) {
      const RowCut cut = cuts_.cut(index);
      for (std::int64_t h = cut.h.begin; h < cut.h.end; ++h) {
        bring_output(b, cut, h, s_.makes_bias ? bias_sums(b, part) : nullptr, output);
      }
      bring_input(b, cut, input);
      for (std::int64_t pair = 0; pair < outputs_.pairs(); ++pair) {
        for (std::int64_t row = 0; row < kernel_rows_; ++row) multiply(b, cut, part, pair, row);
      }
    }
  }

  // A row of all outputs, a zero behind an odd number of positions.
  void bring_output(const ConvBuffers& b, const RowCut& cut, std::int64_t h, float* bias,
                    PairMagnitudes& found) const {
    const std::int64_t width = outputs_.width, pitch = kPair * block_sums();
    Box box{};
    box.images = {cut.image, cut.image + 1};
    box.axes[0] = {cut.d, cut.d + 1};
    box.axes[1] = {h, h + 1};
    box.axes[2] = {0, kPair * steps_};
    box.step[2] = 1;
    box.step[1] = kPair * steps_;
    if (outputs_.channels % width != 0) {
      std::fill_n(staged(b) + (outputs_.blocks() - 1) * pitch, pitch, 0.0f);
    }
    copy_.bring(b.output, s_.out, box, {0, s_.outputs}, staged(b), pitch);
    float* const to = output_row(b, h - cut.h.begin);
    for (std::int64_t block = 0; block < outputs_.blocks(); ++block) {
      const float* const from = staged(b) + block * pitch;
      if (bias != nullptr) kernels_.sum({from, width, s_.out[2], bias + block * width});
      pairs_.pack({from, width, steps_, width, to + block * block_sums(), width});
    }
    pairs_.watch({to, kPair * output_row_sums(), &found});
  }

  // Rows of the input that windows of the cut have, with zeros around.
  void bring_input(const ConvBuffers& b, const RowCut& cut, PairMagnitudes& found) const {
    auto* const row = reinterpret_cast<BFloat16*>(staged(b));
    const std::int64_t step = s_.stride[2] * s_.inputs, count = row_words_ + step;
    const Range inside =
        common({0, s_.in[2]}, {-s_.padding[2], ceil_divide(count, s_.inputs) - 1 - s_.padding[2]});
    const Range numbers{(inside.begin + s_.padding[2]) * s_.inputs,
                        (std::max(inside.begin, inside.end) + s_.padding[2]) * s_.inputs};
    std::fill_n(row, std::min(numbers.begin, count), BFloat16{});
    std::fill(row + std::min(numbers.end, count), row + count, BFloat16{});
    for (std::int64_t slice = 0; slice < s_.kernel[0]; ++slice) {
      const std::int64_t d = cuts_.input_slice(cut, slice);
      for (std::int64_t i = 0; cuts_.is_inside(0, d) && i < cuts_.source_rows(); ++i) {
        if (!cuts_.is_inside(1, cut.first_row + i)) continue;
        source_.bring(b.input, {cut.image, d, cut.first_row + i}, inside, row + numbers.begin,
                      nullptr);
        pairs_.watch({row, count, &found});
        pairs_.pair(
            {row, step, row_words_, words(b) + (slice * cuts_.source_rows() + i) * row_words_});
      }
    }
  }

  // One row of the kernel.
  void multiply(const ConvBuffers& b, const RowCut& cut, std::int64_t part, std::int64_t pair,
                std::int64_t row) const {
    const std::int64_t slice = row / s_.kernel[1], tap = row % s_.kernel[1] * s_.dilation[1];
    if (!cuts_.is_inside(0, cuts_.input_slice(cut, slice))) return;
    auto* const runs = reinterpret_cast<BlockRun*>(b.scratch + list_at());
    BlockProducts p{};
    for (std::int64_t h = 0; h < cut.h.size(); ++h) {
      const std::int64_t at = h * s_.stride[1] + tap;
      if (!cuts_.is_inside(1, cut.first_row + at)) continue;
      runs[p.run_count++] = {(slice * cuts_.source_rows() + at) * row_words_,
                             h * output_row_sums()};
    }
    if (p.run_count == 0) return;
    p.runs = runs;
    p.run_length = steps_;
    p.left = words(b);
    p.left_step = kPair * s_.stride[2] * s_.inputs;
    p.right = output_row(b, 0) + outputs_.first_block(pair) * block_sums();
    p.right_step = outputs_.width;
    p.right_pitch = block_sums();
    p.vectors = outputs_.blocks_of_pair(pair);
    p.sum_step = p.vectors * outputs_.width;
    p.sum_pitch = outputs_.width;
    p.sums = sums(b, part, pair) + row * numbers_ * p.sum_step;
    p.rows = numbers_;
    p.adds = true;
    pairs_.conv.multiply_channels(p);
  }

  // A pair of blocks of outputs.
  void write(const ConvBuffers& b, std::int64_t pair) const {
    const Range own = outputs_.channels_of_pair(pair);
    const std::int64_t width = outputs_.blocks_of_pair(pair) * outputs_.width;
    float* const total = sums(b, 0, pair);
    add_parts(total, kernel_rows_ * numbers_ * width, parts_, part_sums());
    const Weights& weight = b.weight_product;
    for (std::int64_t row = 0; s_.makes_weight && row < kernel_rows_; ++row) {
      const std::int64_t offset =
          row / s_.kernel[1] * weight.stride_bytes[0] + row % s_.kernel[1] * weight.stride_bytes[1];
      for (std::int64_t c = 0; c < s_.inputs; ++c) {
        kernels_.from_lanes({weight.at(own.begin, c) + offset, weight.output_stride_bytes,
                             weight.stride_bytes[2], total + (row * numbers_ + c) * width,
                             s_.inputs * width, outputs_.width, own.size(), s_.kernel[2]});
      }
    }
    if (!s_.makes_bias) return;
    float* const bias = bias_sums(b, 0) + outputs_.first_block(pair) * outputs_.width;
    add_parts(bias, width, parts_, part_sums());
    copy_.put_line(b.bias_sums.data + own.begin * b.bias_sums.stride_bytes,
                   b.bias_sums.stride_bytes, own.size(), bias);
  }

  const ConvShape s_;
  const ConvKernels& kernels_;
  const PairKernels& pairs_;
  const TileCopy<float> copy_;
  const ElementRows<float> source_;
  const BlockSide outputs_;
  const std::int64_t numbers_, kernel_rows_;  // numbers of a window in one row
  const std::int64_t steps_;                  // pairs of positions of a row
  bool fits_ = true;
  RowCuts cuts_;
  std::int64_t parts_ = 1, row_words_ = 0;
};

}  // namespace

std::unique_ptr<const ConvEngine> make_row_weights(const ConvTask& task, VectorSize size,
                                                   std::unique_ptr<const ConvEngine> careful) {
  const ConvKernels& kernels = conv_kernels(task.cpu.isa(), task.dtype, size);
  const PairKernels* const pairs = pair_kernels(task.cpu, kernels.width);
  if (!careful || pairs == nullptr) return nullptr;
  auto engine = std::make_unique<RowWeights>(task, kernels, *pairs);
  if (!engine->fits()) return nullptr;
  return std::make_unique<CarefulEngine>(std::move(engine), std::move(careful));
}

}  // namespace backops

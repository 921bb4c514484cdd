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
#include "ops/conv/rows/layout.h"
#include "ops/conv/rows/weights.h"

namespace backops {
namespace {

template <class Sum, class Number>
class RowsEngine : public WatchingEngine {
 public:
  using Layout = RowsLayout<Sum, Number>;
  static constexpr bool has_pairs = Layout::has_pairs;

  // `pairs` is null without pairs.
  RowsEngine(const ConvTask& task, const ConvKernels& kernels, const PairKernels* pairs)
      : s_(task.shape),
        n_(task, kernels.width),
        kernels_(kernels),
        pairs_(pairs),
        copy_(kernels, task.rounding, convert_kernels(kernels.isa)),
        rows_(copy_, s_.outputs) {}

  bool fits() const { return n_.fits; }

  std::string name() const override {
    return std::string("rows:") + name_of(has_pairs ? pairs_->conv.isa : kernels_.isa) +
           (kernels_.size == VectorSize::half ? ":half" : "");
  }

  std::size_t engine_bytes() const override { return n_.engine_bytes(); }
  std::size_t worker_bytes() const override { return n_.worker_bytes(); }

  // Put the weights in order; the product.
  int phases() const override { return 2; }
  std::int64_t tasks(int phase) const override {
    return phase == 0 ? n_.inputs.pairs() : n_.cuts();
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    PairMagnitudes found;
    phase == 0 ? pack(b, task, found) : write(b, task, found);
    if (has_pairs) n_.magnitudes(b)[task + (phase == 1 ? tasks(0) : 0)] = joined(found);
  }

  bool saw_normal_only(const ConvBuffers& b) const override {
    Magnitudes weight, output;
    for (std::int64_t i = 0; i < tasks(0) + tasks(1); ++i) {
      (i < tasks(0) ? weight : output).add(n_.magnitudes(b)[i]);
    }
    return are_normal(output, weight);
  }

 private:
  // A pair of blocks of inputs.
  void pack(const ConvBuffers& b, std::int64_t pair, PairMagnitudes& found) const {
    const std::int64_t width = n_.inputs.blocks_of_pair(pair) * n_.inputs.width;
    const Range channels = n_.inputs.channels_of_pair(pair);
    Sum* const to = has_pairs ? reinterpret_cast<Sum*>(b.scratch) : n_.weights(b, pair);
    const std::int64_t count = n_.kernel_rows * n_.numbers * width;
    const bool is_whole = channels.size() == width && n_.numbers == s_.kernel[2] * s_.outputs;
    if (!is_whole) std::fill_n(to, count, Sum{0});
    for (std::int64_t row = 0; row < n_.kernel_rows; ++row) {
      const std::int64_t offset = row / s_.kernel[1] * b.weight.stride_bytes[0] +
                                  row % s_.kernel[1] * b.weight.stride_bytes[1];
      for (std::int64_t c = 0; c < s_.outputs; ++c) {
        kernels_.to_lanes({b.weight.at(c, channels.begin) + offset, b.weight.input_stride_bytes,
                           b.weight.stride_bytes[2], to + (row * n_.numbers + c) * width,
                           s_.outputs * width, n_.inputs.width, channels.size(), s_.kernel[2]});
      }
    }
    if constexpr (has_pairs) {
      pairs_->pack({to, width, n_.kernel_rows * n_.steps(), width, n_.weights(b, pair), width});
      pairs_->watch({n_.weights(b, pair), count, &found});
    } else {
      copy_.round(to, count);
      n_.flags(b)[pair] = all_finite(to, count) ? Sum{1} : Sum{0};
    }
    if (s_.adds_bias) {
      copy_.bring_bias(b.bias, channels,
                       n_.bias(b) + n_.inputs.first_block(pair) * n_.inputs.width);
    }
  }

  void write(const ConvBuffers& b, std::int64_t task, PairMagnitudes& found) const {
    const WindowCut cut = n_.cut(task);
    bring(b, cut, found);
    for (std::int64_t pair = 0; pair < n_.inputs.pairs(); ++pair) {
      for (std::int64_t h = cut.h.begin; h < cut.h.end; ++h) multiply(b, cut, pair, h);
      put(b, cut, pair);
    }
  }

  void bring(const ConvBuffers& b, const WindowCut& cut, PairMagnitudes& found) const {
    const std::int64_t first = n_.output_of(2, cut.w.begin, 0);
    const std::int64_t end = n_.output_of(2, cut.w.end - 1, 0) + s_.kernel[2];
    const std::int64_t begin = std::clamp<std::int64_t>(0, first, end);
    const Range inside{begin, std::clamp(s_.out[2], begin, end)};
    const Range rows = common(
        {n_.output_of(1, cut.h.begin, 0), n_.output_of(1, cut.h.end - 1, s_.kernel[1] - 1) + 1},
        {0, s_.out[1]});
    for (std::int64_t slice = 0; slice < s_.kernel[0]; ++slice) {
      const std::int64_t d = n_.output_of(0, cut.d, slice);
      if (!n_.is_inside(0, d) || rows.size() <= 0) continue;
      Number* const to = n_.source(b) + n_.row_at(cut, slice, rows.begin);
      const std::int64_t count = (end - first) * s_.outputs + Layout::kNumbersAtOnce - 1;
      for (std::int64_t i = 0; i < rows.size(); ++i) {
        Number* const row = to + i * n_.row_numbers;
        std::fill(row, row + (inside.begin - first) * s_.outputs, Number{});
        std::fill(row + (inside.end - first) * s_.outputs, row + count, Number{});
      }
      rows_.bring_rows(b.output, {cut.image, d, rows.begin}, rows.size(), inside,
                       to + (inside.begin - first) * s_.outputs, n_.row_numbers, n_.spare(b));
      for (std::int64_t i = 0; has_pairs && i < rows.size(); ++i) {
        pairs_->watch({to + i * n_.row_numbers, count, &found});
      }
    }
  }

  // A row of results. Weights that are not finite must not meet the zeros beside the source: then
  // it goes column by column.
  void multiply(const ConvBuffers& b, const WindowCut& cut, std::int64_t pair,
                std::int64_t h) const {
    const bool are_finite = has_pairs || n_.flags(b)[pair] != 0;
    BlockProducts p{};
    p.vectors = n_.inputs.blocks_of_pair(pair);
    const std::int64_t width = p.vectors * n_.inputs.width;
    BlockRun* const runs = n_.list(b);
    for (std::int64_t row = 0; row < n_.kernel_rows; ++row) {
      const std::int64_t slice = row / s_.kernel[1];
      const std::int64_t source_h = n_.output_of(1, h, row % s_.kernel[1]);
      if (!n_.is_inside(0, n_.output_of(0, cut.d, slice)) || !n_.is_inside(1, source_h)) continue;
      runs[p.run_count++] = {n_.row_at(cut, slice, source_h), row * n_.steps() * width};
    }
    p.runs = runs;
    p.left_step = Layout::kNumbersAtOnce;
    p.left_pitch = s_.stride[2] * s_.outputs;
    p.right_step = width;
    p.right_pitch = n_.inputs.width;
    p.sum_step = n_.inputs.width;
    p.sum_pitch = n_.result_pitch();
    const std::int64_t at_once = are_finite ? cut.w.size() : 1;
    for (std::int64_t w = cut.w.begin; w < cut.w.end; w += at_once) {
      const Range taps = are_finite ? Range{0, s_.kernel[2]} : n_.taps_inside(w);
      const std::int64_t skipped = taps.begin * s_.outputs;
      p.left = n_.source(b) + (w - cut.w.begin) * p.left_pitch + skipped;
      p.right = n_.weights(b, pair) + skipped * width;
      p.run_length = are_finite ? n_.steps() : taps.size() * s_.outputs;
      p.sums =
          n_.results(b) + ((h - cut.h.begin) * cut.w.size() + w - cut.w.begin) * n_.inputs.width;
      p.rows = at_once;
      (has_pairs ? pairs_->conv : kernels_).multiply_apart(p);
    }
  }

  void put(const ConvBuffers& b, const WindowCut& cut, std::int64_t pair) const {
    Box box{};
    box.images = {cut.image, cut.image + 1};
    box.axes[0] = {cut.d, cut.d + 1};
    box.axes[1] = cut.h;
    box.axes[2] = cut.w;
    box.step[2] = 1;
    box.step[1] = cut.w.size();
    copy_.put(b.input_product, box, n_.inputs.channels_of_pair(pair), n_.results(b),
              n_.result_pitch(),
              s_.adds_bias ? n_.bias(b) + n_.inputs.first_block(pair) * n_.inputs.width : nullptr);
  }

  const ConvShape s_;
  const Layout n_;
  const ConvKernels& kernels_;
  const PairKernels* const pairs_;
  const TileCopy<Sum> copy_;
  const std::conditional_t<has_pairs, ElementRows<Sum>, ChannelRows<Sum>> rows_;
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

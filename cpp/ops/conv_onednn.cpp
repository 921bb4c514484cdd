// Convolution gradients by oneDNN's convolution primitives, in float32.
#include "ops/conv_engine.h"

#ifndef BACKOPS_ONEDNN

namespace backops {

std::unique_ptr<const ConvEngine> make_onednn_engine(const ConvShape&, const ConvCuts&, DType,
                                                     Isa) {
  return nullptr;
}

}  // namespace backops

#else

#include <algorithm>
#include <vector>

#include "ops/onednn.h"
#include "ops/onednn_gradients.h"

namespace backops {
namespace {

constexpr std::int64_t kSliceElements = 1 << 16;

enum class TaskKind : std::uint8_t {
  prepare_weight,
  input_part,
  weight_part,
  bias_part,
  add_slice,  // of the parts of the weight gradient
  write_weight,
  add_bias,
};

struct Task {
  TaskKind kind;
  std::int64_t index;
};

class OnednnEngine : public ConvEngine {
 public:
  OnednnEngine(const ConvShape& shape, const ConvCuts& cuts, const ConvKernels& kernels)
      : s_(shape), kernels_(kernels), bias_images_{s_.batch, std::min(s_.batch, cuts.parts())} {
    const OneThread alone;
    if (s_.wants_input) input_ = make_conv_input_gradient(s_, cuts);
    if (s_.wants_weight) weight_ = make_conv_weight_gradient(s_, cuts);
    if (!is_usable()) return;
    place_memory();
    schedule(cuts.threads);
  }

  bool is_usable() const { return (!s_.wants_input || input_) && (!s_.wants_weight || weight_); }

  std::string name() const override {
    std::string text = "onednn";
    if (input_) text += " input:" + input_->name();
    if (weight_) text += " weight:" + weight_->name();
    return text;
  }

  std::size_t engine_bytes() const override { return memory_bytes_; }
  std::size_t worker_bytes() const override {
    return std::max(input_ ? input_->scratch_bytes() : 0, weight_ ? weight_->scratch_bytes() : 0);
  }

  int phases() const override { return static_cast<int>(phases_.size()); }
  std::int64_t tasks(int phase) const override {
    return static_cast<std::int64_t>(phases_[static_cast<std::size_t>(phase)].size());
  }

  bool work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    try {
      const OneThread alone;
      run(phases_[static_cast<std::size_t>(phase)][static_cast<std::size_t>(task)], b);
      return true;
    } catch (...) {
      return false;
    }
  }

 private:
  void place_memory() {
    const auto place = [this](std::size_t bytes) {
      const std::size_t here = memory_bytes_;
      memory_bytes_ += whole_lines(bytes);
      return here;
    };
    prepared_at_ = place(input_ ? input_->weight_bytes() : 0);
    if (weight_) {
      sum_bytes_ = whole_lines(static_cast<std::size_t>(weight_->sum_elements()) * sizeof(float));
      sums_at_ = place(sum_bytes_ * static_cast<std::size_t>(weight_->parts()));
    }
    if (s_.wants_bias) {
      const std::int64_t elements = bias_images_.count * s_.outputs;
      bias_sums_at_ = place(static_cast<std::size_t>(elements) * sizeof(float));
    }
  }

  using Tasks = std::vector<Task>;

  static void add_tasks(Tasks& tasks, TaskKind kind, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) tasks.push_back({kind, i});
  }

  // With enough parts for all threads the weight gradient goes first: bringing the weights into
  // place and back, which one thread does alone, then happens beside other work. With fewer parts
  // the two gradients run at the same time.
  void schedule(int threads) {
    Tasks prepare, inputs, weights, sums, finish;
    if (input_) {
      add_tasks(prepare, TaskKind::prepare_weight, 1);
      add_tasks(inputs, TaskKind::input_part, input_->parts());
    }
    if (weight_) add_tasks(weights, TaskKind::weight_part, weight_->parts());
    if (weight_) {
      if (weight_->parts() > 1) {
        const std::int64_t elements = weight_->sum_elements();
        add_tasks(sums, TaskKind::add_slice, (elements + kSliceElements - 1) / kSliceElements);
      }
      add_tasks(finish, TaskKind::write_weight, 1);
    }
    if (s_.wants_bias) {
      add_tasks(weights, TaskKind::bias_part, bias_images_.count);
      add_tasks(finish, TaskKind::add_bias, 1);
    }
    const auto both = [](Tasks first, const Tasks& second) {
      first.insert(first.end(), second.begin(), second.end());
      return first;
    };
    if (weight_ && weight_->parts() >= threads) {
      phases_ = {weights, both(prepare, sums), both(finish, inputs)};
    } else {
      phases_ = {prepare, both(inputs, weights), sums, finish};
    }
  }

  float* prepared(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.memory + prepared_at_);
  }
  float* weight_sums(const ConvBuffers& b, std::int64_t part) const {
    return reinterpret_cast<float*>(b.memory + sums_at_ +
                                    sum_bytes_ * static_cast<std::size_t>(part));
  }
  float* bias_sums(const ConvBuffers& b, std::int64_t part) const {
    return reinterpret_cast<float*>(b.memory + bias_sums_at_) + part * s_.outputs;
  }

  void run(const Task& task, const ConvBuffers& b) const {
    const float* const weight = static_cast<const float*>(b.weight);
    const GradientTensors tensors{reinterpret_cast<const float*>(b.grad_output.data),
                                  reinterpret_cast<const float*>(b.input.data),
                                  reinterpret_cast<float*>(b.grad_input.data)};
    switch (task.kind) {
      case TaskKind::prepare_weight: return input_->prepare(weight, prepared(b), b.scratch);
      case TaskKind::input_part: return input_->run(task.index, tensors, prepared(b), b.scratch);
      case TaskKind::weight_part:
        return weight_->run(task.index, tensors, weight_sums(b, task.index), b.scratch);
      case TaskKind::bias_part: return sum_bias(b, task.index);
      case TaskKind::add_slice: return add_slice(b, task.index);
      case TaskKind::write_weight:
        return weight_->write(weight_sums(b, 0), static_cast<float*>(b.grad_weight), b.scratch);
      case TaskKind::add_bias: return add_bias(b);
    }
  }

  void add_slice(const ConvBuffers& b, std::int64_t slice) const {
    const std::int64_t begin = slice * kSliceElements;
    const std::int64_t end = std::min(begin + kSliceElements, weight_->sum_elements());
    float* const sums = weight_sums(b, 0);
    for (std::int64_t part = 1; part < weight_->parts(); ++part) {
      const float* const more = weight_sums(b, part);
      for (std::int64_t i = begin; i < end; ++i) sums[i] += more[i];
    }
  }

  // Image by image, so that no sum grows long.
  void sum_bias(const ConvBuffers& b, std::int64_t part) const {
    const float* const grad = reinterpret_cast<const float*>(b.grad_output.data);
    float* const sums = bias_sums(b, part);
    std::fill(sums, sums + s_.outputs, 0.0f);
    for (std::int64_t n = bias_images_.first(part); n < bias_images_.first(part + 1); ++n) {
      add_image(grad + n * s_.out_image(), sums);
    }
  }

  void add_image(const float* image, float* sums) const {
    constexpr std::int64_t kRowsAtOnce = 64;  // they stay in the cache from one column to the next
    for (std::int64_t first = 0; first < s_.out_positions(); first += kRowsAtOnce) {
      const std::int64_t rows = std::min(kRowsAtOnce, s_.out_positions() - first);
      const float* const from = image + first * s_.outputs;
      std::int64_t o = 0;
      for (; o + kernels_.lanes <= s_.outputs; o += kernels_.lanes) {
        kernels_.sum({from + o, s_.outputs, rows, sums + o});
      }
      for (; o < s_.outputs; ++o) {
        float sum = 0;
        for (std::int64_t r = 0; r < rows; ++r) sum += from[r * s_.outputs + o];
        sums[o] += sum;
      }
    }
  }

  void add_bias(const ConvBuffers& b) const {
    float* const result = static_cast<float*>(b.grad_bias);
    std::copy(bias_sums(b, 0), bias_sums(b, 1), result);
    for (std::int64_t part = 1; part < bias_images_.count; ++part) {
      for (std::int64_t o = 0; o < s_.outputs; ++o) result[o] += bias_sums(b, part)[o];
    }
  }

  const ConvShape s_;
  const ConvKernels& kernels_;
  const EvenParts bias_images_;
  std::unique_ptr<const InputGradient> input_;
  std::unique_ptr<const WeightGradient> weight_;
  std::vector<Tasks> phases_;
  std::size_t memory_bytes_ = 0;
  std::size_t prepared_at_ = 0, sums_at_ = 0, bias_sums_at_ = 0;
  std::size_t sum_bytes_ = 0;  // of one part
};

bool is_small_enough(const ConvShape& s) {
  // oneDNN counts much of what it does in 32 bits.
  const double most = 2147483647.0;
  const double batch = static_cast<double>(s.batch);
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    for (const std::int64_t value : {s.in[axis], s.out[axis], s.kernel[axis], s.stride[axis],
                                     s.padding[axis], s.dilation[axis]}) {
      if (static_cast<double>(value) > most / 8) return false;
    }
  }
  return batch * static_cast<double>(s.in_image()) < most &&
         batch * static_cast<double>(s.out_image()) < most &&
         static_cast<double>(s.weights()) < most;
}

// Its weight gradient of a 1x1 kernel with a stride writes beyond the scratch memory it asks for,
// and its 3-D one reads beyond the input where the padding is larger than the stride.
bool is_safe(const ConvShape& s) {
  const bool is_3d = s.in[0] > 1 || s.out[0] > 1 || s.kernel[0] > 1;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    if (s.kernel[axis] == 1 && s.stride[axis] > 1) return false;
    const std::int64_t last = (s.out[axis] - 1) * s.stride[axis] - s.padding[axis];
    const std::int64_t after = last + (s.kernel[axis] - 1) * s.dilation[axis] + 1 - s.in[axis];
    if (is_3d && std::max(s.padding[axis], after) > s.stride[axis]) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<const ConvEngine> make_onednn_engine(const ConvShape& shape, const ConvCuts& cuts,
                                                     DType dtype, Isa isa) {
  if (shape.is_double || isa == Isa::generic || !is_small_enough(shape) || !is_safe(shape)) {
    return nullptr;
  }
  // Only ever lowered, for BACKOPS_ISA: before the first primitive, or it has no effect.
  if (isa == Isa::avx2) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  try {
    auto engine = std::make_unique<const OnednnEngine>(shape, cuts, conv_kernels(isa, dtype));
    if (engine->is_usable()) return engine;
  } catch (const dnnl::error&) {
    // no primitive for this problem
  }
  return nullptr;
}

}  // namespace backops

#endif

// Convolution gradients by their definition, channels innermost. It has no limits and no
// dependencies; it serves float64 and CPUs that have nothing better.
#include <algorithm>
#include <cstring>

#include "ops/conv_engine.h"

namespace backops {
namespace {

// Weights and their gradients are kept as (kernel position, output, channel of the group).
template <class Sum>
class PlainEngine : public ConvEngine {
 public:
  explicit PlainEngine(const ConvShape& shape)
      : s_(shape), per_group_(shape.channels / shape.groups), slice_(outputs_per_task(shape)) {}

  std::string name() const override { return "plain"; }
  std::size_t engine_bytes() const override { return 2 * weight_bytes(); }
  std::size_t worker_bytes() const override { return 0; }

  int phases() const override { return 3; }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) return s_.wants_input ? 1 : 0;
    if (phase == 2) return s_.wants_weight ? 1 : 0;
    return input_tasks() + slices();
  }

  bool work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 0) {
      transpose_weight(b);
    } else if (phase == 2) {
      write_weight(b);
    } else if (task < input_tasks()) {
      sum_input(b, task);
    } else {
      sum_outputs(b, task - input_tasks());
    }
    return true;
  }

 private:
  void sum_outputs(const ConvBuffers& b, std::int64_t task) const {
    const std::int64_t begin = task * slice_;
    const std::int64_t end = std::min(begin + slice_, s_.outputs);
    if (s_.wants_weight) sum_weight(b, begin, end);
    if (s_.wants_bias) sum_bias(b, begin, end);
  }

  static std::int64_t outputs_per_task(const ConvShape& shape) {
    return std::max<std::int64_t>(1, shape.outputs / 16);
  }
  std::int64_t input_tasks() const { return s_.wants_input ? s_.batch : 0; }
  std::int64_t slices() const {
    return s_.wants_weight || s_.wants_bias ? (s_.outputs + slice_ - 1) / slice_ : 0;
  }
  std::size_t weight_bytes() const {
    return whole_lines(static_cast<std::size_t>(s_.weights()) * sizeof(Sum));
  }
  Sum* transposed_weight(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.memory); }
  Sum* weight_sums(const ConvBuffers& b) const {
    return reinterpret_cast<Sum*>(b.memory + weight_bytes());
  }
  std::int64_t transposed_at(std::int64_t k, std::int64_t o) const {
    return (k * s_.outputs + o) * per_group_;
  }

  // Calls body(kernel position, output position, input position) for all that meet.
  template <class Body>
  void for_pairs(const Body& body) const {
    std::int64_t k = 0, at[kMaxConvRank], tap[kMaxConvRank];
    for (tap[0] = 0; tap[0] < s_.kernel[0]; ++tap[0]) {
      for (tap[1] = 0; tap[1] < s_.kernel[1]; ++tap[1]) {
        for (tap[2] = 0; tap[2] < s_.kernel[2]; ++tap[2], ++k) {
          for_outputs(tap, at, [&](std::int64_t out, std::int64_t in) { body(k, out, in); });
        }
      }
    }
  }

  template <class Body>
  void for_outputs(const std::int64_t* tap, std::int64_t* at, const Body& body) const {
    for (std::int64_t d = 0; d < s_.out[0]; ++d) {
      if (!input_index(0, d, tap[0], &at[0])) continue;
      for (std::int64_t h = 0; h < s_.out[1]; ++h) {
        if (!input_index(1, h, tap[1], &at[1])) continue;
        for (std::int64_t w = 0; w < s_.out[2]; ++w) {
          if (!input_index(2, w, tap[2], &at[2])) continue;
          body((d * s_.out[1] + h) * s_.out[2] + w, (at[0] * s_.in[1] + at[1]) * s_.in[2] + at[2]);
        }
      }
    }
  }

  bool input_index(int axis, std::int64_t out, std::int64_t tap, std::int64_t* in) const {
    *in = out * s_.stride[axis] - s_.padding[axis] + tap * s_.dilation[axis];
    return *in >= 0 && *in < s_.in[axis];
  }

  void transpose_weight(const ConvBuffers& b) const {
    const Sum* from = static_cast<const Sum*>(b.weight);
    Sum* const to = transposed_weight(b);
    for (std::int64_t o = 0; o < s_.outputs; ++o) {
      for (std::int64_t c = 0; c < per_group_; ++c) {
        for (std::int64_t k = 0; k < s_.kernel_positions(); ++k) {
          to[transposed_at(k, o) + c] = *from++;
        }
      }
    }
  }

  void write_weight(const ConvBuffers& b) const {
    const Sum* const from = weight_sums(b);
    Sum* to = static_cast<Sum*>(b.grad_weight);
    for (std::int64_t o = 0; o < s_.outputs; ++o) {
      for (std::int64_t c = 0; c < per_group_; ++c) {
        for (std::int64_t k = 0; k < s_.kernel_positions(); ++k) {
          *to++ = from[transposed_at(k, o) + c];
        }
      }
    }
  }

  void sum_input(const ConvBuffers& b, std::int64_t n) const {
    const std::int64_t in_size = s_.in_positions() * s_.channels;
    const Sum* const grad =
        reinterpret_cast<const Sum*>(b.grad_output.data) + n * s_.out_positions() * s_.outputs;
    Sum* const result = reinterpret_cast<Sum*>(b.grad_input.data) + n * in_size;
    const Sum* const weight = transposed_weight(b);
    const std::int64_t group_outputs = s_.outputs / s_.groups;
    std::fill(result, result + in_size, Sum{0});
    for_pairs([&](std::int64_t k, std::int64_t out, std::int64_t in) {
      for (std::int64_t o = 0; o < s_.outputs; ++o) {
        const Sum value = grad[out * s_.outputs + o];
        const Sum* const row = weight + transposed_at(k, o);
        Sum* const to = result + in * s_.channels + o / group_outputs * per_group_;
        for (std::int64_t c = 0; c < per_group_; ++c) to[c] += value * row[c];
      }
    });
  }

  void sum_weight(const ConvBuffers& b, std::int64_t begin, std::int64_t end) const {
    Sum* const result = weight_sums(b);
    const std::int64_t group_outputs = s_.outputs / s_.groups;
    for (std::int64_t k = 0; k < s_.kernel_positions(); ++k) {
      std::fill(result + transposed_at(k, begin), result + transposed_at(k, end), Sum{0});
    }
    for (std::int64_t n = 0; n < s_.batch; ++n) {
      const Sum* const grad =
          reinterpret_cast<const Sum*>(b.grad_output.data) + n * s_.out_positions() * s_.outputs;
      const Sum* const input =
          reinterpret_cast<const Sum*>(b.input.data) + n * s_.in_positions() * s_.channels;
      for_pairs([&](std::int64_t k, std::int64_t out, std::int64_t in) {
        for (std::int64_t o = begin; o < end; ++o) {
          const Sum value = grad[out * s_.outputs + o];
          const Sum* const from = input + in * s_.channels + o / group_outputs * per_group_;
          Sum* const to = result + transposed_at(k, o);
          for (std::int64_t c = 0; c < per_group_; ++c) to[c] += value * from[c];
        }
      });
    }
  }

  void sum_bias(const ConvBuffers& b, std::int64_t begin, std::int64_t end) const {
    Sum* const result = static_cast<Sum*>(b.grad_bias);
    std::fill(result + begin, result + end, Sum{0});
    const Sum* grad = reinterpret_cast<const Sum*>(b.grad_output.data);
    for (std::int64_t i = 0; i < s_.batch * s_.out_positions(); ++i, grad += s_.outputs) {
      for (std::int64_t o = begin; o < end; ++o) result[o] += grad[o];
    }
  }

  const ConvShape s_;
  const std::int64_t per_group_;
  const std::int64_t slice_;  // outputs whose weights one task sums
};

}  // namespace

std::unique_ptr<const ConvEngine> make_plain_engine(const ConvShape& shape) {
  if (shape.is_double) return std::make_unique<PlainEngine<double>>(shape);
  return std::make_unique<PlainEngine<float>>(shape);
}

}  // namespace backops

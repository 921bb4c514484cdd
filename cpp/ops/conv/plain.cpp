// Products of convolutions by their definition, element by element. It takes every problem, needs
// no memory, and is for those that nothing else takes: strides of thousands, kernels of a hundred
// thousand elements.
#include "ops/conv/plain.h"

#include <algorithm>

#include "kernels/conv/conv.h"
#include "kernels/convert/convert.h"
#include "ops/conv/copy.h"

namespace backops {
namespace {

template <class Sum>
class PlainEngine : public ConvEngine {
 public:
  explicit PlainEngine(const ConvTask& task)
      : s_(task.shape),
        copy_(conv_kernels(task.cpu.isa(), task.dtype), task.rounding,
              convert_kernels(task.cpu.isa())) {}

  std::string name() const override { return "plain"; }
  std::size_t engine_bytes() const override { return 0; }
  std::size_t worker_bytes() const override { return 0; }

  // A channel of an image of the input product; the weights of an output and an input; an output's
  // bias.
  int phases() const override { return 1; }
  std::int64_t tasks(int) const override { return input_tasks() + weight_tasks() + bias_tasks(); }

  void work(int, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (task < input_tasks()) return write_input(b, task / s_.inputs, task % s_.inputs);
    task -= input_tasks();
    if (task < weight_tasks()) {
      return write_weights(b, task / s_.group_inputs(), task % s_.group_inputs());
    }
    write_bias(b, task - weight_tasks());
  }

 private:
  std::int64_t input_tasks() const { return s_.makes_input ? s_.batch * s_.inputs : 0; }
  std::int64_t weight_tasks() const { return s_.makes_weight ? s_.outputs * s_.group_inputs() : 0; }
  std::int64_t bias_tasks() const { return s_.makes_bias ? s_.outputs : 0; }

  Sum read(const char* element) const {
    Sum value;
    copy_.bring_line(element, 0, 1, &value);
    return value;
  }
  void write(char* element, Sum value) const { copy_.put_line(element, 0, 1, &value); }

  // Calls body(tap, output) along one axis, for the taps that join an input with an output.
  template <class Body>
  void for_taps_of(int axis, std::int64_t input, const Body& body) const {
    const std::int64_t stride = s_.stride[axis];
    for (std::int64_t tap = 0; tap < s_.kernel[axis]; ++tap) {
      if (s_.is_turned) {
        const std::int64_t output = input * stride - s_.padding[axis] + tap * s_.dilation[axis];
        if (output >= 0 && output < s_.out[axis]) body(tap, output);
        continue;
      }
      const std::int64_t window = input + s_.padding[axis] - tap * s_.dilation[axis];
      if (window < 0) return;
      if (window % stride == 0 && window / stride < s_.out[axis]) body(tap, window / stride);
    }
  }

  void write_input(const ConvBuffers& b, std::int64_t image, std::int64_t channel) const {
    const std::int64_t group = channel / s_.group_inputs();
    const Range all[] = {{0, s_.in[0]}, {0, s_.in[1]}, {0, s_.in[2]}};
    Sum bias = 0;
    if (s_.adds_bias) copy_.bring_bias(b.bias, {channel, channel + 1}, &bias);
    for_rows({image, image + 1}, all, [&](std::int64_t, std::int64_t d, std::int64_t h) {
      for (std::int64_t w = 0; w < s_.in[2]; ++w) {
        Sum sum = 0;
        for_taps_of(0, d, [&](std::int64_t i, std::int64_t od) {
          for_taps_of(1, h, [&](std::int64_t j, std::int64_t oh) {
            for_taps_of(2, w, [&](std::int64_t k, std::int64_t ow) {
              for (std::int64_t o = group * s_.group_outputs();
                   o < (group + 1) * s_.group_outputs(); ++o) {
                sum += read(b.output.at(image, o, od, oh, ow)) *
                       read(tap_of(b.weight, o, channel % s_.group_inputs(), i, j, k));
              }
            });
          });
        });
        write(b.input_product.at(image, channel, d, h, w), sum + bias);
      }
    });
  }

  void write_weights(const ConvBuffers& b, std::int64_t output, std::int64_t input) const {
    const std::int64_t channel = output / s_.group_outputs() * s_.group_inputs() + input;
    for (std::int64_t i = 0; i < s_.kernel[0]; ++i) {
      for (std::int64_t j = 0; j < s_.kernel[1]; ++j) {
        for (std::int64_t k = 0; k < s_.kernel[2]; ++k) {
          write(tap_of(b.weight_product, output, input, i, j, k),
                weight_sum(b, output, channel, {i, j, k}));
        }
      }
    }
  }

  Sum weight_sum(const ConvBuffers& b, std::int64_t output, std::int64_t channel,
                 const std::int64_t (&tap)[kMaxConvRank]) const {
    Sum sum = 0;
    const auto input_of = [&](int axis, std::int64_t at) {
      return at * s_.stride[axis] - s_.padding[axis] + tap[axis] * s_.dilation[axis];
    };
    const auto is_inside = [&](int axis, std::int64_t i) { return i >= 0 && i < s_.in[axis]; };
    const Range all[] = {{0, s_.out[0]}, {0, s_.out[1]}, {0, s_.out[2]}};
    for_rows({0, s_.batch}, all, [&](std::int64_t image, std::int64_t od, std::int64_t oh) {
      const std::int64_t d = input_of(0, od), h = input_of(1, oh);
      if (!is_inside(0, d) || !is_inside(1, h)) return;
      for (std::int64_t ow = 0; ow < s_.out[2]; ++ow) {
        const std::int64_t w = input_of(2, ow);
        if (!is_inside(2, w)) continue;
        sum += read(b.output.at(image, output, od, oh, ow)) *
               read(b.input.at(image, channel, d, h, w));
      }
    });
    return sum;
  }

  void write_bias(const ConvBuffers& b, std::int64_t output) const {
    Sum sum = 0;
    const Range all[] = {{0, s_.out[0]}, {0, s_.out[1]}, {0, s_.out[2]}};
    for_rows({0, s_.batch}, all, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      for (std::int64_t w = 0; w < s_.out[2]; ++w) sum += read(b.output.at(image, output, d, h, w));
    });
    write(b.bias_sums.data + output * b.bias_sums.stride_bytes, sum);
  }

  static char* tap_of(const Weights& weight, std::int64_t output, std::int64_t input,
                      std::int64_t i, std::int64_t j, std::int64_t k) {
    return weight.at(output, input) + i * weight.stride_bytes[0] + j * weight.stride_bytes[1] +
           k * weight.stride_bytes[2];
  }

  const ConvShape s_;
  const TileCopy<Sum> copy_;
};

}  // namespace

std::unique_ptr<const ConvEngine> make_plain_engine(const ConvTask& task) {
  if (task.shape.is_double) return std::make_unique<PlainEngine<double>>(task);
  return std::make_unique<PlainEngine<float>>(task);
}

}  // namespace backops

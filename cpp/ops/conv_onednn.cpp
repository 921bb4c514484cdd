// Convolution gradients by oneDNN's primitives, in float32 on channels-last tensors: for these its
// kernels are the fastest, they need no layout of their own, and both gradients share one.
//
// oneDNN's own threads are not used. The batch is cut instead, and each task runs a primitive on
// one thread of our pool: no second pool competes for the cores, and how the batch is cut decides
// the bits, not how many threads there are.
#include "ops/conv_engine.h"

#ifndef BACKOPS_ONEDNN

namespace backops {

std::unique_ptr<const ConvEngine> make_onednn_engine(const ConvShape&, const ConvCuts&, Isa) {
  return nullptr;
}

}  // namespace backops

#else

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <vector>

namespace backops {
namespace {

using dnnl::memory;
using Desc = memory::desc;

// Parts of the batch where the same bits are wanted for any number of threads.
constexpr std::int64_t kFixedCuts = 4;
constexpr std::int64_t kSliceElements = 1 << 16;

// Primitives are made for, and run on, as many OpenMP threads as the calling thread may start.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

bool is_reference(const char* implementation) {
  return std::strstr(implementation, "ref") != nullptr;
}

// The descriptors of `batch` images. Leading axes that are not there are left out: the kernels are
// made for as many as there are.
struct Layouts {
  Layouts(const ConvShape& s, std::int64_t batch) {
    int first = 0;
    while (first < kMaxConvRank - 1 && is_absent(s, first)) ++first;
    input = channels_last(batch, s.channels, s.in, first);
    output = channels_last(batch, s.outputs, s.out, first);
    weight_dims = {s.outputs, s.channels / s.groups};
    if (s.groups > 1) weight_dims = {s.groups, s.outputs / s.groups, s.channels / s.groups};
    for (int axis = first; axis < kMaxConvRank; ++axis) {
      weight_dims.push_back(s.kernel[axis]);
      stride.push_back(s.stride[axis]);
      padding.push_back(s.padding[axis]);
      // Input that no window reaches counts as negative padding at the end.
      const std::int64_t reach = (s.kernel[axis] - 1) * s.dilation[axis] + 1;
      padding_end.push_back((s.out[axis] - 1) * s.stride[axis] + reach - s.in[axis] -
                            s.padding[axis]);
      dilation.push_back(s.dilation[axis] - 1);
    }
    any_weight = Desc(weight_dims, memory::data_type::f32, memory::format_tag::any);
    memory::dims strides(weight_dims.size(), 1);
    for (std::size_t i = weight_dims.size() - 1; i > 0; --i) {
      strides[i - 1] = strides[i] * weight_dims[i];
    }
    plain_weight = Desc(weight_dims, memory::data_type::f32, strides);
    bias = Desc({s.outputs}, memory::data_type::f32, memory::format_tag::x);
  }

  static bool is_absent(const ConvShape& s, int axis) {
    return s.in[axis] == 1 && s.out[axis] == 1 && s.kernel[axis] == 1 && s.padding[axis] == 0;
  }

  static Desc channels_last(std::int64_t batch, std::int64_t channels, const std::int64_t* size,
                            int first) {
    memory::dims dims{batch, channels};
    dims.insert(dims.end(), size + first, size + kMaxConvRank);
    const memory::format_tag tags[] = {memory::format_tag::ndhwc, memory::format_tag::nhwc,
                                       memory::format_tag::nwc};
    return Desc(dims, memory::data_type::f32, tags[first]);
  }

  Desc input, output, any_weight, plain_weight, bias;
  memory::dims weight_dims, stride, padding, padding_end, dilation;
};

// What computes one part of the batch.
struct Part {
  dnnl::convolution_backward_data data;
  dnnl::convolution_backward_weights weights;
  Desc input, output;
};

class OnednnEngine : public ConvEngine {
 public:
  OnednnEngine(const ConvShape& shape, const ConvCuts& cuts) : s_(shape) {
    const OneThread alone;
    const std::int64_t wanted = cuts.deterministic ? kFixedCuts : cuts.threads;
    cuts_ = std::min(s_.batch, wanted);
    const std::int64_t size = s_.batch / cuts_;
    smaller_ = make_part(size);
    larger_ = s_.batch % cuts_ != 0 ? make_part(size + 1) : smaller_;
    const Layouts layouts(s_, size);
    plain_weight_ = layouts.plain_weight;
    bias_ = layouts.bias;
    if (s_.wants_input) {
      to_engine_ = dnnl::reorder({cpu(), plain_weight_, cpu(), data_weight_, user_scratchpad()});
    }
    if (s_.wants_weight) {
      to_plain_ = dnnl::reorder({cpu(), sum_weight_, cpu(), plain_weight_, user_scratchpad()});
    }
    place_memory();
  }

  bool is_usable() const { return !refused_; }

  std::string name() const override {
    std::string text = "onednn";
    if (s_.wants_input) text += " input:" + data_name_;
    if (s_.wants_weight) text += " weight:" + weight_name_;
    return text;
  }

  std::size_t engine_bytes() const override { return memory_bytes_; }
  std::size_t worker_bytes() const override { return scratchpad_bytes_; }

  // Bring the weights into place; the gradients of the parts; add the parts; bring them back.
  int phases() const override { return 4; }

  std::int64_t tasks(int phase) const override {
    switch (phase) {
      case 0: return s_.wants_input ? 1 : 0;
      case 1: return input_tasks() + weight_tasks() + (sums_bias_itself() ? 1 : 0);
      case 2: return s_.wants_weight && cuts_ > 1 ? slices() : 0;
      default: return s_.wants_weight ? 1 : 0;
    }
  }

  bool work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    try {
      const OneThread alone;
      run(phase, task, b);
      return true;
    } catch (...) {
      return false;
    }
  }

 private:
  static dnnl::primitive_attr user_scratchpad() {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
  }

  Part make_part(std::int64_t batch) {
    const Layouts l(s_, batch);
    const dnnl::primitive_attr attributes = user_scratchpad();
    const auto algorithm = dnnl::algorithm::convolution_direct;
    Part part{{}, {}, l.input, l.output};
    const dnnl::convolution_forward::primitive_desc forward(
        cpu(), dnnl::prop_kind::forward_training, algorithm, l.input, l.any_weight, l.output,
        l.stride, l.dilation, l.padding, l.padding_end);
    if (s_.wants_input) {
      const Desc wanted = data_weight_.is_zero() ? l.any_weight : data_weight_;
      const dnnl::convolution_backward_data::primitive_desc desc(
          cpu(), algorithm, l.input, wanted, l.output, l.stride, l.dilation, l.padding,
          l.padding_end, forward, attributes);
      data_weight_ = desc.weights_desc();
      data_name_ = desc.impl_info_str();
      note(desc.impl_info_str(), desc.scratchpad_desc());
      part.data = dnnl::convolution_backward_data(desc);
    }
    if (s_.wants_weight) {
      const Desc wanted = sum_weight_.is_zero() ? l.any_weight : sum_weight_;
      const dnnl::convolution_backward_weights::primitive_desc desc(
          cpu(), algorithm, l.input, wanted, s_.wants_bias ? l.bias : Desc(), l.output, l.stride,
          l.dilation, l.padding, l.padding_end, forward, attributes);
      sum_weight_ = desc.diff_weights_desc();
      weight_name_ = desc.impl_info_str();
      note(desc.impl_info_str(), desc.scratchpad_desc());
      part.weights = dnnl::convolution_backward_weights(desc);
    }
    return part;
  }

  void note(const char* implementation, const Desc& scratchpad) {
    if (is_reference(implementation)) refused_ = true;
    scratchpad_bytes_ = std::max(scratchpad_bytes_, scratchpad.get_size());
  }

  void place_memory() {
    const auto place = [this](std::size_t bytes) {
      const std::size_t here = memory_bytes_;
      memory_bytes_ += whole_lines(bytes);
      return here;
    };
    data_weight_at_ = place(s_.wants_input ? data_weight_.get_size() : 0);
    sum_weight_bytes_ = s_.wants_weight ? whole_lines(sum_weight_.get_size()) : 0;
    sum_weight_at_ = place(sum_weight_bytes_ * static_cast<std::size_t>(cuts_));
    bias_bytes_ = s_.wants_bias ? whole_lines(bias_.get_size()) : 0;
    sum_bias_at_ = place(bias_bytes_ * static_cast<std::size_t>(cuts_));
  }

  std::int64_t input_tasks() const { return s_.wants_input ? cuts_ : 0; }
  std::int64_t weight_tasks() const { return s_.wants_weight ? cuts_ : 0; }
  bool sums_bias_itself() const { return s_.wants_bias && !s_.wants_weight; }
  std::int64_t sum_elements() const {
    return static_cast<std::int64_t>(sum_weight_.get_size() / sizeof(float));
  }
  std::int64_t slices() const { return (sum_elements() + kSliceElements - 1) / kSliceElements; }

  // Larger parts come first.
  const Part& part(std::int64_t index) const {
    return index < s_.batch % cuts_ ? larger_ : smaller_;
  }
  std::int64_t first_image(std::int64_t index) const {
    return s_.batch / cuts_ * index + std::min(index, s_.batch % cuts_);
  }

  static memory at(const Desc& desc, const void* data) {
    return memory(desc, cpu(), const_cast<void*>(data));
  }
  static memory scratchpad(const dnnl::primitive& primitive, const ConvBuffers& b) {
    const_dnnl_primitive_desc_t desc = primitive.get_primitive_desc();
    const_dnnl_memory_desc_t needed =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    dnnl_memory_t raw = nullptr;
    dnnl::error::wrap_c_api(dnnl_memory_create(&raw, needed, cpu().get(), b.scratch),
                            "no memory object");
    return memory(raw);
  }
  const float* images(const void* data, std::int64_t index, std::int64_t image) const {
    return static_cast<const float*>(data) + first_image(index) * image;
  }
  char* weight_sums(const ConvBuffers& b, std::int64_t index) const {
    return b.memory + sum_weight_at_ + sum_weight_bytes_ * static_cast<std::size_t>(index);
  }
  char* bias_sums(const ConvBuffers& b, std::int64_t index) const {
    return b.memory + sum_bias_at_ + bias_bytes_ * static_cast<std::size_t>(index);
  }
  std::int64_t in_image() const { return s_.in_positions() * s_.channels; }
  std::int64_t out_image() const { return s_.out_positions() * s_.outputs; }

  void run(int phase, std::int64_t task, const ConvBuffers& b) const {
    if (phase == 0)
      return reorder(to_engine_, plain_weight_, b.weight, data_weight_, b.memory + data_weight_at_,
                     b);
    if (phase == 2) return add_parts(b, task);
    if (phase == 3) {
      reorder(to_plain_, sum_weight_, weight_sums(b, 0), plain_weight_, b.grad_weight, b);
      if (s_.wants_bias) add_biases(b);
      return;
    }
    if (task < input_tasks()) return input_gradient(b, task);
    if (task < input_tasks() + weight_tasks()) return weight_gradient(b, task - input_tasks());
    sum_bias(b);
  }

  void reorder(const dnnl::reorder& primitive, const Desc& from, const void* source, const Desc& to,
               void* target, const ConvBuffers& b) const {
    dnnl::stream stream(cpu());
    primitive.execute(stream, {{DNNL_ARG_FROM, at(from, source)},
                               {DNNL_ARG_TO, at(to, target)},
                               {DNNL_ARG_SCRATCHPAD, scratchpad(primitive, b)}});
  }

  void input_gradient(const ConvBuffers& b, std::int64_t index) const {
    const Part& own = part(index);
    dnnl::stream stream(cpu());
    own.data.execute(
        stream,
        {{DNNL_ARG_DIFF_DST, at(own.output, images(b.grad_output.data, index, out_image()))},
         {DNNL_ARG_WEIGHTS, at(data_weight_, b.memory + data_weight_at_)},
         {DNNL_ARG_DIFF_SRC, at(own.input, images(b.grad_input.data, index, in_image()))},
         {DNNL_ARG_SCRATCHPAD, scratchpad(own.data, b)}});
  }

  void weight_gradient(const ConvBuffers& b, std::int64_t index) const {
    const Part& own = part(index);
    dnnl::stream stream(cpu());
    std::unordered_map<int, memory> arguments{
        {DNNL_ARG_SRC, at(own.input, images(b.input.data, index, in_image()))},
        {DNNL_ARG_DIFF_DST, at(own.output, images(b.grad_output.data, index, out_image()))},
        {DNNL_ARG_DIFF_WEIGHTS, at(sum_weight_, weight_sums(b, index))},
        {DNNL_ARG_SCRATCHPAD, scratchpad(own.weights, b)}};
    if (s_.wants_bias) {
      arguments.emplace(DNNL_ARG_DIFF_BIAS, at(bias_, bias_sums(b, index)));
    }
    own.weights.execute(stream, arguments);
  }

  void add_parts(const ConvBuffers& b, std::int64_t slice) const {
    const std::int64_t begin = slice * kSliceElements;
    const std::int64_t end = std::min(begin + kSliceElements, sum_elements());
    float* const sums = reinterpret_cast<float*>(weight_sums(b, 0));
    for (std::int64_t index = 1; index < cuts_; ++index) {
      const float* const more = reinterpret_cast<const float*>(weight_sums(b, index));
      for (std::int64_t i = begin; i < end; ++i) sums[i] += more[i];
    }
  }

  void add_biases(const ConvBuffers& b) const {
    float* const result = static_cast<float*>(b.grad_bias);
    std::memcpy(result, bias_sums(b, 0), static_cast<std::size_t>(s_.outputs) * sizeof(float));
    for (std::int64_t index = 1; index < cuts_; ++index) {
      const float* const more = reinterpret_cast<const float*>(bias_sums(b, index));
      for (std::int64_t o = 0; o < s_.outputs; ++o) result[o] += more[o];
    }
  }

  // Image by image, so that no sum grows long.
  void sum_bias(const ConvBuffers& b) const {
    float* const result = static_cast<float*>(b.grad_bias);
    float* const image = reinterpret_cast<float*>(bias_sums(b, 0));
    std::fill(result, result + s_.outputs, 0.0f);
    const float* grad = reinterpret_cast<const float*>(b.grad_output.data);
    for (std::int64_t n = 0; n < s_.batch; ++n) {
      std::fill(image, image + s_.outputs, 0.0f);
      for (std::int64_t i = 0; i < s_.out_positions(); ++i, grad += s_.outputs) {
        for (std::int64_t o = 0; o < s_.outputs; ++o) image[o] += grad[o];
      }
      for (std::int64_t o = 0; o < s_.outputs; ++o) result[o] += image[o];
    }
  }

  const ConvShape s_;
  std::int64_t cuts_ = 1;  // parts of the batch
  Part smaller_, larger_;
  dnnl::reorder to_engine_, to_plain_;
  Desc data_weight_, sum_weight_, plain_weight_, bias_;
  std::string data_name_, weight_name_;
  bool refused_ = false;
  std::size_t scratchpad_bytes_ = 0, memory_bytes_ = 0;
  std::size_t data_weight_at_ = 0, sum_weight_at_ = 0, sum_bias_at_ = 0;
  std::size_t sum_weight_bytes_ = 0, bias_bytes_ = 0;  // of one part
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
  return batch * static_cast<double>(s.in_positions() * s.channels) < most &&
         batch * static_cast<double>(s.out_positions() * s.outputs) < most &&
         static_cast<double>(s.weights()) < most;
}

}  // namespace

std::unique_ptr<const ConvEngine> make_onednn_engine(const ConvShape& shape, const ConvCuts& cuts,
                                                     Isa isa) {
  if (shape.is_double || isa == Isa::generic || !is_small_enough(shape)) return nullptr;
  // Only ever lowered, for BACKOPS_ISA: before the first primitive, or it has no effect.
  if (isa == Isa::avx2) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  try {
    auto engine = std::make_unique<const OnednnEngine>(shape, cuts);
    if (engine->is_usable()) return engine;
  } catch (const dnnl::error&) {
    // no primitive for this problem
  }
  return nullptr;
}

}  // namespace backops

#endif

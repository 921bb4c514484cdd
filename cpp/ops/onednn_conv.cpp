// Gradients by oneDNN's convolution primitives, on channels-last tensors: for most problems its
// kernels are the fastest there, they need no layout of their own, and both gradients share one.
#include <algorithm>

#include "ops/onednn.h"
#include "ops/onednn_gradients.h"

namespace backops {
namespace {

using dnnl::memory;
using Desc = memory::desc;

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

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc forward_of(const Layouts& l) {
  return {onednn_cpu(), dnnl::prop_kind::forward_training,
          kAlgorithm,   l.input,
          l.any_weight, l.output,
          l.stride,     l.dilation,
          l.padding,    l.padding_end};
}

// A reorder between the plain order of weights and a primitive's own.
class WeightOrder {
 public:
  WeightOrder() = default;
  WeightOrder(const Desc& from, const Desc& to) : from_(from), to_(to) {
    const dnnl::reorder::primitive_desc desc(onednn_cpu(), from, onednn_cpu(), to,
                                             with_own_scratchpad());
    scratch_bytes_ = desc.scratchpad_desc().get_size();
    primitive_ = dnnl::reorder(desc);
  }

  std::size_t scratch_bytes() const { return scratch_bytes_; }

  void run(const float* source, float* target, char* scratch) const {
    dnnl::stream stream(onednn_cpu());
    primitive_.execute(stream, {{DNNL_ARG_FROM, memory_at(from_, source)},
                                {DNNL_ARG_TO, memory_at(to_, target)},
                                {DNNL_ARG_SCRATCHPAD, scratchpad_at(primitive_, scratch)}});
  }

 private:
  Desc from_, to_;
  dnnl::reorder primitive_;
  std::size_t scratch_bytes_ = 0;
};

// A primitive for some images, and what it says of itself.
template <class Primitive>
struct ConvPart {
  ConvPart() = default;
  ConvPart(const Layouts& l, const typename Primitive::primitive_desc& desc)
      : primitive(desc),
        input(l.input),
        output(l.output),
        name(desc.impl_info_str()),
        scratch(desc.scratchpad_desc().get_size()) {}

  std::size_t scratch_bytes() const { return scratch; }

  Primitive primitive;
  Desc input, output;
  std::string name;
  std::size_t scratch = 0;
};

template <class Primitive>
bool is_fast(const ByPart<ConvPart<Primitive>>& parts) {
  const auto is_reference = [](const std::string& name) {
    return name.find("ref") != std::string::npos;
  };
  return !is_reference(parts.smaller.name) && !is_reference(parts.larger.name);
}

class ConvInputGradient : public InputGradient {
 public:
  ConvInputGradient(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape), images_{s_.batch, std::min(s_.batch, free_cuts(cuts))} {
    // The first part chooses the order of the weights.
    parts_ = {images_, [this](std::int64_t batch) {
                const Layouts l(s_, batch);
                const dnnl::convolution_backward_data::primitive_desc desc(
                    onednn_cpu(), kAlgorithm, l.input, weight_.is_zero() ? l.any_weight : weight_,
                    l.output, l.stride, l.dilation, l.padding, l.padding_end, forward_of(l),
                    with_own_scratchpad());
                weight_ = desc.weights_desc();
                return Part(l, desc);
              }};
    order_ = WeightOrder(Layouts(s_, 1).plain_weight, weight_);
  }

  bool is_usable() const { return is_fast(parts_); }
  std::string name() const override { return parts_.smaller.name; }
  std::size_t scratch_bytes() const override {
    return std::max(parts_.scratch_bytes(), order_.scratch_bytes());
  }
  std::size_t weight_bytes() const override { return weight_.get_size(); }
  std::int64_t parts() const override { return images_.count; }

  void prepare(const float* weight, float* prepared, char* scratch) const override {
    order_.run(weight, prepared, scratch);
  }

  void run(std::int64_t index, const GradientTensors& t, const float* weight,
           char* scratch) const override {
    const Part& part = parts_.of(images_, index);
    const std::int64_t image = images_.first(index);
    dnnl::stream stream(onednn_cpu());
    part.primitive.execute(
        stream,
        {{DNNL_ARG_DIFF_DST, memory_at(part.output, t.grad_output + image * s_.out_image())},
         {DNNL_ARG_WEIGHTS, memory_at(weight_, weight)},
         {DNNL_ARG_DIFF_SRC, memory_at(part.input, t.grad_input + image * s_.in_image())},
         {DNNL_ARG_SCRATCHPAD, scratchpad_at(part.primitive, scratch)}});
  }

 private:
  using Part = ConvPart<dnnl::convolution_backward_data>;

  const ConvShape s_;
  const EvenParts images_;
  Desc weight_;
  ByPart<Part> parts_;
  WeightOrder order_;
};

class ConvWeightGradient : public WeightGradient {
 public:
  ConvWeightGradient(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape), images_{s_.batch, std::min(s_.batch, cuts.parts())} {
    parts_ = {images_, [this](std::int64_t batch) {
                const Layouts l(s_, batch);
                const dnnl::convolution_backward_weights::primitive_desc desc(
                    onednn_cpu(), kAlgorithm, l.input, sums_.is_zero() ? l.any_weight : sums_,
                    l.output, l.stride, l.dilation, l.padding, l.padding_end, forward_of(l),
                    with_own_scratchpad());
                sums_ = desc.diff_weights_desc();
                return Part(l, desc);
              }};
    order_ = WeightOrder(sums_, Layouts(s_, 1).plain_weight);
  }

  bool is_usable() const { return is_fast(parts_); }
  std::string name() const override { return parts_.smaller.name; }
  std::size_t scratch_bytes() const override {
    return std::max(parts_.scratch_bytes(), order_.scratch_bytes());
  }
  std::int64_t parts() const override { return images_.count; }
  std::int64_t sum_elements() const override {
    return static_cast<std::int64_t>(sums_.get_size() / sizeof(float));
  }

  void run(std::int64_t index, const GradientTensors& t, float* sums,
           char* scratch) const override {
    const Part& part = parts_.of(images_, index);
    const std::int64_t image = images_.first(index);
    dnnl::stream stream(onednn_cpu());
    part.primitive.execute(
        stream,
        {{DNNL_ARG_SRC, memory_at(part.input, t.input + image * s_.in_image())},
         {DNNL_ARG_DIFF_DST, memory_at(part.output, t.grad_output + image * s_.out_image())},
         {DNNL_ARG_DIFF_WEIGHTS, memory_at(sums_, sums)},
         {DNNL_ARG_SCRATCHPAD, scratchpad_at(part.primitive, scratch)}});
  }

  void write(const float* sums, float* grad_weight, char* scratch) const override {
    order_.run(sums, grad_weight, scratch);
  }

 private:
  using Part = ConvPart<dnnl::convolution_backward_weights>;

  const ConvShape s_;
  const EvenParts images_;
  Desc sums_;
  ByPart<Part> parts_;
  WeightOrder order_;
};

}  // namespace

std::unique_ptr<const InputGradient> make_conv_input_gradient(const ConvShape& shape,
                                                              const ConvCuts& cuts) {
  auto gradient = std::make_unique<const ConvInputGradient>(shape, cuts);
  if (!gradient->is_usable()) return nullptr;
  return gradient;
}

std::unique_ptr<const WeightGradient> make_conv_weight_gradient(const ConvShape& shape,
                                                                const ConvCuts& cuts) {
  auto gradient = std::make_unique<const ConvWeightGradient>(shape, cuts);
  if (!gradient->is_usable()) return nullptr;
  return gradient;
}

}  // namespace backops

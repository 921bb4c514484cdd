// What is a legal convolution problem, the shape of its output, and which tensors fit it.
#include <algorithm>
#include <iterator>
#include <string>

#include "base/error.h"
#include "ops/common/checks.h"
#include "ops/conv/plan.h"

namespace backops {
namespace {

void check_axes(const ConvProblem& p) {
  if (p.ndim != p.rank + 1 && p.ndim != p.rank + 2) {
    throw Error(ErrorKind::shape, "{input}", shape_text(p.input_shape, std::min(p.ndim, kMaxDims)),
                "expected " + std::to_string(p.rank + 1) + " or " + std::to_string(p.rank + 2) +
                    " axes for {weight} " + shape_text(p.weight_shape, p.rank + 2));
  }
}

void check_channels(const ConvProblem& p) {
  if (p.groups < 1) {
    throw Error(ErrorKind::param, "{groups}", std::to_string(p.groups), "expected at least 1");
  }
  const std::int64_t channels = p.input_shape[p.ndim - p.rank - 1];
  if (channels % p.groups != 0) {
    throw Error(ErrorKind::shape, "{input}", shape_text(p.input_shape, p.ndim),
                "but its " + std::to_string(channels) +
                    " channels do not divide into {groups} = " + std::to_string(p.groups));
  }
  const std::string weight = shape_text(p.weight_shape, p.rank + 2);
  if (is_transposed(p.op)) {
    if (p.weight_shape[0] == channels) return;
    throw Error(ErrorKind::shape, "{weight}", weight,
                "but {input} " + shape_text(p.input_shape, p.ndim) + " has " +
                    std::to_string(channels) + " channels");
  }
  if (p.weight_shape[0] % p.groups != 0) {
    throw Error(ErrorKind::shape, "{weight}", weight,
                "but its " + std::to_string(p.weight_shape[0]) +
                    " output channels do not divide into {groups} = " + std::to_string(p.groups));
  }
  if (p.weight_shape[1] != channels / p.groups) {
    throw Error(ErrorKind::shape, "{weight}", weight,
                "but {input} " + shape_text(p.input_shape, p.ndim) +
                    " with {groups} = " + std::to_string(p.groups) + " has " +
                    std::to_string(channels / p.groups) + " channels per group");
  }
}

void check_parameters(const ConvProblem& p, int axis) {
  check_range("{stride}", axis, p.stride[axis], 1);
  check_range("{padding}", axis, p.padding_before[axis], 0);
  check_range("{padding}", axis, p.padding_after[axis], 0);
  check_range("{dilation}", axis, p.dilation[axis], 1);
  if (!is_transposed(p.op)) return;
  const std::int64_t most = std::max(p.stride[axis], p.dilation[axis]) - 1;
  if (p.output_padding[axis] >= 0 && p.output_padding[axis] <= most) return;
  throw Error(ErrorKind::param, element_name("{output_padding}", axis),
              std::to_string(p.output_padding[axis]),
              "expected 0 to " + std::to_string(most) + " (below {stride}[" + std::to_string(axis) +
                  "] = " + std::to_string(p.stride[axis]) + " or {dilation}[" +
                  std::to_string(axis) + "] = " + std::to_string(p.dilation[axis]) + ")");
}

std::int64_t transposed_output_size(const ConvProblem& p, int axis) {
  constexpr double kMostOutputs = 1e18;
  const std::int64_t in = p.input_shape[p.ndim - p.rank + axis];
  const std::int64_t kernel = p.weight_shape[2 + axis];
  const double windows = static_cast<double>(in - 1) * static_cast<double>(p.stride[axis]) +
                         static_cast<double>(kernel - 1) * static_cast<double>(p.dilation[axis]);
  const auto refuse = [&](const std::string& size) {
    throw Error(ErrorKind::shape, "{input}", shape_text(p.input_shape, p.ndim),
                "but with {weight} " + shape_text(p.weight_shape, p.rank + 2) + ", {stride}[" +
                    std::to_string(axis) + "] = " + std::to_string(p.stride[axis]) +
                    " and {padding}[" + std::to_string(axis) +
                    "] = " + std::to_string(p.padding_before[axis]) + " the output has " + size);
  };
  if (windows > kMostOutputs) refuse("more than 10**18 elements along an axis");
  const std::int64_t padded =
      (in - 1) * p.stride[axis] + (kernel - 1) * p.dilation[axis] + 1 + p.output_padding[axis];
  const std::int64_t size = padded - p.padding_before[axis] - p.padding_after[axis];
  if (size < 1) refuse("size " + std::to_string(size) + " along that axis, expected at least 1");
  return size;
}

std::int64_t output_size(const ConvProblem& p, int axis) {
  check_parameters(p, axis);
  if (is_transposed(p.op)) return transposed_output_size(p, axis);
  const std::int64_t in = p.input_shape[p.ndim - p.rank + axis];
  const std::int64_t kernel = p.weight_shape[2 + axis];
  const std::int64_t padded = in + p.padding_before[axis] + p.padding_after[axis];
  // Compared without the product, which need not fit 64 bits.
  if (kernel > 1 && p.dilation[axis] > (padded - 1) / (kernel - 1)) {
    throw Error(ErrorKind::shape, "{weight}", shape_text(p.weight_shape, p.rank + 2),
                "but " + std::to_string(kernel) + " elements at {dilation}[" +
                    std::to_string(axis) + "] = " + std::to_string(p.dilation[axis]) +
                    " reach over more than the padded {input} size " + std::to_string(padded));
  }
  return (padded - 1 - (kernel - 1) * p.dilation[axis]) / p.stride[axis] + 1;
}

bool has_shape(const TensorView& view, const std::int64_t* shape, int ndim) {
  return view.ndim == ndim && std::equal(shape, shape + ndim, view.shape);
}

void check_shape(const char* name, const TensorView& got, const std::int64_t* expected, int ndim,
                 const char* because) {
  if (has_shape(got, expected, ndim)) return;
  throw Error(ErrorKind::shape, name, shape_text(got.shape, got.ndim),
              because + shape_text(expected, ndim));
}

std::string padding_text(const ConvProblem& p) {
  const std::string before = shape_text(p.padding_before, p.rank);
  const std::string after = shape_text(p.padding_after, p.rank);
  return before == after ? before : before + " before and " + after + " after";
}

void check_output_shape(const char* name, const ConvProblem& p, const std::int64_t* output_shape,
                        const TensorView& output) {
  if (has_shape(output, output_shape, p.ndim)) return;
  const std::string output_padding =
      is_transposed(p.op) ? ", {output_padding} " + shape_text(p.output_padding, p.rank) : "";
  throw Error(ErrorKind::shape, name, shape_text(output.shape, output.ndim),
              "but {input} " + shape_text(p.input_shape, p.ndim) + " and {weight} " +
                  shape_text(p.weight_shape, p.rank + 2) + " with {stride} " +
                  shape_text(p.stride, p.rank) + ", {padding} " + padding_text(p) + output_padding +
                  ", {dilation} " + shape_text(p.dilation, p.rank) + " make " +
                  shape_text(output_shape, p.ndim));
}

}  // namespace

int conv_rank(const std::int64_t* weight_shape, int ndim) {
  if (ndim < 3 || ndim > 2 + kMaxConvRank) {
    throw Error(ErrorKind::shape, "{weight}", shape_text(weight_shape, ndim),
                "expected 3 to 5 axes");
  }
  return ndim - 2;
}

LegalConvProblem::LegalConvProblem(const ConvProblem& p) : problem_(p) {
  check_axes(p);
  const bool batched = p.ndim == p.rank + 2;
  check_sizes("{input}", p.input_shape, p.ndim, batched);
  check_sizes("{weight}", p.weight_shape, p.rank + 2, false);
  check_channels(p);
  // Sums take eight bytes at most, whatever the elements take.
  check_bytes("{input}", p.input_shape, p.ndim, DType::float64);
  check_bytes("{weight}", p.weight_shape, p.rank + 2, DType::float64);
  if (batched) output_shape_[0] = p.input_shape[0];
  output_shape_[p.ndim - p.rank - 1] =
      is_transposed(p.op) ? p.groups * p.weight_shape[1] : p.weight_shape[0];
  for (int axis = 0; axis < p.rank; ++axis) {
    output_shape_[p.ndim - p.rank + axis] = output_size(p, axis);
  }
  check_bytes(is_backward(p.op) ? "{grad_output}" : "{output}", output_shape_, p.ndim,
              DType::float64);
}

void LegalConvProblem::check_inputs(const ConvTensors& t) const {
  const ConvProblem& p = problem_;
  // The tensor that the others are to be like is the first one.
  const bool backward = is_backward(p.op);
  const char* const like = backward ? " like {grad_output}" : " like {input}";
  if (t.grad_output != nullptr) {
    check_dtype("{grad_output}", t.grad_output->dtype, p.dtype, " as planned");
    check_output_shape("{grad_output}", p, output_shape_, *t.grad_output);
  }
  if (t.input != nullptr) {
    check_dtype("{input}", t.input->dtype, p.dtype, backward ? like : " as planned");
    check_shape("{input}", *t.input, p.input_shape, p.ndim, "expected ");
  }
  if (t.weight != nullptr) {
    check_dtype("{weight}", t.weight->dtype, p.dtype, like);
    check_shape("{weight}", *t.weight, p.weight_shape, p.rank + 2, "expected ");
  }
  if (t.bias != nullptr) {
    const std::int64_t channels = output_channels();
    check_dtype("{bias}", t.bias->dtype, p.dtype, like);
    check_shape("{bias}", *t.bias, &channels, 1, "expected one element per output channel, ");
  }
}

void ConvPlan::check_results(const ConvTensors& t) const {
  const ConvProblem& p = problem();
  if (t.output != nullptr) {
    check_dtype("{output}", t.output->dtype, p.dtype, " like {input}");
    check_output_shape("{output}", p, output_shape(), *t.output);
    check_no_overlap_within("{output}", *t.output);
  }
  const std::int64_t channels = legal().output_channels();
  const struct {
    const char* name;
    const TensorView* view;
    const std::int64_t* shape;
    int ndim;
    const char* because;
  } results[] = {
      {"{grad_input}", t.grad_input, p.input_shape, p.ndim, "expected that of {input}, "},
      {"{grad_weight}", t.grad_weight, p.weight_shape, p.rank + 2, "expected that of {weight}, "},
      {"{grad_bias}", t.grad_bias, &channels, 1, "expected one element per output channel, "}};
  for (const auto& result : results) {
    if (result.view == nullptr) continue;
    check_dtype(result.name, result.view->dtype, p.dtype, " like {grad_output}");
    check_shape(result.name, *result.view, result.shape, result.ndim, result.because);
    check_no_overlap_within(result.name, *result.view);
  }
}

void ConvPlan::check_memory(const ConvTensors& t, const void* workspace, std::size_t bytes) const {
  const RunTensor tensors[] = {{"{grad_output}", t.grad_output, false},
                               {"{input}", t.input, false},
                               {"{weight}", t.weight, false},
                               {"{bias}", t.bias, false},
                               {"{output}", t.output, true},
                               {"{grad_input}", t.grad_input, true},
                               {"{grad_weight}", t.grad_weight, true},
                               {"{grad_bias}", t.grad_bias, true}};
  backops::check_memory(tensors, std::size(tensors), workspace, bytes);
}

}  // namespace backops

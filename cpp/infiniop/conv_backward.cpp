#include "infiniop/ops/conv_backward.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/threads.h"
#include "infiniop/operand.h"
#include "infiniop/operator.h"
#include "infiniop/parameters.h"
#include "ops/conv/plan.h"

namespace backops::infini {
namespace {

struct ConvArguments {
  const InfiniopTensorDescriptor& grad_output;
  const InfiniopTensorDescriptor& input;
  const InfiniopTensorDescriptor& weight;
  const InfiniopTensorDescriptor* bias;  // may be null
  const void* pads;
  const void* strides;
  const void* dilations;
  std::size_t groups;
};

// Checked before a plan is made, which takes long.
LegalConvProblem problem_of(const ConvArguments& arguments, const TensorView& grad_output,
                            const TensorView& input, const TensorView& weight) {
  ConvProblem problem;
  problem.rank = conv_rank(weight.shape, weight.ndim);
  if (input.ndim != weight.ndim) {
    throw Error(ErrorKind::shape, "{input}", shape_text(input.shape, input.ndim),
                "expected as many axes as {weight} " + shape_text(weight.shape, weight.ndim));
  }
  problem.ndim = input.ndim;
  problem.dtype = input.dtype;
  std::copy(input.shape, input.shape + input.ndim, problem.input_shape);
  std::copy(weight.shape, weight.shape + weight.ndim, problem.weight_shape);
  const bool narrow = are_narrow(arguments.strides, arguments.dilations, problem.rank);
  read_axes(arguments.strides, problem.rank, 1, problem.stride, narrow);
  read_axes(arguments.pads, problem.rank, 0, problem.padding_before, narrow);
  problem.pad_both_ends();
  read_axes(arguments.dilations, problem.rank, 1, problem.dilation, narrow);
  problem.groups = static_cast<std::int64_t>(arguments.groups);
  problem.wants_bias = arguments.bias != nullptr;
  ConvTensors inputs;
  inputs.grad_output = &grad_output;
  inputs.input = &input;
  inputs.weight = &weight;
  const LegalConvProblem legal(problem);
  legal.check_inputs(inputs);
  return legal;
}

std::optional<Operand> bias_of(const InfiniopTensorDescriptor* bias) {
  if (bias == nullptr) return std::nullopt;
  return operand_of(*bias, "{bias}");
}

// Each gradient has the shape and strides of the tensor it belongs to.
class ConvBackward {
 public:
  static constexpr OperatorKind kKind = OperatorKind::conv_backward;
  static constexpr infiniStatus_t kTooSmallWorkspace = INFINI_STATUS_INSUFFICIENT_WORKSPACE;

  struct Data {
    void *grad_input, *grad_weight, *grad_bias;
    const void *grad_output, *input, *weight;
  };

  explicit ConvBackward(const ConvArguments& arguments)
      : threads_(default_thread_count()),
        grad_output_(operand_of(arguments.grad_output, "{grad_output}")),
        input_(operand_of(arguments.input, "{input}")),
        weight_(operand_of(arguments.weight, "{weight}")),
        bias_(bias_of(arguments.bias)),
        plan_(problem_of(arguments, grad_output_.view(), input_.view(), weight_.view()), threads_,
              /*deterministic=*/false) {
    check_gradients();
  }

  std::size_t workspace_bytes() const { return plan_.workspace_bytes(); }

  bool accepts(const Data& data, const void* workspace, std::size_t bytes) const {
    if (any_null(data.grad_input, data.grad_weight, data.grad_output, data.input, data.weight)) {
      return false;
    }
    if (bias_ && data.grad_bias == nullptr) return false;
    const Placed reads[] = {
        {&grad_output_, data.grad_output}, {&input_, data.input}, {&weight_, data.weight}};
    const Placed writes[] = {{&input_, data.grad_input},
                             {&weight_, data.grad_weight},
                             {bias_ ? &*bias_ : nullptr, data.grad_bias}};
    for (const Placed& read : reads) {
      if (read.reaches_into(workspace, bytes)) return false;
    }
    for (const Placed* write = writes; write != std::end(writes); ++write) {
      if (write->reaches_into(workspace, bytes)) return false;
      for (const Placed& read : reads) {
        if (write->shares_memory_with(read)) return false;
      }
      for (const Placed* other = writes; other != write; ++other) {
        if (write->shares_memory_with(*other)) return false;
      }
    }
    return true;
  }

  void run(const Data& data, void* workspace) const noexcept {
    const TensorView grad_output = grad_output_.at(data.grad_output);
    const TensorView input = input_.at(data.input), grad_input = input_.at(data.grad_input);
    const TensorView weight = weight_.at(data.weight), grad_weight = weight_.at(data.grad_weight);
    const TensorView grad_bias = bias_ ? bias_->at(data.grad_bias) : TensorView{};
    plan_.run(
        {&grad_output, &input, &weight, &grad_input, &grad_weight, bias_ ? &grad_bias : nullptr},
        workspace, threads_);
  }

 private:
  // An operand and its data in one run; without operand it is not there.
  struct Placed {
    const Operand* operand;
    const void* data;

    bool reaches_into(const void* memory, std::size_t bytes) const {
      return operand != nullptr && operand->reaches_into(data, memory, bytes);
    }
    bool shares_memory_with(const Placed& other) const {
      return operand != nullptr && other.operand != nullptr &&
             Operand::share_memory(*operand, data, *other.operand, other.data);
    }
  };

  // One gradient at a time: without data, tensors cannot be told apart.
  void check_gradients() const {
    ConvTensors grad_input, grad_weight, grad_bias;
    grad_input.grad_input = &input_.view();
    grad_weight.grad_weight = &weight_.view();
    if (bias_) grad_bias.grad_bias = &bias_->view();
    for (const ConvTensors& gradient : {grad_input, grad_weight, grad_bias}) {
      plan_.check_results(gradient);
    }
  }

  const int threads_;
  const Operand grad_output_, input_, weight_;
  const std::optional<Operand> bias_;
  const ConvPlan plan_;
};

}  // namespace
}  // namespace backops::infini

using namespace backops::infini;

infiniStatus_t infiniopCreateConvBackwardDescriptor(
    infiniopHandle_t handle, infiniopConvBackwardDescriptor_t* desc_ptr,
    infiniopTensorDescriptor_t grad_output_desc, infiniopTensorDescriptor_t input_desc,
    infiniopTensorDescriptor_t weight_desc, infiniopTensorDescriptor_t bias_desc, void* pads,
    void* strides, void* dilations, std::size_t n) {
  return guarded([&] {
    if (any_null(handle, desc_ptr, grad_output_desc, input_desc, weight_desc)) {
      return INFINI_STATUS_BAD_PARAM;
    }
    return create<ConvBackward>(*handle, desc_ptr,
                                ConvArguments{*grad_output_desc, *input_desc, *weight_desc,
                                              bias_desc, pads, strides, dilations, n});
  });
}

infiniStatus_t infiniopGetConvBackwardWorkspaceSize(infiniopConvBackwardDescriptor_t desc,
                                                    std::size_t* size) {
  return workspace_size<ConvBackward>(desc, size);
}

infiniStatus_t infiniopConvBackward(infiniopConvBackwardDescriptor_t desc, void* workspace,
                                    std::size_t workspace_size, void* grad_input, void* grad_weight,
                                    void* grad_bias, const void* grad_output, const void* input,
                                    const void* weight, void* stream) {
  return compute<ConvBackward>(desc, workspace, workspace_size,
                               {grad_input, grad_weight, grad_bias, grad_output, input, weight},
                               stream);
}

infiniStatus_t infiniopDestroyConvBackwardDescriptor(infiniopConvBackwardDescriptor_t desc) {
  return destroy<ConvBackward>(desc);
}

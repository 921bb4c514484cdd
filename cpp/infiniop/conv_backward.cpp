#include "infiniop/ops/conv_backward.h"

#include <optional>

#include "base/threads.h"
#include "infiniop/conv_problem.h"
#include "infiniop/operand.h"
#include "infiniop/operator.h"

namespace backops::infini {
namespace {

struct ConvBackwardArguments {
  const InfiniopTensorDescriptor& grad_output;
  const InfiniopTensorDescriptor& input;
  const InfiniopTensorDescriptor& weight;
  const InfiniopTensorDescriptor* bias;  // may be null
  ConvParameters parameters;
  std::size_t groups;
};

// Each gradient has the shape and strides of the tensor it belongs to.
class ConvBackward {
 public:
  static constexpr OperatorKind kKind = OperatorKind::conv_backward;
  static constexpr infiniStatus_t kTooSmallWorkspace = INFINI_STATUS_INSUFFICIENT_WORKSPACE;

  struct Data {
    void *grad_input, *grad_weight, *grad_bias;
    const void *grad_output, *input, *weight;
  };

  explicit ConvBackward(const ConvBackwardArguments& arguments)
      : threads_(default_thread_count()),
        grad_output_(operand_of(arguments.grad_output, "{grad_output}")),
        input_(operand_of(arguments.input, "{input}")),
        weight_(operand_of(arguments.weight, "{weight}")),
        bias_(operand_of(arguments.bias, "{bias}")),
        plan_(legal_problem(arguments), threads_, /*deterministic=*/false) {
    check_gradients();
  }

  std::size_t workspace_bytes() const { return plan_.workspace_bytes(); }

  bool has_all(const Data& data) const {
    return !any_null(data.grad_input, data.grad_weight, data.grad_output, data.input,
                     data.weight) &&
           (!bias_ || data.grad_bias != nullptr);
  }

  void check_memory(const Data& data, const void* workspace, std::size_t bytes) const {
    plan_.check_memory(Views(*this, data).tensors, workspace, bytes);
  }

  void run(const Data& data, void* workspace) const noexcept {
    plan_.run(Views(*this, data).tensors, workspace, threads_);
  }

 private:
  // The tensors of one run.
  struct Views {
    Views(const ConvBackward& op, const Data& data)
        : grad_output(op.grad_output_.at(data.grad_output)),
          input(op.input_.at(data.input)),
          weight(op.weight_.at(data.weight)),
          grad_input(op.input_.at(data.grad_input)),
          grad_weight(op.weight_.at(data.grad_weight)),
          grad_bias(op.bias_ ? op.bias_->at(data.grad_bias) : TensorView{}) {
      tensors.grad_output = &grad_output;
      tensors.input = &input;
      tensors.weight = &weight;
      tensors.grad_input = &grad_input;
      tensors.grad_weight = &grad_weight;
      if (op.bias_) tensors.grad_bias = &grad_bias;
    }
    Views(const Views&) = delete;
    Views& operator=(const Views&) = delete;

    const TensorView grad_output, input, weight, grad_input, grad_weight, grad_bias;
    ConvTensors tensors;
  };

  // Checked before a plan is made, which takes long.
  LegalConvProblem legal_problem(const ConvBackwardArguments& arguments) const {
    ConvProblem problem = conv_problem(input_.view(), weight_.view(), arguments.parameters);
    problem.op = ConvOperator::backward;
    problem.groups = static_cast<std::int64_t>(arguments.groups);
    problem.wants_bias = bias_.has_value();
    ConvTensors inputs;
    inputs.grad_output = &grad_output_.view();
    inputs.input = &input_.view();
    inputs.weight = &weight_.view();
    const LegalConvProblem legal(problem);
    legal.check_inputs(inputs);
    return legal;
  }

  void check_gradients() const {
    ConvTensors gradients;
    gradients.grad_input = &input_.view();
    gradients.grad_weight = &weight_.view();
    if (bias_) gradients.grad_bias = &bias_->view();
    plan_.check_results(gradients);
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
                                ConvBackwardArguments{*grad_output_desc,
                                                      *input_desc,
                                                      *weight_desc,
                                                      bias_desc,
                                                      {pads, strides, dilations},
                                                      n});
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

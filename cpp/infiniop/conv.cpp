#include "infiniop/ops/conv.h"

#include <optional>

#include "base/threads.h"
#include "infiniop/conv_problem.h"
#include "infiniop/operand.h"
#include "infiniop/operator.h"

namespace backops::infini {
namespace {

struct ConvArguments {
  const InfiniopTensorDescriptor& y;
  const InfiniopTensorDescriptor& x;
  const InfiniopTensorDescriptor& w;
  const InfiniopTensorDescriptor* b;  // may be null
  ConvParameters parameters;
  std::size_t n;
};

// InfiniCore's clients say the number of spatial axes, of convolutions without groups; `n` is the
// number of groups otherwise, as of ConvBackward. No call has both meanings: where a weight reads
// every channel, there are no two or three groups.
std::int64_t groups_of(std::size_t n, const ConvProblem& problem) {
  const bool reads_every_channel = problem.weight_shape[1] == problem.input_shape[1];
  const bool counts_axes = n == static_cast<std::size_t>(problem.rank);
  return reads_every_channel && counts_axes ? 1 : static_cast<std::int64_t>(n);
}

class Conv {
 public:
  static constexpr OperatorKind kKind = OperatorKind::conv;
  static constexpr infiniStatus_t kTooSmallWorkspace = INFINI_STATUS_INSUFFICIENT_WORKSPACE;

  struct Data {
    void* y;
    const void *x, *w, *bias;
  };

  explicit Conv(const ConvArguments& arguments)
      : threads_(default_thread_count()),
        y_(operand_of(arguments.y, "{output}")),
        x_(operand_of(arguments.x, "{input}")),
        w_(operand_of(arguments.w, "{weight}")),
        bias_(operand_of(arguments.b, "{bias}")),
        plan_(legal_problem(arguments), threads_, /*deterministic=*/false) {
    ConvTensors results;
    results.output = &y_.view();
    plan_.check_results(results);
  }

  std::size_t workspace_bytes() const { return plan_.workspace_bytes(); }

  bool has_all(const Data& data) const {
    return !any_null(data.y, data.x, data.w) && (!bias_ || data.bias != nullptr);
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
    Views(const Conv& op, const Data& data)
        : y(op.y_.at(data.y)),
          x(op.x_.at(data.x)),
          w(op.w_.at(data.w)),
          bias(op.bias_ ? op.bias_->at(data.bias) : TensorView{}) {
      tensors.output = &y;
      tensors.input = &x;
      tensors.weight = &w;
      if (op.bias_) tensors.bias = &bias;
    }
    Views(const Views&) = delete;
    Views& operator=(const Views&) = delete;

    const TensorView y, x, w, bias;
    ConvTensors tensors;
  };

  // Checked before a plan is made, which takes long.
  LegalConvProblem legal_problem(const ConvArguments& arguments) const {
    ConvProblem problem = conv_problem(x_.view(), w_.view(), arguments.parameters);
    problem.op = ConvOperator::conv;
    problem.groups = groups_of(arguments.n, problem);
    problem.has_bias = bias_.has_value();
    ConvTensors inputs;
    inputs.input = &x_.view();
    inputs.weight = &w_.view();
    if (bias_) inputs.bias = &bias_->view();
    const LegalConvProblem legal(problem);
    legal.check_inputs(inputs);
    return legal;
  }

  const int threads_;
  const Operand y_, x_, w_;
  const std::optional<Operand> bias_;
  const ConvPlan plan_;
};

}  // namespace
}  // namespace backops::infini

using namespace backops::infini;

infiniStatus_t infiniopCreateConvDescriptor(
    infiniopHandle_t handle, infiniopConvDescriptor_t* desc_ptr, infiniopTensorDescriptor_t y_desc,
    infiniopTensorDescriptor_t x_desc, infiniopTensorDescriptor_t w_desc,
    infiniopTensorDescriptor_t b_desc, void* pads, void* strides, void* dilations, std::size_t n) {
  return guarded([&] {
    if (any_null(handle, desc_ptr, y_desc, x_desc, w_desc)) return INFINI_STATUS_BAD_PARAM;
    return create<Conv>(
        *handle, desc_ptr,
        ConvArguments{*y_desc, *x_desc, *w_desc, b_desc, {pads, strides, dilations}, n});
  });
}

infiniStatus_t infiniopGetConvWorkspaceSize(infiniopConvDescriptor_t desc, std::size_t* size) {
  return workspace_size<Conv>(desc, size);
}

infiniStatus_t infiniopConv(infiniopConvDescriptor_t desc, void* workspace,
                            std::size_t workspace_size, void* y, const void* x, const void* w,
                            const void* bias, void* stream) {
  return compute<Conv>(desc, workspace, workspace_size, {y, x, w, bias}, stream);
}

infiniStatus_t infiniopDestroyConvDescriptor(infiniopConvDescriptor_t desc) {
  return destroy<Conv>(desc);
}

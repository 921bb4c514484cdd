#include "infiniop/ops/averagepool_backward.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/threads.h"
#include "infiniop/operand.h"
#include "infiniop/operator.h"
#include "infiniop/parameters.h"
#include "ops/pool/plan.h"

namespace backops::infini {
namespace {

struct PoolArguments {
  const InfiniopTensorDescriptor& grad_input;
  const InfiniopTensorDescriptor& grad_output;
  const InfiniopTensorDescriptor& input;
  const void* kernel_size;
  const void* strides;
  const void* pads;
  bool ceil_mode;
};

// The number of axes tells the rank: (N, C, *spatial).
int rank_of(const TensorView& input) {
  if (input.ndim < 3 || input.ndim > kMaxRank + 2) {
    throw Error(ErrorKind::shape, "{input}", shape_text(input.shape, input.ndim),
                "expected 3 to 5 axes");
  }
  return input.ndim - 2;
}

// Checked before a plan is made, which may take long.
LegalPoolProblem problem_of(const PoolArguments& arguments, const TensorView& grad_output) {
  const TensorView input = operand_of(arguments.input, "{input}").view();
  PoolProblem problem;
  problem.rank = rank_of(input);
  problem.ndim = input.ndim;
  problem.dtype = input.dtype;
  std::copy(input.shape, input.shape + input.ndim, problem.input_shape);
  read_axes(arguments.kernel_size, problem.rank, problem.kernel_size);
  read_axes(arguments.strides != nullptr ? arguments.strides : arguments.kernel_size, problem.rank,
            problem.stride);
  read_axes(arguments.pads, problem.rank, 0, problem.padding);
  problem.ceil_mode = arguments.ceil_mode;
  const LegalPoolProblem legal(problem);
  legal.check_source(grad_output);
  return legal;
}

class AvgPoolBackward {
 public:
  static constexpr OperatorKind kKind = OperatorKind::average_pool_backward;
  static constexpr infiniStatus_t kTooSmallWorkspace = INFINI_STATUS_BAD_PARAM;

  struct Data {
    void* grad_input;
    const void* grad_output;
    const void* input;
  };

  explicit AvgPoolBackward(const PoolArguments& arguments)
      : threads_(default_thread_count()),
        grad_input_(operand_of(arguments.grad_input, "{grad_input}")),
        grad_output_(operand_of(arguments.grad_output, "{grad_output}")),
        plan_(problem_of(arguments, grad_output_.view())),
        workspace_bytes_(plan_.workspace_bytes(threads_)) {
    plan_.check_target(grad_input_.view());
  }

  std::size_t workspace_bytes() const { return workspace_bytes_; }

  // The forward input is asked for, as documented, though only its shape is used.
  static bool has_all(const Data& data) {
    return !any_null(data.grad_input, data.grad_output, data.input);
  }

  void check_memory(const Data& data, const void* workspace, std::size_t bytes) const {
    plan_.check_memory(grad_output_.at(data.grad_output), grad_input_.at(data.grad_input),
                       workspace, bytes);
  }

  void run(const Data& data, void* workspace) const noexcept {
    plan_.run(grad_output_.at(data.grad_output), grad_input_.at(data.grad_input), workspace,
              threads_);
  }

 private:
  const int threads_;
  const Operand grad_input_, grad_output_;
  const PoolPlan plan_;
  const std::size_t workspace_bytes_;
};

}  // namespace
}  // namespace backops::infini

using namespace backops::infini;

infiniStatus_t infiniopCreateAvgPoolBackwardDescriptor(
    infiniopHandle_t handle, infiniopAvgPoolBackwardDescriptor_t* desc_ptr,
    infiniopTensorDescriptor_t grad_input_desc, infiniopTensorDescriptor_t grad_output_desc,
    infiniopTensorDescriptor_t input_desc, void* kernel_size, void* strides, void* pads,
    bool ceil_mode) {
  return guarded([&] {
    if (any_null(handle, desc_ptr, grad_input_desc, grad_output_desc, input_desc, kernel_size)) {
      return INFINI_STATUS_BAD_PARAM;
    }
    return create<AvgPoolBackward>(*handle, desc_ptr,
                                   PoolArguments{*grad_input_desc, *grad_output_desc, *input_desc,
                                                 kernel_size, strides, pads, ceil_mode});
  });
}

infiniStatus_t infiniopGetAvgPoolBackwardWorkspaceSize(infiniopAvgPoolBackwardDescriptor_t desc,
                                                       std::size_t* size) {
  return workspace_size<AvgPoolBackward>(desc, size);
}

infiniStatus_t infiniopAvgPoolBackward(infiniopAvgPoolBackwardDescriptor_t desc, void* workspace,
                                       std::size_t workspace_size, void* grad_input,
                                       const void* grad_output, const void* input, void* stream) {
  return compute<AvgPoolBackward>(desc, workspace, workspace_size, {grad_input, grad_output, input},
                                  stream);
}

infiniStatus_t infiniopDestroyAvgPoolBackwardDescriptor(infiniopAvgPoolBackwardDescriptor_t desc) {
  return destroy<AvgPoolBackward>(desc);
}

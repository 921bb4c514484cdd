#include "acl/pool_backward.h"

#include <algorithm>
#include <string>

#include "base/threads.h"

namespace backops::acl {
namespace {

class PoolWork : public Work {
 public:
  explicit PoolWork(const LegalPoolProblem& problem)
      : threads_(default_thread_count()),
        plan_(problem),
        workspace_bytes_(plan_.workspace_bytes(threads_)) {
    finish_work_before_exit<PoolWork>();
  }

  const PoolPlan& plan() const { return plan_; }
  std::size_t workspace_bytes() const override { return workspace_bytes_; }

  // The forward input, the tensor in the middle, is asked for though only its shape is used.
  void run(const TensorView* tensors, void* workspace) const noexcept override {
    plan_.run(tensors[0], tensors[2], workspace, threads_);
  }

 private:
  const int threads_;
  const PoolPlan plan_;
  const std::size_t workspace_bytes_;
};

}  // namespace

PoolProblem pool_problem(const PoolTensors& tensors, int rank, const Product& product) {
  const TensorArgument& self = tensors.self;
  for (const TensorArgument* each : {&tensors.self, &tensors.grad_output, &tensors.grad_input}) {
    const bool known = each->ndim() == rank + 1 || each->ndim() == rank + 2;
    if (known && each->ndim() == self.ndim()) continue;
    throw Failure(ACLNN_ERR_PARAM_INVALID, each->name(),
                  "a tensor of " + std::to_string(each->ndim()) + " axes",
                  known
                      ? "expected as many as self, " + std::to_string(self.ndim())
                      : "expected " + std::to_string(rank + 1) + " or " + std::to_string(rank + 2));
  }
  const TensorView input = self.operand(product).view();
  tensors.grad_output.check_same_dtype(self);
  tensors.grad_input.check_same_dtype(self);
  PoolProblem problem;
  problem.rank = rank;
  problem.ndim = input.ndim;
  problem.dtype = input.dtype;
  std::copy(input.shape, input.shape + input.ndim, problem.input_shape);
  return problem;
}

void read_windows(const IntArrayArgument& kernel_size,
                  const std::optional<IntArrayArgument>& stride, const IntArrayArgument& padding,
                  PoolProblem& problem) {
  kernel_size.read_axes(problem.rank, problem.kernel_size);
  const bool has_stride = stride && !stride->values().empty();
  (has_stride ? *stride : kernel_size).read_axes(problem.rank, problem.stride);
  padding.read_axes(problem.rank, problem.padding);
}

Planned plan_pool(const LegalPoolProblem& problem, const PoolTensors& tensors,
                  const Product& product) {
  const Operand grad_output = tensors.grad_output.operand(product);
  const Operand grad_input = tensors.grad_input.operand(product);
  // Before a plan is made, which may take long.
  problem.check_source(grad_output.view());
  const auto work = std::make_shared<const PoolWork>(problem);
  work->plan().check_target(grad_input.view());
  return {{tensors.grad_output.bound(grad_output, false),
           tensors.self.bound(tensors.self.operand(product), false),
           tensors.grad_input.bound(grad_input, true)},
          work};
}

}  // namespace backops::acl

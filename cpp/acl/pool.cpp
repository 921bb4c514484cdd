#include "acl/pool.h"

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

  std::size_t workspace_bytes() const override { return workspace_bytes_; }

  // Of a gradient, the tensor in the middle is asked for though only its shape is used.
  void run(const TensorView* tensors, void* workspace) const noexcept override {
    const TensorView& target = tensors[plan_.problem().is_forward() ? 1 : 2];
    plan_.run(tensors[0], target, workspace, threads_);
  }

 private:
  const int threads_;
  const PoolPlan plan_;
  const std::size_t workspace_bytes_;
};

void check_axes(const PoolTensors& tensors, int rank) {
  const int expected = tensors.self.ndim();
  const auto check = [&](const TensorArgument& each) {
    const bool known = each.ndim() == rank + 1 || each.ndim() == rank + 2;
    if (known && each.ndim() == expected) return;
    throw Failure(ACLNN_ERR_PARAM_INVALID, each.name(),
                  "a tensor of " + std::to_string(each.ndim()) + " axes",
                  known
                      ? "expected as many as self, " + std::to_string(expected)
                      : "expected " + std::to_string(rank + 1) + " or " + std::to_string(rank + 2));
  };
  check(tensors.self);
  for (const TensorArgument* each : tensors.all()) check(*each);
}

}  // namespace

std::vector<const TensorArgument*> PoolTensors::all() const {
  if (is_forward()) return {&self, &result};
  return {&*grad_output, &self, &result};
}

PoolProblem pool_problem(const PoolTensors& tensors, int rank, const Product& product) {
  check_axes(tensors, rank);
  const TensorView input = tensors.self.operand(product).view();
  for (const TensorArgument* each : tensors.all()) each->check_same_dtype(tensors.self);
  PoolProblem problem;
  problem.direction = tensors.is_forward() ? PoolDirection::forward : PoolDirection::backward;
  problem.rank = rank;
  problem.ndim = input.ndim;
  problem.dtype = input.dtype;
  std::copy(input.shape, input.shape + input.ndim, problem.input_shape);
  return problem;
}

void WindowArguments::read(PoolProblem& problem) const {
  kernel_size.read_axes(problem.rank, problem.kernel_size);
  const bool has_stride = stride && !stride->values().empty();
  (has_stride ? *stride : kernel_size).read_axes(problem.rank, problem.stride);
  padding.read_axes(problem.rank, problem.padding);
  problem.ceil_mode = ceil_mode;
  problem.count_include_pad = count_include_pad;
  problem.divisor_override = divisor_override;
}

Planned plan_pool(const LegalPoolProblem& problem, const PoolTensors& tensors,
                  const Product& product) {
  const Operand source = tensors.all().front()->operand(product);
  const Operand target = tensors.result.operand(product);
  // Before a plan is made, which may take long.
  problem.check_source(source.view());
  problem.check_target(target.view());
  const auto work = std::make_shared<const PoolWork>(problem);
  return bind_pool(tensors, product, work);
}

Planned bind_pool(const PoolTensors& tensors, const Product& product,
                  std::shared_ptr<const Work> work) {
  std::vector<BoundTensor> bound;
  for (const TensorArgument* each : tensors.all()) {
    bound.push_back(each->bound(each->operand(product), each == &tensors.result));
  }
  return {std::move(bound), std::move(work)};
}

}  // namespace backops::acl

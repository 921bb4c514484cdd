#include "infiniop/pool.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/threads.h"
#include "infiniop/parameters.h"

namespace backops::infini {

PoolProblem pool_problem(PoolDirection direction, const InfiniopTensorDescriptor& input,
                         int lowest_rank, int highest_rank) {
  const TensorView view = operand_of(input, "{input}").view();
  const int rank = view.ndim - 2;
  if (rank < lowest_rank || rank > highest_rank) {
    throw Error(ErrorKind::shape, "{input}", shape_text(view.shape, view.ndim),
                "expected " + std::to_string(lowest_rank + 2) + " to " +
                    std::to_string(highest_rank + 2) + " axes");
  }
  PoolProblem problem;
  problem.direction = direction;
  problem.rank = rank;
  problem.ndim = view.ndim;
  problem.dtype = view.dtype;
  std::copy(view.shape, view.shape + view.ndim, problem.input_shape);
  return problem;
}

PoolProblem pool_problem(PoolDirection direction, const InfiniopTensorDescriptor& input,
                         int lowest_rank, int highest_rank, const PoolWindows& windows) {
  PoolProblem problem = pool_problem(direction, input, lowest_rank, highest_rank);
  read_axes(windows.kernel_size, problem.rank, problem.kernel_size);
  read_axes(windows.strides != nullptr ? windows.strides : windows.kernel_size, problem.rank,
            problem.stride);
  read_axes(windows.pads, problem.rank, 0, problem.padding);
  problem.ceil_mode = windows.ceil_mode;
  return problem;
}

PoolOperator::PoolOperator(const InfiniopTensorDescriptor& target,
                           const InfiniopTensorDescriptor& source, const PoolProblem& problem)
    : threads_(default_thread_count()),
      target_(operand_of(target, problem.target_name())),
      source_(operand_of(source, problem.source_name())),
      plan_(checked(problem)),
      workspace_bytes_(plan_.workspace_bytes(threads_)) {}

// Before a plan is made, which may take long.
LegalPoolProblem PoolOperator::checked(const PoolProblem& problem) const {
  const LegalPoolProblem legal(problem);
  legal.check_source(source_.view());
  legal.check_target(target_.view());
  return legal;
}

void PoolOperator::check_memory(const Data& data, const void* workspace, std::size_t bytes) const {
  plan_.check_memory(source_.at(data.source), target_.at(data.target), workspace, bytes);
}

void PoolOperator::run(const Data& data, void* workspace) const noexcept {
  plan_.run(source_.at(data.source), target_.at(data.target), workspace, threads_);
}

}  // namespace backops::infini

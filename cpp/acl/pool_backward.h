// What the pooling operators share.
#pragma once

#include <optional>

#include "acl/arguments.h"
#include "ops/pool/plan.h"

namespace backops::acl {

struct PoolTensors {
  TensorArgument grad_output, self, grad_input;
};

// Throws unless there are `rank` + 1 or `rank` + 2 axes, of dtypes the product has, the same for
// all.
PoolProblem pool_problem(const PoolTensors& tensors, int rank, const Product& product);

// No `stride`, or an empty one, means the kernel's sizes.
void read_windows(const IntArrayArgument& kernel_size,
                  const std::optional<IntArrayArgument>& stride, const IntArrayArgument& padding,
                  PoolProblem& problem);

Planned plan_pool(const LegalPoolProblem& problem, const PoolTensors& tensors,
                  const Product& product);

}  // namespace backops::acl

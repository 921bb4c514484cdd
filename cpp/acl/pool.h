// What the pooling operators share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "acl/arguments.h"
#include "ops/pool/plan.h"

namespace backops::acl {

// Those of a gradient, or of the operator it belongs to.
struct PoolTensors {
  std::optional<TensorArgument> grad_output;  // of a gradient
  TensorArgument self;
  TensorArgument result;

  bool is_forward() const { return !grad_output; }
  // What has one element for each window.
  const TensorArgument& pooled() const { return is_forward() ? result : *grad_output; }
  // In the order of the executor's.
  std::vector<const TensorArgument*> all() const;
};

// Throws unless there are `rank` + 1 or `rank` + 2 axes, of dtypes the product has, the same for
// all.
PoolProblem pool_problem(const PoolTensors& tensors, int rank, const Product& product);

// Fixed windows.
struct WindowArguments {
  IntArrayArgument kernel_size;
  std::optional<IntArrayArgument> stride;  // none, or an empty one: the kernel's sizes
  IntArrayArgument padding;
  bool ceil_mode, count_include_pad;
  std::int64_t divisor_override;

  void read(PoolProblem& problem) const;
};

Planned plan_pool(const LegalPoolProblem& problem, const PoolTensors& tensors,
                  const Product& product);

// For those who have their work and have checked their tensors.
Planned bind_pool(const PoolTensors& tensors, const Product& product,
                  std::shared_ptr<const Work> work);

}  // namespace backops::acl

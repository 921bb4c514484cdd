// Plans that operators made, kept for the next call with the same problem.
#pragma once

#include <memory>

#include "ops/conv/plan.h"
#include "ops/pool_backward.h"

namespace backops::python {

// Null where no plan is kept.
std::shared_ptr<const PoolPlan> find_plan(const PoolProblem& problem);

// These throw Error for a problem that has no answer.
std::shared_ptr<const PoolPlan> find_or_make_plan(const PoolProblem& problem);
std::shared_ptr<const ConvPlan> find_or_make_plan(const ConvProblem& problem, int threads,
                                                  bool deterministic);

}  // namespace backops::python

// Plans that operators made, kept for the next call with the same problem.
#pragma once

#include <memory>

#include "ops/conv/plan.h"
#include "ops/pool/plan.h"

namespace backops::python {

// Null where no plan is kept. The problem of a plan that is kept is legal: look before checking.
std::shared_ptr<const PoolPlan> find_plan(const PoolProblem& problem);
std::shared_ptr<const ConvPlan> find_plan(const ConvProblem& problem, int threads,
                                          bool deterministic);

// For what was not found. The plan is kept from now on.
std::shared_ptr<const PoolPlan> make_plan(const LegalPoolProblem& problem);
std::shared_ptr<const ConvPlan> make_plan(const LegalConvProblem& problem, int threads,
                                          bool deterministic);

}  // namespace backops::python

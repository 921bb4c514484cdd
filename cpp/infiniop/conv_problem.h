// What Conv and ConvBackward have in common: parameters as clients give them, as the core's
// problem.
#pragma once

#include <cstddef>

#include "ops/conv/plan.h"

namespace backops::infini {

// Arrays with one value for each spatial axis, of 32 or 64 bits; NULL: 0, 1 and 1.
struct ConvParameters {
  const void* pads;
  const void* strides;
  const void* dilations;
};

// Of tensors with a batch. Which operator, how many groups and whether there is a bias is for the
// caller to say.
ConvProblem conv_problem(const TensorView& input, const TensorView& weight,
                         const ConvParameters& parameters);

}  // namespace backops::infini

#include "infiniop/conv_problem.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "infiniop/parameters.h"

namespace backops::infini {

ConvProblem conv_problem(const TensorView& input, const TensorView& weight,
                         const ConvParameters& parameters) {
  ConvProblem problem;
  problem.rank = conv_rank(weight.shape, weight.ndim);
  if (input.ndim != weight.ndim) {
    throw Error(ErrorKind::shape, "{input}", shape_text(input.shape, input.ndim),
                "expected as many axes as {weight} " + shape_text(weight.shape, weight.ndim));
  }
  problem.ndim = input.ndim;
  problem.dtype = input.dtype;
  std::copy(input.shape, input.shape + input.ndim, problem.input_shape);
  std::copy(weight.shape, weight.shape + weight.ndim, problem.weight_shape);
  const bool narrow = are_narrow(parameters.strides, parameters.dilations, problem.rank);
  read_axes(parameters.strides, problem.rank, 1, problem.stride, narrow);
  read_axes(parameters.pads, problem.rank, 0, problem.padding_before, narrow);
  problem.pad_both_ends();
  read_axes(parameters.dilations, problem.rank, 1, problem.dilation, narrow);
  return problem;
}

}  // namespace backops::infini

// What the convolution operators share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "acl/arguments.h"
#include "ops/conv/plan.h"

namespace backops::acl {

// How to convolve.
struct ConvArguments {
  ConvArguments(const aclIntArray* stride_handle, const aclIntArray* padding_handle,
                const aclIntArray* dilation_handle, bool is_transposed,
                const aclIntArray* output_padding_handle, std::int64_t group_count,
                std::int8_t math_type);

  IntArrayArgument stride, padding, dilation;
  bool transposed;
  std::optional<IntArrayArgument> output_padding;  // of transposed convolutions; others ignore it
  std::int64_t groups;
  std::int8_t cube_math_type;
};

// Throws unless tensors that the shapes of a convolution come from have a format that names no
// layout.
void check_conv_format(const TensorArgument& tensor);

enum class ConvPass : std::uint8_t { forward, backward };

// All but which results are wanted, and whether there is a bias.
ConvProblem conv_problem(ConvPass pass, const ConvArguments& arguments, const TensorArgument& input,
                         const TensorArgument& weight, const Product& product);

// A tensor that the executor is bound to. `role` is what the core calls it: null for one that the
// interface asks for and the core does not need.
struct ConvOperand {
  TensorArgument argument;
  const TensorView* ConvTensors::* role;
};

Planned plan_conv(const ConvProblem& problem, const std::vector<ConvOperand>& inputs,
                  const std::vector<ConvOperand>& results, const Product& product);

}  // namespace backops::acl

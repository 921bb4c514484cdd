// Convolution problems as Python's arguments describe them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "ops/conv/plan.h"
#include "python/arrays.h"

namespace backops::python {

// The name of the Python function, and the operator of that name.
const char* name_of(ConvOperator op);
ConvOperator read_operator(const std::string& name);

struct ConvArguments {
  nanobind::handle stride, padding, output_padding;  // the last of transposed operators alone
  nanobind::handle dilation, groups, precision;
};

// The problem but for its mask and bias: shapes first, because they tell the rank.
ConvProblem read_problem(ConvOperator op, DType dtype, const ShapeOf& input, const ShapeOf& weight,
                         const ConvArguments& arguments);

// The same, for those who have no arrays.
ConvProblem read_problem(ConvOperator op, nanobind::handle dtype, nanobind::handle input_shape,
                         nanobind::handle weight_shape, const ConvArguments& arguments);

// Which gradients a backward operator computes.
struct ConvMask {
  bool input, weight, bias;
};
ConvMask read_mask(nanobind::handle output_mask);
void set_mask(ConvProblem& problem, const ConvMask& mask);

// The core's names as messages spell them: of operators, and of what is made from shapes.
std::string conv_name(const std::string& name);
std::string conv_plan_name(const std::string& name);

}  // namespace backops::python

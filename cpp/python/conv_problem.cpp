#include "python/conv_problem.h"

#include <algorithm>

#include "base/error.h"
#include "python/arguments.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

constexpr ConvOperator kOperators[] = {ConvOperator::conv, ConvOperator::backward,
                                       ConvOperator::transpose, ConvOperator::transpose_backward};

}  // namespace

const char* name_of(ConvOperator op) {
  switch (op) {
    case ConvOperator::conv: return "conv";
    case ConvOperator::backward: return "conv_backward";
    case ConvOperator::transpose: return "conv_transpose";
    case ConvOperator::transpose_backward: return "conv_transpose_backward";
  }
  return "";
}

ConvOperator read_operator(const std::string& name) {
  for (const ConvOperator op : kOperators) {
    if (name == name_of(op)) return op;
  }
  throw Error(ErrorKind::param, "{operator}", "'" + name + "'",
              "expected 'conv', 'conv_backward', 'conv_transpose' or 'conv_transpose_backward'");
}

ConvProblem read_problem(ConvOperator op, DType dtype, const ShapeOf& input, const ShapeOf& weight,
                         const ConvArguments& a) {
  ConvProblem problem;
  problem.op = op;
  problem.dtype = dtype;
  problem.rank = conv_rank(weight.shape, weight.ndim);
  problem.ndim = input.ndim;
  std::copy(input.shape, input.shape + input.ndim, problem.input_shape);
  std::copy(weight.shape, weight.shape + weight.ndim, problem.weight_shape);
  read_axes(a.stride, "stride", problem.rank, problem.stride);
  read_axes(a.padding, "padding", problem.rank, problem.padding_before);
  problem.pad_both_ends();
  if (is_transposed(op)) {
    read_axes(a.output_padding, "output_padding", problem.rank, problem.output_padding);
  }
  read_axes(a.dilation, "dilation", problem.rank, problem.dilation);
  if (!as_int64(a.groups, &problem.groups)) {
    throw Error(ErrorKind::param, "{groups}", short_repr(a.groups), "expected an int");
  }
  problem.rounding = rounding_of(read_precision(a.precision), problem.dtype);
  return problem;
}

ConvProblem read_problem(ConvOperator op, nb::handle dtype, nb::handle input_shape,
                         nb::handle weight_shape, const ConvArguments& arguments) {
  const DType read = read_dtype(dtype);
  const ShapeOf input = shape_of(input_shape, "{input}");
  return read_problem(op, read, input, shape_of(weight_shape, "{weight}"), arguments);
}

ConvMask read_mask(nb::handle output_mask) {
  const nb::object items = three_of(output_mask, "output_mask", "bools");
  const auto item = [&](Py_ssize_t i) {
    return read_flag(PyTuple_GET_ITEM(items.ptr(), i), "output_mask");
  };
  return {item(0), item(1), item(2)};
}

void set_mask(ConvProblem& problem, const ConvMask& mask) {
  problem.wants_input = mask.input;
  problem.wants_weight = mask.weight;
  problem.wants_bias = mask.bias;
}

std::string conv_name(const std::string& name) {
  if (name == "output") return "out";
  if (name == "grad_input") return "out[0]";
  if (name == "grad_weight") return "out[1]";
  if (name == "grad_bias") return "out[2]";
  return name;
}

std::string conv_plan_name(const std::string& name) {
  if (name == "output") return "the result";
  return name == "input" || name == "weight" ? name + "_shape" : name;
}

}  // namespace backops::python

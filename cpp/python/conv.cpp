// Convolution: unwrap, call the core, wrap.
#include "python/bindings.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "python/arguments.h"
#include "python/cached_plans.h"
#include "python/conv_problem.h"
#include "python/conv_run.h"
#include "python/errors.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

// Runs the plan of a problem: the one that is kept, or a new one once everything has been checked.
nb::object run_problem(const ConvProblem& problem, const ConvTensors& tensors, nb::handle like,
                       const Array& source, nb::handle out, nb::handle thread_count) {
  const CallThreads threads = call_threads(like, source, thread_count);
  const bool deterministic = g_deterministic;
  std::shared_ptr<const ConvPlan> plan = find_plan(problem, threads.count, deterministic);
  const LegalConvProblem legal = plan ? plan->legal() : LegalConvProblem(problem);
  legal.check_inputs(tensors);
  const ConvResults results = make_results(out, like, source, legal);
  if (!plan) plan = make_plan(legal, threads.count, deterministic);
  return run_conv(*plan, tensors, results, {}, threads);
}

nb::object run_forward(ConvOperator op, nb::handle input, nb::handle weight, nb::handle bias,
                       const ConvArguments& arguments, nb::handle out, nb::handle thread_count) {
  try {
    const ConvOperand in = read_operand(input, "{input}", true);
    const ConvOperand kernel = read_operand(weight, "{weight}", true);
    ConvOperand added;
    if (!bias.is_none()) added = read_operand(bias, "{bias}", true);
    ConvProblem problem = read_problem(op, in.array.view.dtype, in.shape, kernel.shape, arguments);
    problem.has_bias = added.is_read;
    ConvTensors tensors;
    tensors.input = in.view();
    tensors.weight = kernel.view();
    tensors.bias = added.view();
    return run_problem(problem, tensors, input, in.array, out, thread_count);
  } catch (const Error& error) {
    raise_as_python(error, name_of(op), conv_name);
  }
}

nb::object run_backward(ConvOperator op, nb::handle grad_output, nb::handle input,
                        nb::handle weight, const ConvArguments& arguments, nb::handle output_mask,
                        nb::handle out, nb::handle thread_count) {
  try {
    const Array source = view_of(grad_output, "{grad_output}");
    const ConvMask mask = read_mask(output_mask);
    const ConvOperand in = read_operand(input, "{input}", mask.weight);
    const ConvOperand kernel = read_operand(weight, "{weight}", mask.input);
    check_same_dtype(in.shape, "{input}", source.view);
    check_same_dtype(kernel.shape, "{weight}", source.view);
    ConvProblem problem = read_problem(op, source.view.dtype, in.shape, kernel.shape, arguments);
    set_mask(problem, mask);
    ConvTensors tensors;
    tensors.grad_output = &source.view;
    tensors.input = in.view();
    tensors.weight = kernel.view();
    return run_problem(problem, tensors, grad_output, source, out, thread_count);
  } catch (const Error& error) {
    raise_as_python(error, name_of(op), conv_name);
  }
}

nb::object conv(nb::handle input, nb::handle weight, nb::handle bias, nb::handle stride,
                nb::handle padding, nb::handle dilation, nb::handle groups, nb::handle precision,
                nb::handle out, nb::handle threads) {
  return run_forward(ConvOperator::conv, input, weight, bias,
                     {stride, padding, {}, dilation, groups, precision}, out, threads);
}

nb::object conv_transpose(nb::handle input, nb::handle weight, nb::handle bias, nb::handle stride,
                          nb::handle padding, nb::handle output_padding, nb::handle dilation,
                          nb::handle groups, nb::handle precision, nb::handle out,
                          nb::handle threads) {
  return run_forward(ConvOperator::transpose, input, weight, bias,
                     {stride, padding, output_padding, dilation, groups, precision}, out, threads);
}

nb::object conv_backward(nb::handle grad_output, nb::handle input, nb::handle weight,
                         nb::handle stride, nb::handle padding, nb::handle dilation,
                         nb::handle groups, nb::handle output_mask, nb::handle precision,
                         nb::handle out, nb::handle threads) {
  return run_backward(ConvOperator::backward, grad_output, input, weight,
                      {stride, padding, {}, dilation, groups, precision}, output_mask, out,
                      threads);
}

nb::object conv_transpose_backward(nb::handle grad_output, nb::handle input, nb::handle weight,
                                   nb::handle stride, nb::handle padding, nb::handle output_padding,
                                   nb::handle dilation, nb::handle groups, nb::handle output_mask,
                                   nb::handle precision, nb::handle out, nb::handle threads) {
  return run_backward(ConvOperator::transpose_backward, grad_output, input, weight,
                      {stride, padding, output_padding, dilation, groups, precision}, output_mask,
                      out, threads);
}

}  // namespace

void bind_conv(nb::module_& m) {
  using namespace nb::literals;
  m.def("conv", conv, "input"_a.none(), "weight"_a.none(), "bias"_a.none(), "stride"_a.none(),
        "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(), "precision"_a.none(),
        "out"_a.none(), "threads"_a.none() = nb::none());
  m.def("conv_transpose", conv_transpose, "input"_a.none(), "weight"_a.none(), "bias"_a.none(),
        "stride"_a.none(), "padding"_a.none(), "output_padding"_a.none(), "dilation"_a.none(),
        "groups"_a.none(), "precision"_a.none(), "out"_a.none(), "threads"_a.none() = nb::none());
  m.def("conv_backward", conv_backward, "grad_output"_a.none(), "input"_a.none(), "weight"_a.none(),
        "stride"_a.none(), "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(),
        "output_mask"_a.none(), "precision"_a.none(), "out"_a.none(),
        "threads"_a.none() = nb::none());
  m.def("conv_transpose_backward", conv_transpose_backward, "grad_output"_a.none(),
        "input"_a.none(), "weight"_a.none(), "stride"_a.none(), "padding"_a.none(),
        "output_padding"_a.none(), "dilation"_a.none(), "groups"_a.none(), "output_mask"_a.none(),
        "precision"_a.none(), "out"_a.none(), "threads"_a.none() = nb::none());
}

}  // namespace backops::python

// Convolution: unwrap, call the core, wrap.
#include "python/bindings.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>

#include "base/error.h"
#include "ops/conv/choose.h"
#include "ops/conv/plan.h"
#include "python/arguments.h"
#include "python/arrays.h"
#include "python/cached_plans.h"
#include "python/errors.h"
#include "python/results.h"
#include "python/settings.h"
#include "python/without_gil.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

// The gradients as messages name them: parts of `out`.
std::string conv_name(const std::string& name) {
  if (name == "grad_input") return "out[0]";
  if (name == "grad_weight") return "out[1]";
  if (name == "grad_bias") return "out[2]";
  return name;
}

std::string conv_plan_name(const std::string& name) {
  return name == "input" || name == "weight" ? name + "_shape" : name;
}

struct ConvArguments {
  nb::handle stride, padding, dilation, groups, output_mask, precision;
};

void set_mask(ConvProblem& problem, nb::handle output_mask) {
  const nb::object mask = three_of(output_mask, "output_mask", "bools");
  bool* const wants[] = {&problem.wants_input, &problem.wants_weight, &problem.wants_bias};
  for (Py_ssize_t i = 0; i < 3; ++i) {
    *wants[i] = read_flag(PyTuple_GET_ITEM(mask.ptr(), i), "output_mask");
  }
}

void set_parameters(ConvProblem& problem, const ConvArguments& a) {
  read_axes(a.stride, "stride", problem.rank, problem.stride);
  read_axes(a.padding, "padding", problem.rank, problem.padding_before);
  problem.pad_both_ends();
  read_axes(a.dilation, "dilation", problem.rank, problem.dilation);
  if (!as_int64(a.groups, &problem.groups)) {
    throw Error(ErrorKind::param, "{groups}", short_repr(a.groups), "expected an int");
  }
  problem.rounding = rounding_of(read_precision(a.precision), problem.dtype);
}

void set_shapes(ConvProblem& problem, const ShapeOf& input, const ShapeOf& weight) {
  problem.rank = conv_rank(weight.shape, weight.ndim);
  problem.ndim = input.ndim;
  std::copy(input.shape, input.shape + input.ndim, problem.input_shape);
  std::copy(weight.shape, weight.shape + weight.ndim, problem.weight_shape);
}

// An operand that is read, or of which only the shape is used.
struct ConvOperand {
  Array array{};
  bool is_read = false;
  ShapeOf shape{};

  const TensorView* view() const { return is_read ? &array.view : nullptr; }
};

ConvOperand read_operand(nb::handle value, const char* name, bool is_read) {
  ConvOperand operand;
  operand.is_read = is_read;
  if (is_read) {
    operand.array = view_of(value, name);
    const TensorView& view = operand.array.view;
    operand.shape.ndim = view.ndim;
    std::copy(view.shape, view.shape + view.ndim, operand.shape.shape);
    operand.shape.dtype = name_of(view.dtype);
  } else {
    operand.shape = shape_of(value, name);
  }
  return operand;
}

// The three results and who gave them.
struct ConvResults {
  Result results[3];
  bool wanted[3];

  const TensorView* view(int i) const { return wanted[i] ? &results[i].view() : nullptr; }
  // Null where it is ours.
  const TensorView* given(int i) const {
    return wanted[i] && !results[i].given.is_none() ? &results[i].array.view : nullptr;
  }

  void announce() const {
    for (int i = 0; i < 3; ++i) {
      if (wanted[i]) results[i].announce();
    }
  }

  nb::object finish() const {
    nb::object finished[3];
    for (int i = 0; i < 3; ++i) finished[i] = wanted[i] ? results[i].finish() : nb::none();
    return nb::make_tuple(finished[0], finished[1], finished[2]);
  }
};

ConvResults make_results(nb::handle out, nb::handle grad_output, const Array& source,
                         const ConvProblem& p) {
  ConvResults all{{}, {p.wants_input, p.wants_weight, p.wants_bias}};
  const nb::object given = out.is_none() ? nb::make_tuple(nb::none(), nb::none(), nb::none())
                                         : three_of(out, "out", "arrays or None");
  const char* const names[] = {"{grad_input}", "{grad_weight}", "{grad_bias}"};
  const std::int64_t* const shapes[] = {p.input_shape, p.weight_shape, p.weight_shape};
  const int ndims[] = {p.ndim, p.rank + 2, 1};
  for (int i = 0; i < 3; ++i) {
    const nb::handle own = PyTuple_GET_ITEM(given.ptr(), i);
    if (!all.wanted[i] && !own.is_none()) {
      throw Error(ErrorKind::param, names[i], short_repr(own),
                  "expected None where {output_mask} is False");
    }
    if (!all.wanted[i]) continue;
    // Only activations are channels-last because grad_output is.
    const int rank = i == 0 ? p.rank : 0;
    all.results[i] = make_result(own, names[i], grad_output, source, shapes[i], ndims[i], rank);
    if (!own.is_none()) check_writable(all.results[i].array, names[i]);
  }
  return all;
}

nb::object run_conv(const ConvPlan& plan, const ConvTensors& inputs, const ConvResults& results,
                    const Memory& workspace, const CallThreads& threads) {
  ConvTensors tensors = inputs;
  tensors.grad_input = results.given(0);
  tensors.grad_weight = results.given(1);
  tensors.grad_bias = results.given(2);
  plan.check_results(tensors);
  tensors.grad_input = results.view(0);
  tensors.grad_weight = results.view(1);
  tensors.grad_bias = results.view(2);
  plan.check_memory(tensors, workspace.data, workspace.bytes);
  if (!threads.for_kernel) results.announce();
  {
    const WithoutGil released;
    const std::size_t bytes = plan.workspace_bytes();
    std::unique_ptr<char[]> temporary;
    char* memory = workspace.data;
    if (!memory && bytes <= kMostKeptBytes) memory = own_workspace(bytes);
    if (!memory) {
      temporary.reset(new char[bytes]);
      memory = temporary.get();
    }
    const OnTeam on_team(threads.team_or_null());
    plan.run(tensors, memory, threads.count);
  }
  return results.finish();
}

nb::object conv_backward(nb::handle grad_output, nb::handle input, nb::handle weight,
                         nb::handle stride, nb::handle padding, nb::handle dilation,
                         nb::handle groups, nb::handle output_mask, nb::handle precision,
                         nb::handle out, nb::handle thread_count) {
  try {
    const Array source = view_of(grad_output, "{grad_output}");
    ConvProblem problem;
    problem.dtype = source.view.dtype;
    set_mask(problem, output_mask);
    const ConvOperand in = read_operand(input, "{input}", problem.wants_weight);
    const ConvOperand kernel = read_operand(weight, "{weight}", problem.wants_input);
    check_same_dtype(in.shape, "{input}", source.view);
    check_same_dtype(kernel.shape, "{weight}", source.view);
    set_shapes(problem, in.shape, kernel.shape);
    set_parameters(problem, {stride, padding, dilation, groups, output_mask, precision});
    ConvTensors tensors;
    tensors.grad_output = &source.view;
    tensors.input = in.view();
    tensors.weight = kernel.view();
    const CallThreads threads = call_threads(grad_output, source, thread_count);
    const bool deterministic = g_deterministic;
    std::shared_ptr<const ConvPlan> plan = find_plan(problem, threads.count, deterministic);
    const LegalConvProblem legal = plan ? plan->legal() : LegalConvProblem(problem);
    legal.check_inputs(tensors);
    const ConvResults results = make_results(out, grad_output, source, problem);
    if (!plan) plan = make_plan(legal, threads.count, deterministic);
    return run_conv(*plan, tensors, results, {}, threads);
  } catch (const Error& error) {
    raise_as_python(error, "conv_backward", conv_name);
  }
}

struct PythonConvPlan {
  std::shared_ptr<const ConvPlan> plan;
  int threads;

  std::string repr() const {
    const ConvProblem& p = plan->problem();
    return "<plan.conv_backward " + shape_text(p.input_shape, p.ndim) + " " +
           shape_text(p.weight_shape, p.rank + 2) + " " + name_of(p.dtype) + ": " + plan->kernel() +
           ">";
  }

  nb::object call(nb::handle grad_output, nb::handle input, nb::handle weight, nb::handle out,
                  nb::handle workspace) const {
    try {
      const ConvProblem& problem = plan->problem();
      const Array source = view_of(grad_output, "{grad_output}");
      const Memory memory = read_workspace(workspace, plan->workspace_bytes());
      ConvOperand in, kernel;
      if (problem.wants_weight) in = read_operand(input, "{input}", true);
      if (problem.wants_input) kernel = read_operand(weight, "{weight}", true);
      ConvTensors tensors;
      tensors.grad_output = &source.view;
      tensors.input = in.view();
      tensors.weight = kernel.view();
      plan->check_inputs(tensors);
      const ConvResults results = make_results(out, grad_output, source, problem);
      CallThreads on = call_threads(grad_output, source, nb::none());
      on.count = std::min(on.count, threads);
      return run_conv(*plan, tensors, results, memory, on);
    } catch (const Error& error) {
      raise_as_python(error, "plan.conv_backward", conv_name);
    }
  }
};

PythonConvPlan plan_conv(nb::handle input_shape, nb::handle weight_shape, nb::handle stride,
                         nb::handle padding, nb::handle dilation, nb::handle groups,
                         nb::handle output_mask, nb::handle precision, nb::handle dtype) {
  try {
    ConvProblem problem;
    problem.dtype = read_dtype(dtype);
    set_mask(problem, output_mask);
    set_shapes(problem, shape_of(input_shape, "{input}"), shape_of(weight_shape, "{weight}"));
    set_parameters(problem, {stride, padding, dilation, groups, output_mask, precision});
    const int threads = g_threads;
    return {std::make_shared<const ConvPlan>(problem, threads, g_deterministic), threads};
  } catch (const Error& error) {
    raise_as_python(error, "plan.conv_backward", conv_plan_name);
  }
}

// For those who compute the forward operator, whose input is called x. Makes no plan.
nb::tuple conv_geometry(nb::handle input_shape, nb::handle weight_shape, nb::handle stride,
                        nb::handle padding, nb::handle dilation, nb::handle groups,
                        nb::handle dtype) {
  try {
    ConvProblem p;
    p.dtype = read_dtype(dtype);
    set_shapes(p, shape_of(input_shape, "{input}"), shape_of(weight_shape, "{weight}"));
    const nb::str keep("keep");
    set_parameters(p, {stride, padding, dilation, groups, nb::none(), keep});
    const LegalConvProblem legal(p);
    return nb::make_tuple(as_tuple(legal.output_shape(), p.ndim), as_tuple(p.stride, p.rank),
                          as_tuple(p.padding_before, p.rank), as_tuple(p.dilation, p.rank),
                          p.groups);
  } catch (const Error& error) {
    raise_as_python(error, "conv", forward_name);
  }
}

// Which engine another CPU would take, with caches of so many bytes.
std::string explain_conv_on(nb::handle input_shape, nb::handle weight_shape, nb::handle stride,
                            nb::handle padding, nb::handle dilation, nb::handle groups,
                            nb::handle dtype, const std::string& capabilities, std::int64_t level1,
                            std::int64_t level2) {
  try {
    ConvProblem p;
    p.dtype = read_dtype(dtype);
    set_shapes(p, shape_of(input_shape, "{input}"), shape_of(weight_shape, "{weight}"));
    const nb::str keep("keep");
    set_parameters(p, {stride, padding, dilation, groups, nb::none(), keep});
    return explain_conv(p, described_cpu(capabilities, level1, level2));
  } catch (const Error& error) {
    raise_as_python(error, "explain_conv", conv_plan_name);
  }
}

}  // namespace

void bind_conv(nb::module_& m) {
  using namespace nb::literals;
  m.def("conv_backward", conv_backward, "grad_output"_a.none(), "input"_a.none(), "weight"_a.none(),
        "stride"_a.none(), "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(),
        "output_mask"_a.none(), "precision"_a.none(), "out"_a.none(),
        "threads"_a.none() = nb::none());
  m.def("plan_conv", plan_conv, "input_shape"_a.none(), "weight_shape"_a.none(), "stride"_a.none(),
        "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(), "output_mask"_a.none(),
        "precision"_a.none(), "dtype"_a.none());
  m.def("conv_geometry", conv_geometry, "input_shape"_a.none(), "weight_shape"_a.none(),
        "stride"_a.none(), "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(),
        "dtype"_a.none());
  m.def("explain_conv", explain_conv_on, "input_shape"_a.none(), "weight_shape"_a.none(),
        "stride"_a.none(), "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(),
        "dtype"_a.none(), "capabilities"_a, "level1_bytes"_a, "level2_bytes"_a);
  m.def("conv_engines", [] {
    nb::list rows;
    for (const EngineText& row : engine_texts()) rows.append(nb::make_tuple(row.name, row.takes));
    return rows;
  });
  nb::class_<PythonConvPlan>(m, "ConvPlan")
      .def_prop_ro("workspace_size",
                   [](const PythonConvPlan& self) { return self.plan->workspace_bytes(); })
      .def_prop_ro("kernel", [](const PythonConvPlan& self) { return self.plan->kernel(); })
      .def_prop_ro("why", [](const PythonConvPlan& self) { return self.plan->why(); })
      .def("__repr__", &PythonConvPlan::repr)
      .def("__call__", &PythonConvPlan::call, "grad_output"_a.none(), "input"_a.none() = nb::none(),
           "weight"_a.none() = nb::none(), "out"_a.none() = nb::none(),
           "workspace"_a.none() = nb::none());
}

}  // namespace backops::python

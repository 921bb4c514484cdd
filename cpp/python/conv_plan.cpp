// Plans of convolutions, and what they would be on other CPUs.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "ops/conv/choose.h"
#include "python/arguments.h"
#include "python/bindings.h"
#include "python/conv_problem.h"
#include "python/conv_run.h"
#include "python/errors.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

struct PythonConvPlan {
  std::shared_ptr<const ConvPlan> plan;
  int threads;

  std::string name() const { return std::string("plan.") + name_of(plan->problem().op); }

  std::string repr() const {
    const ConvProblem& p = plan->problem();
    return "<" + name() + " " + shape_text(p.input_shape, p.ndim) + " " +
           shape_text(p.weight_shape, p.rank + 2) + " " + backops::name_of(p.dtype) + ": " +
           plan->kernel() + ">";
  }

  // `like` is what `source` is to Python.
  nb::object run(const ConvTensors& tensors, nb::handle like, const Array& source, nb::handle out,
                 const Memory& workspace) const {
    plan->check_inputs(tensors);
    const ConvResults results = make_results(out, like, source, plan->legal());
    CallThreads on = call_threads(like, source, nb::none());
    on.count = std::min(on.count, threads);
    return run_conv(*plan, tensors, results, workspace, on);
  }
};

// What a plan adds that can add a bias, but is given none: one zero for all channels.
TensorView no_bias(const LegalConvProblem& legal) {
  static double zero = 0;
  return {reinterpret_cast<char*>(&zero), legal.problem().dtype, 1, {legal.output_channels()}, {0}};
}

struct ConvForwardPlan : PythonConvPlan {
  nb::object call(nb::handle input, nb::handle weight, nb::handle bias, nb::handle out,
                  nb::handle workspace) const {
    try {
      const ConvOperand in = read_operand(input, "{input}", true);
      const Memory memory = read_workspace(workspace, plan->workspace_bytes());
      const ConvOperand kernel = read_operand(weight, "{weight}", true);
      const TensorView zeros = no_bias(plan->legal());
      ConvOperand added;
      if (!bias.is_none()) added = read_operand(bias, "{bias}", true);
      ConvTensors tensors;
      tensors.input = in.view();
      tensors.weight = kernel.view();
      tensors.bias = added.is_read ? added.view() : &zeros;
      return run(tensors, input, in.array, out, memory);
    } catch (const Error& error) {
      raise_as_python(error, name(), conv_name);
    }
  }
};

struct ConvBackwardPlan : PythonConvPlan {
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
      return run(tensors, grad_output, source, out, memory);
    } catch (const Error& error) {
      raise_as_python(error, name(), conv_name);
    }
  }
};

PythonConvPlan make_python_plan(const ConvProblem& problem) {
  const int threads = g_threads;
  return {std::make_shared<const ConvPlan>(problem, threads, g_deterministic), threads};
}

ConvForwardPlan plan_conv_forward(const std::string& operator_name, nb::handle input_shape,
                                  nb::handle weight_shape, nb::handle stride, nb::handle padding,
                                  nb::handle output_padding, nb::handle dilation, nb::handle groups,
                                  nb::handle precision, nb::handle dtype) {
  try {
    ConvProblem problem =
        read_problem(read_operator(operator_name), dtype, input_shape, weight_shape,
                     {stride, padding, output_padding, dilation, groups, precision});
    problem.has_bias = true;
    return {make_python_plan(problem)};
  } catch (const Error& error) {
    raise_as_python(error, "plan." + operator_name, conv_plan_name);
  }
}

ConvBackwardPlan plan_conv(nb::handle input_shape, nb::handle weight_shape, nb::handle stride,
                           nb::handle padding, nb::handle dilation, nb::handle groups,
                           nb::handle output_mask, nb::handle precision, nb::handle dtype,
                           const std::string& operator_name, nb::handle output_padding) {
  try {
    ConvProblem problem =
        read_problem(read_operator(operator_name), dtype, input_shape, weight_shape,
                     {stride, padding, output_padding, dilation, groups, precision});
    set_mask(problem, read_mask(output_mask));
    return {make_python_plan(problem)};
  } catch (const Error& error) {
    raise_as_python(error, "plan." + operator_name, conv_plan_name);
  }
}

// Which engine another CPU would take, with caches of so many bytes.
std::string explain_conv_on(nb::handle input_shape, nb::handle weight_shape, nb::handle stride,
                            nb::handle padding, nb::handle dilation, nb::handle groups,
                            nb::handle dtype, const std::string& capabilities, std::int64_t level1,
                            std::int64_t level2, const std::string& operator_name,
                            nb::handle output_padding) {
  try {
    const nb::str keep("keep");
    const ConvProblem p =
        read_problem(read_operator(operator_name), dtype, input_shape, weight_shape,
                     {stride, padding, output_padding, dilation, groups, keep});
    return explain_conv(p, described_cpu(capabilities, level1, level2));
  } catch (const Error& error) {
    raise_as_python(error, "explain_conv", conv_plan_name);
  }
}

}  // namespace

void bind_conv_plan(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PythonConvPlan>(m, "ConvPlan")
      .def_prop_ro("workspace_size",
                   [](const PythonConvPlan& self) { return self.plan->workspace_bytes(); })
      .def_prop_ro("kernel", [](const PythonConvPlan& self) { return self.plan->kernel(); })
      .def_prop_ro("why", [](const PythonConvPlan& self) { return self.plan->why(); })
      .def("__repr__", &PythonConvPlan::repr);
  nb::class_<ConvForwardPlan, PythonConvPlan>(m, "ConvForwardPlan")
      .def("__call__", &ConvForwardPlan::call, "input"_a.none(), "weight"_a.none(),
           "bias"_a.none() = nb::none(), "out"_a.none() = nb::none(),
           "workspace"_a.none() = nb::none());
  nb::class_<ConvBackwardPlan, PythonConvPlan>(m, "ConvBackwardPlan")
      .def("__call__", &ConvBackwardPlan::call, "grad_output"_a.none(),
           "input"_a.none() = nb::none(), "weight"_a.none() = nb::none(),
           "out"_a.none() = nb::none(), "workspace"_a.none() = nb::none());
  m.def("plan_conv_forward", plan_conv_forward, "operator"_a, "input_shape"_a.none(),
        "weight_shape"_a.none(), "stride"_a.none(), "padding"_a.none(), "output_padding"_a.none(),
        "dilation"_a.none(), "groups"_a.none(), "precision"_a.none(), "dtype"_a.none());
  m.def("plan_conv", plan_conv, "input_shape"_a.none(), "weight_shape"_a.none(), "stride"_a.none(),
        "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(), "output_mask"_a.none(),
        "precision"_a.none(), "dtype"_a.none(), "operator"_a = "conv_backward",
        "output_padding"_a.none() = 0);
  m.def("explain_conv", explain_conv_on, "input_shape"_a.none(), "weight_shape"_a.none(),
        "stride"_a.none(), "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(),
        "dtype"_a.none(), "capabilities"_a, "level1_bytes"_a, "level2_bytes"_a,
        "operator"_a = "conv_backward", "output_padding"_a.none() = 0);
  m.def("conv_engines", [] {
    nb::list rows;
    for (const EngineText& row : engine_texts()) rows.append(nb::make_tuple(row.name, row.takes));
    return rows;
  });
}

}  // namespace backops::python

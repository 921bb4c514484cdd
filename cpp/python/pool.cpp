// The pooling operators: unwrap, call the core, wrap.
#include "python/bindings.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "ops/pool/plan.h"
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

std::string pool_name(const std::string& name) {
  return name == "grad_input" || name == "output" ? "out" : name;
}

std::string pool_plan_name(const std::string& name) {
  return name == "input" ? "input_shape" : pool_name(name);
}

void set_input_shape(PoolProblem& problem, const ShapeOf& input) {
  problem.ndim = input.ndim;
  std::copy(input.shape, input.shape + input.ndim, problem.input_shape);
}

// What the fixed-window operators have beside their tensors.
struct WindowArguments {
  nb::handle kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override,
      precision;
};

void set_windows(PoolProblem& problem, const WindowArguments& a) {
  read_axes(a.kernel_size, "kernel_size", problem.rank, problem.kernel_size);
  std::copy(problem.kernel_size, problem.kernel_size + kMaxRank, problem.stride);
  if (is_given(a.stride)) read_axes(a.stride, "stride", problem.rank, problem.stride);
  read_axes(a.padding, "padding", problem.rank, problem.padding);
  problem.ceil_mode = read_flag(a.ceil_mode, "ceil_mode");
  problem.count_include_pad = read_flag(a.count_include_pad, "count_include_pad");
  if (!a.divisor_override.is_none() && !as_int64(a.divisor_override, &problem.divisor_override)) {
    throw Error(ErrorKind::param, "{divisor_override}", short_repr(a.divisor_override),
                "expected None or an int of 64 bits");
  }
  problem.rounding = rounding_of(read_precision(a.precision), problem.dtype);
}

// A new array has the type and layout of the source.
Result make_result(nb::handle out, nb::handle source, const Array& source_array,
                   const LegalPoolProblem& legal) {
  const PoolProblem& p = legal.problem();
  return make_result(out, p.target_name(), source, source_array, legal.target_shape(), p.ndim,
                     p.rank);
}

// Runs `plan`; no workspace means this thread's own.
nb::object run_plan(const PoolPlan& plan, const Array& source, const Result& result,
                    const Memory& workspace, const CallThreads& threads) {
  if (!result.given.is_none()) {
    plan.check_target(result.array.view);
    check_writable(result.array, plan.problem().target_name());
  }
  plan.check_memory(source.view, result.view(), workspace.data, workspace.bytes);
  if (!threads.for_kernel) result.announce();
  {
    const WithoutGil released;
    char* const memory =
        workspace.data ? workspace.data : own_workspace(plan.workspace_bytes(threads.count));
    const OnTeam on_team(threads.team_or_null());
    plan.run(source.view, result.view(), memory, threads.count);
  }
  return result.finish();
}

// Runs the plan of `problem`, which is made unless it is kept from another call.
nb::object run_problem(const PoolProblem& problem, nb::handle source, const Array& source_array,
                       nb::handle out, nb::handle thread_count) {
  std::shared_ptr<const PoolPlan> plan = find_plan(problem);
  const LegalPoolProblem legal = plan ? plan->legal() : LegalPoolProblem(problem);
  legal.check_source(source_array.view);
  // Before the plan is made: tables for a result that fits no memory would fit none either.
  const Result result = make_result(out, source, source_array, legal);
  if (!plan) plan = make_plan(legal);
  return run_plan(*plan, source_array, result, {},
                  call_threads(source, source_array, thread_count));
}

template <class SetWindows>
nb::object pool_forward(const char* function, int rank, nb::handle input, nb::handle out,
                        nb::handle threads, const SetWindows& set_windows_of) {
  try {
    const Array source = view_of(input, "{input}");
    PoolProblem problem;
    problem.direction = PoolDirection::forward;
    problem.rank = rank;
    problem.dtype = source.view.dtype;
    problem.ndim = source.view.ndim;
    std::copy(source.view.shape, source.view.shape + source.view.ndim, problem.input_shape);
    set_windows_of(problem);
    return run_problem(problem, input, source, out, threads);
  } catch (const Error& error) {
    raise_as_python(error, function, pool_name);
  }
}

template <class SetWindows>
nb::object pool_backward(const char* function, int rank, nb::handle grad_output, nb::handle input,
                         nb::handle out, nb::handle thread_count,
                         const SetWindows& set_windows_of) {
  try {
    const Array source = view_of(grad_output, "{grad_output}");
    const ShapeOf input_shape = shape_of(input, "{input}");
    check_same_dtype(input_shape, "{input}", source.view);
    PoolProblem problem;
    problem.rank = rank;
    problem.dtype = source.view.dtype;
    set_input_shape(problem, input_shape);
    set_windows_of(problem, source.view);
    return run_problem(problem, grad_output, source, out, thread_count);
  } catch (const Error& error) {
    raise_as_python(error, function, pool_name);
  }
}

nb::object avg_pool_backward(const char* function, int rank, nb::handle grad_output,
                             nb::handle input, nb::handle kernel_size, nb::handle stride,
                             nb::handle padding, nb::handle ceil_mode, nb::handle count_include_pad,
                             nb::handle divisor_override, nb::handle precision, nb::handle out,
                             nb::handle threads) {
  const WindowArguments windows{kernel_size,       stride,           padding,  ceil_mode,
                                count_include_pad, divisor_override, precision};
  return pool_backward(
      function, rank, grad_output, input, out, threads,
      [&](PoolProblem& problem, const TensorView&) { set_windows(problem, windows); });
}

nb::object avg_pool(const char* function, int rank, nb::handle input, nb::handle kernel_size,
                    nb::handle stride, nb::handle padding, nb::handle ceil_mode,
                    nb::handle count_include_pad, nb::handle divisor_override, nb::handle precision,
                    nb::handle out, nb::handle threads) {
  const WindowArguments windows{kernel_size,       stride,           padding,  ceil_mode,
                                count_include_pad, divisor_override, precision};
  return pool_forward(function, rank, input, out, threads,
                      [&](PoolProblem& problem) { set_windows(problem, windows); });
}

// The gradient of adaptive pooling takes its output size from grad_output, as far as that has the
// right axes.
void set_output_size(PoolProblem& problem, const TensorView& grad_output) {
  problem.adaptive = true;
  if (grad_output.ndim != problem.ndim) {
    throw Error(
        ErrorKind::shape, "{grad_output}", shape_text(grad_output.shape, grad_output.ndim),
        "expected as many axes as {input} " + shape_text(problem.input_shape, problem.ndim));
  }
  for (int axis = 0; axis < problem.rank && problem.ndim > problem.rank; ++axis) {
    problem.output_size[axis] = grad_output.shape[problem.ndim - problem.rank + axis];
  }
}

nb::object adaptive_avg_pool_backward(const char* function, int rank, nb::handle grad_output,
                                      nb::handle input, nb::handle out, nb::handle threads) {
  return pool_backward(function, rank, grad_output, input, out, threads, set_output_size);
}

// An int or a sequence of one int is for all axes. Forward, None keeps an axis as long as it is.
void set_adaptive(PoolProblem& problem, nb::handle output_size) {
  problem.adaptive = true;
  const bool known = problem.ndim == problem.rank + 1 || problem.ndim == problem.rank + 2;
  if (!known) return;  // which the problem's own check will say
  const std::int64_t* const sizes = problem.input_shape + problem.ndim - problem.rank;
  read_axes(output_size, "output_size", problem.rank, problem.output_size,
            problem.is_forward() ? sizes : nullptr);
  for (int axis = 0; axis < problem.rank; ++axis) {
    if (problem.output_size[axis] > 0 || problem.output_size[axis] == sizes[axis]) continue;
    throw Error(ErrorKind::param, "{output_size}[" + std::to_string(axis) + "]",
                std::to_string(problem.output_size[axis]), "expected a positive int");
  }
}

nb::object adaptive_avg_pool(const char* function, int rank, nb::handle input,
                             nb::handle output_size, nb::handle out, nb::handle threads) {
  return pool_forward(function, rank, input, out, threads,
                      [&](PoolProblem& problem) { set_adaptive(problem, output_size); });
}

struct PythonPlan {
  std::string function;
  std::shared_ptr<const PoolPlan> plan;
  int threads;

  std::size_t workspace_size() const { return plan->workspace_bytes(threads); }

  std::string repr() const {
    const PoolProblem& p = plan->problem();
    return "<" + function + " " + shape_text(p.input_shape, p.ndim) + " " + name_of(p.dtype) +
           ": " + plan->kernel() + ">";
  }

  nb::object call(nb::handle source, nb::handle out, nb::handle workspace) const {
    try {
      const Array array = view_of(source, plan->problem().source_name());
      const Memory memory = read_workspace(workspace, workspace_size());
      plan->check_source(array.view);
      const Result result = make_result(out, source, array, plan->legal());
      CallThreads on = call_threads(source, array, nb::none());
      on.count = std::min(on.count, threads);
      return run_plan(*plan, array, result, memory, on);
    } catch (const Error& error) {
      raise_as_python(error, function, pool_name);
    }
  }
};

// The same, but for the name of its argument.
struct PythonForwardPlan : PythonPlan {};

template <class Plan, class SetWindows>
Plan make_plan(const std::string& function, int rank, nb::handle input_shape, nb::handle dtype,
               const SetWindows& set_windows_of) {
  try {
    PoolProblem problem;
    if constexpr (std::is_same_v<Plan, PythonForwardPlan>) {
      problem.direction = PoolDirection::forward;
    }
    problem.rank = rank;
    problem.dtype = read_dtype(dtype);
    set_input_shape(problem, shape_of(input_shape, "{input}"));
    set_windows_of(problem);
    Plan plan;
    plan.function = function;
    plan.plan = std::make_shared<const PoolPlan>(problem);
    plan.threads = g_threads;
    return plan;
  } catch (const Error& error) {
    raise_as_python(error, function, pool_plan_name);
  }
}

template <class Plan>
Plan plan_avg_pool(const std::string& function, int rank, nb::handle input_shape,
                   nb::handle kernel_size, nb::handle stride, nb::handle padding,
                   nb::handle ceil_mode, nb::handle count_include_pad, nb::handle divisor_override,
                   nb::handle precision, nb::handle dtype) {
  const WindowArguments windows{kernel_size,       stride,           padding,  ceil_mode,
                                count_include_pad, divisor_override, precision};
  return make_plan<Plan>(function, rank, input_shape, dtype,
                         [&](PoolProblem& problem) { set_windows(problem, windows); });
}

template <class Plan>
Plan plan_adaptive_avg_pool(const std::string& function, int rank, nb::handle input_shape,
                            nb::handle output_size, nb::handle dtype) {
  return make_plan<Plan>(function, rank, input_shape, dtype,
                         [&](PoolProblem& problem) { set_adaptive(problem, output_size); });
}

// For those who call the forward operator by other ways; its input is called x. Makes no plan.
template <class SetWindows>
nb::tuple pool_geometry(const std::string& function, int rank, nb::handle input_shape,
                        nb::handle dtype, const SetWindows& set_windows_of) {
  try {
    PoolProblem p;
    p.direction = PoolDirection::forward;
    p.rank = rank;
    p.dtype = read_dtype(dtype);
    set_input_shape(p, shape_of(input_shape, "{input}"));
    set_windows_of(p);
    const LegalPoolProblem legal(p);
    return nb::make_tuple(as_tuple(legal.output_shape(), p.ndim), as_tuple(p.kernel_size, rank),
                          as_tuple(p.stride, rank), as_tuple(p.padding, rank), p.divisor_override);
  } catch (const Error& error) {
    raise_as_python(error, function, forward_name);
  }
}

nb::tuple avg_pool_geometry(const std::string& function, int rank, nb::handle input_shape,
                            nb::handle kernel_size, nb::handle stride, nb::handle padding,
                            nb::handle ceil_mode, nb::handle count_include_pad,
                            nb::handle divisor_override, nb::handle dtype) {
  const nb::str keep("keep");
  const WindowArguments windows{kernel_size,       stride,           padding, ceil_mode,
                                count_include_pad, divisor_override, keep};
  return pool_geometry(function, rank, input_shape, dtype,
                       [&](PoolProblem& problem) { set_windows(problem, windows); });
}

nb::tuple adaptive_avg_pool_geometry(const std::string& function, int rank, nb::handle input_shape,
                                     nb::handle output_size, nb::handle dtype) {
  return pool_geometry(function, rank, input_shape, dtype,
                       [&](PoolProblem& problem) { set_adaptive(problem, output_size); });
}

template <class Plan>
void bind_planners(nb::module_& m, const char* fixed, const char* adaptive) {
  using namespace nb::literals;
  m.def(fixed, plan_avg_pool<Plan>, "function"_a, "rank"_a, "input_shape"_a.none(),
        "kernel_size"_a.none(), "stride"_a.none(), "padding"_a.none(), "ceil_mode"_a.none(),
        "count_include_pad"_a.none(), "divisor_override"_a.none(), "precision"_a.none(),
        "dtype"_a.none());
  m.def(adaptive, plan_adaptive_avg_pool<Plan>, "function"_a, "rank"_a, "input_shape"_a.none(),
        "output_size"_a.none(), "dtype"_a.none());
}

}  // namespace

void bind_pool(nb::module_& m) {
  using namespace nb::literals;
  m.def("avg_pool_backward", avg_pool_backward, "function"_a, "rank"_a, "grad_output"_a.none(),
        "input"_a.none(), "kernel_size"_a.none(), "stride"_a.none(), "padding"_a.none(),
        "ceil_mode"_a.none(), "count_include_pad"_a.none(), "divisor_override"_a.none(),
        "precision"_a.none(), "out"_a.none(), "threads"_a.none() = nb::none());
  m.def("adaptive_avg_pool_backward", adaptive_avg_pool_backward, "function"_a, "rank"_a,
        "grad_output"_a.none(), "input"_a.none(), "out"_a.none(), "threads"_a.none() = nb::none());
  m.def("avg_pool", avg_pool, "function"_a, "rank"_a, "input"_a.none(), "kernel_size"_a.none(),
        "stride"_a.none(), "padding"_a.none(), "ceil_mode"_a.none(), "count_include_pad"_a.none(),
        "divisor_override"_a.none(), "precision"_a.none(), "out"_a.none(),
        "threads"_a.none() = nb::none());
  m.def("adaptive_avg_pool", adaptive_avg_pool, "function"_a, "rank"_a, "input"_a.none(),
        "output_size"_a.none(), "out"_a.none(), "threads"_a.none() = nb::none());
  bind_planners<PythonPlan>(m, "plan_avg_pool_backward", "plan_adaptive_avg_pool_backward");
  bind_planners<PythonForwardPlan>(m, "plan_avg_pool", "plan_adaptive_avg_pool");
  m.def("avg_pool_geometry", avg_pool_geometry, "function"_a, "rank"_a, "input_shape"_a.none(),
        "kernel_size"_a.none(), "stride"_a.none(), "padding"_a.none(), "ceil_mode"_a.none(),
        "count_include_pad"_a.none(), "divisor_override"_a.none(), "dtype"_a.none());
  m.def("adaptive_avg_pool_geometry", adaptive_avg_pool_geometry, "function"_a, "rank"_a,
        "input_shape"_a.none(), "output_size"_a.none(), "dtype"_a.none());
  nb::class_<PythonPlan>(m, "PoolPlan")
      .def_prop_ro("workspace_size", &PythonPlan::workspace_size)
      .def_prop_ro("kernel", [](const PythonPlan& self) { return self.plan->kernel(); })
      .def_prop_ro("why", [](const PythonPlan& self) { return self.plan->why(); })
      .def("__repr__", &PythonPlan::repr)
      .def("__call__", &PythonPlan::call, "grad_output"_a.none(), "out"_a.none() = nb::none(),
           "workspace"_a.none() = nb::none());
  nb::class_<PythonForwardPlan, PythonPlan>(m, "PoolForwardPlan")
      .def("__call__", &PythonPlan::call, "input"_a.none(), "out"_a.none() = nb::none(),
           "workspace"_a.none() = nb::none());
}

}  // namespace backops::python

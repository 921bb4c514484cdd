// backops._native: unwraps Python arguments, calls the core, wraps what comes back. What is legal
// is decided in the core; only what Python alone can get wrong (types, lengths) is checked here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/isa.h"
#include "base/threads.h"
#include "ops/pool_backward.h"
#include "python/arrays.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

// ---- settings ----------------------------------------------------------------------------------

std::atomic<int> g_threads{1};
std::atomic<bool> g_deterministic{false};

void set_num_threads(nb::handle n) {
  std::int64_t value = 0;
  if (!as_int64(n, &value) || value < 1 || value > kMaxThreads) {
    throw Error(ErrorKind::param, "set_num_threads: n", short_repr(n),
                "expected an int from 1 to " + std::to_string(kMaxThreads));
  }
  g_threads = static_cast<int>(value);
}

// ---- errors ------------------------------------------------------------------------------------

// The core's error as the Python exception of its kind. `function` stands before the message.
[[noreturn]] void raise_as_python(const Error& error, const std::string& function,
                                  const char* input_name, const char* grad_output_name) {
  static const char* const kClasses[] = {"DTypeError", "ShapeError", "ParamError", "LayoutError"};
  const std::string message = error.message([&](const std::string& name) -> std::string {
    if (name == "grad_input") return "out";
    if (name == "input") return input_name;
    if (name == "grad_output") return grad_output_name;
    return name;
  });
  const nb::object type =
      nb::module_::import_("backops.errors").attr(kClasses[static_cast<std::size_t>(error.kind())]);
  const std::string text = function.empty() ? message : function + ": " + message;
  PyErr_SetString(type.ptr(), text.c_str());
  nb::raise_python_error();
}

void translate_error(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    try {
      raise_as_python(error, "", "input", "grad_output");
    } catch (nb::python_error& python_error) {
      python_error.restore();
    }
  }
}

// ---- arguments ---------------------------------------------------------------------------------

// An int for all axes, or a sequence of length 1 or `rank`.
void read_axes(nb::handle value, const char* name, int rank, std::int64_t* result) {
  std::int64_t one = 0;
  if (as_int64(value, &one)) {
    std::fill(result, result + rank, one);
    return;
  }
  const auto refuse = [&]() {
    const std::string lengths = rank == 1 ? "1 int" : "1 or " + std::to_string(rank) + " ints";
    throw Error(ErrorKind::param, "{" + std::string(name) + "}", short_repr(value),
                "expected an int or a sequence of " + lengths);
  };
  if (!PySequence_Check(value.ptr()) || PyUnicode_Check(value.ptr()) ||
      PyBytes_Check(value.ptr())) {
    refuse();
  }
  const nb::object items = nb::steal(PySequence_Fast(value.ptr(), "a sequence of ints"));
  if (!items.is_valid()) {
    PyErr_Clear();
    refuse();
  }
  const std::size_t length = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
  if (length != 1 && length != static_cast<std::size_t>(rank)) refuse();
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    PyObject* const item =
        PySequence_Fast_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(length == 1 ? 0 : i));
    if (!as_int64(item, &result[i])) refuse();
  }
}

// None and () mean "not given".
bool is_given(nb::handle value) {
  if (value.is_none()) return false;
  const bool sequence = PyTuple_Check(value.ptr()) || PyList_Check(value.ptr());
  return !sequence || nb::len(value) != 0;
}

Precision read_precision(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) {
    const char* const text = PyUnicode_AsUTF8(value.ptr());
    for (const Precision p :
         {Precision::keep, Precision::allow_fp32_down, Precision::fp16, Precision::hf32}) {
      if (text != nullptr && std::strcmp(text, name_of(p)) == 0) return p;
    }
    PyErr_Clear();
  }
  throw Error(ErrorKind::param, "{precision}", short_repr(value),
              "expected 'keep', 'allow_fp32_down', 'fp16' or 'hf32'");
}

DType read_dtype(nb::handle value) {
  const auto text = nb::cast<std::string>(nb::str(value));
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    if (text == name_of(dtype)) return dtype;
  }
  throw Error(ErrorKind::dtype, "{dtype}", short_repr(value),
              "expected float16, bfloat16, float32 or float64");
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

bool truth(nb::handle value) {
  const int result = PyObject_IsTrue(value.ptr());
  if (result < 0) nb::raise_python_error();
  return result != 0;
}

void set_windows(PoolProblem& problem, const WindowArguments& a) {
  read_axes(a.kernel_size, "kernel_size", problem.rank, problem.kernel_size);
  std::copy(problem.kernel_size, problem.kernel_size + kMaxRank, problem.stride);
  if (is_given(a.stride)) read_axes(a.stride, "stride", problem.rank, problem.stride);
  read_axes(a.padding, "padding", problem.rank, problem.padding);
  problem.ceil_mode = truth(a.ceil_mode);
  problem.count_include_pad = truth(a.count_include_pad);
  if (!a.divisor_override.is_none() && !as_int64(a.divisor_override, &problem.divisor_override)) {
    throw Error(ErrorKind::param, "{divisor_override}", short_repr(a.divisor_override),
                "expected None or an int of 64 bits");
  }
  problem.rounding = rounding_of(read_precision(a.precision), problem.dtype);
}

// ---- plans -------------------------------------------------------------------------------------

using PlanKey = std::array<std::int64_t, 5 + kMaxDims + 4 * kMaxRank + 3>;

PlanKey key_of(const PoolProblem& p) {
  PlanKey key{};
  std::int64_t* at = key.data();
  for (const std::int64_t value :
       {std::int64_t{p.rank}, std::int64_t{static_cast<std::uint8_t>(p.dtype)},
        std::int64_t{static_cast<std::uint8_t>(p.rounding)}, std::int64_t{p.ndim},
        std::int64_t{p.adaptive}, std::int64_t{p.ceil_mode}, std::int64_t{p.count_include_pad},
        p.divisor_override}) {
    *at++ = value;
  }
  at = std::copy(p.input_shape, p.input_shape + kMaxDims, at);
  for (const std::int64_t* list : {p.output_size, p.kernel_size, p.stride, p.padding}) {
    at = std::copy(list, list + kMaxRank, at);
  }
  return key;
}

struct HashKey {
  std::size_t operator()(const PlanKey& key) const {
    std::uint64_t hash = 14695981039346656037u;
    for (const std::int64_t value : key) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211u;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
  }
};

// The last plans that were made, for the operator functions.
class PlanCache {
 public:
  std::shared_ptr<const PoolPlan> get(const PoolProblem& problem) {
    const PlanKey key = key_of(problem);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = plans_.find(key);
      if (found != plans_.end()) return found->second;
    }
    auto plan = std::make_shared<const PoolPlan>(problem);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (plans_.emplace(key, plan).second) order_.push_back(key);
    if (order_.size() > kMostPlans) {
      plans_.erase(order_.front());
      order_.pop_front();
    }
    return plan;
  }

 private:
  static constexpr std::size_t kMostPlans = 256;
  std::mutex mutex_;
  std::unordered_map<PlanKey, std::shared_ptr<const PoolPlan>, HashKey> plans_;
  std::deque<PlanKey> order_;
};

PlanCache& plan_cache() {
  static PlanCache cache;
  return cache;
}

// Each calling thread keeps the workspace of its last calls: at most 1 MB per worker.
char* own_workspace(std::size_t bytes) {
  thread_local std::unique_ptr<char[]> memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset(new char[bytes]);
    size = bytes;
  }
  return memory.get();
}

void check_writable(const Array& out) {
  if (!out.read_only) return;
  throw Error(ErrorKind::layout, "{grad_input}", "read-only", "expected a writable array");
}

// Runs `plan`; a null workspace means this thread's own.
nb::object run_plan(const PoolPlan& plan, nb::handle grad_output, const Array& source,
                    nb::handle out, char* workspace, int threads) {
  plan.check_grad_output(source.view);
  NewArray fresh{};
  TensorView target;
  Array given{};
  if (out.is_none()) {
    fresh = new_array(grad_output, source, plan.problem().input_shape, plan.problem().ndim);
    target = fresh.view;
  } else {
    given = view_of(out, "{grad_input}");
    plan.check_grad_input(given.view, source.view);
    check_writable(given);
    target = given.view;
  }
  {
    const nb::gil_scoped_release released;
    if (workspace == nullptr) workspace = own_workspace(plan.workspace_bytes(threads));
    plan.run(source.view, target, workspace, threads);
  }
  return out.is_none() ? fresh.finish() : nb::borrow(out);
}

void check_same_dtype(const ShapeOf& input, const TensorView& grad_output) {
  if (input.dtype.empty() || input.dtype == name_of(grad_output.dtype)) return;
  throw Error(ErrorKind::dtype, "{input}", input.dtype,
              std::string("expected ") + name_of(grad_output.dtype) + " like {grad_output}");
}

// ---- operators ---------------------------------------------------------------------------------

template <class SetWindows>
nb::object pool_backward(const char* function, int rank, nb::handle grad_output, nb::handle input,
                         nb::handle out, const SetWindows& set_windows_of) {
  try {
    const Array source = view_of(grad_output, "{grad_output}");
    const ShapeOf input_shape = shape_of(input, "{input}");
    check_same_dtype(input_shape, source.view);
    PoolProblem problem;
    problem.rank = rank;
    problem.dtype = source.view.dtype;
    set_input_shape(problem, input_shape);
    set_windows_of(problem, source.view);
    const auto plan = plan_cache().get(problem);
    return run_plan(*plan, grad_output, source, out, nullptr, g_threads);
  } catch (const Error& error) {
    raise_as_python(error, function, "input", "grad_output");
  }
}

nb::object avg_pool_backward(const char* function, int rank, nb::handle grad_output,
                             nb::handle input, nb::handle kernel_size, nb::handle stride,
                             nb::handle padding, nb::handle ceil_mode, nb::handle count_include_pad,
                             nb::handle divisor_override, nb::handle precision, nb::handle out) {
  const WindowArguments windows{kernel_size,       stride,           padding,  ceil_mode,
                                count_include_pad, divisor_override, precision};
  return pool_backward(
      function, rank, grad_output, input, out,
      [&](PoolProblem& problem, const TensorView&) { set_windows(problem, windows); });
}

// Adaptive pooling takes its output size from grad_output, as far as that has the right axes.
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
                                      nb::handle input, nb::handle out) {
  return pool_backward(function, rank, grad_output, input, out, set_output_size);
}

// ---- plan objects ------------------------------------------------------------------------------

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

  void check_workspace(const Memory& workspace) const {
    if (workspace.bytes >= workspace_size()) return;
    throw Error(ErrorKind::param, "{workspace}", std::to_string(workspace.bytes) + " bytes",
                "expected at least workspace_size = " + std::to_string(workspace_size()));
  }

  nb::object call(nb::handle grad_output, nb::handle out, nb::handle workspace) const {
    try {
      const Array source = view_of(grad_output, "{grad_output}");
      Memory memory{};
      if (!workspace.is_none()) {
        memory = memory_of(workspace, "{workspace}");
        check_workspace(memory);
      }
      return run_plan(*plan, grad_output, source, out, memory.data,
                      std::min<int>(threads, g_threads));
    } catch (const Error& error) {
      raise_as_python(error, function, "input", "grad_output");
    }
  }
};

template <class SetWindows>
PythonPlan make_plan(const std::string& function, int rank, nb::handle input_shape,
                     nb::handle dtype, const SetWindows& set_windows_of) {
  try {
    PoolProblem problem;
    problem.rank = rank;
    problem.dtype = read_dtype(dtype);
    set_input_shape(problem, shape_of(input_shape, "{input}"));
    set_windows_of(problem);
    return {function, std::make_shared<const PoolPlan>(problem), g_threads};
  } catch (const Error& error) {
    raise_as_python(error, function, "input_shape", "grad_output");
  }
}

PythonPlan plan_avg_pool(const std::string& function, int rank, nb::handle input_shape,
                         nb::handle kernel_size, nb::handle stride, nb::handle padding,
                         nb::handle ceil_mode, nb::handle count_include_pad,
                         nb::handle divisor_override, nb::handle precision, nb::handle dtype) {
  const WindowArguments windows{kernel_size,       stride,           padding,  ceil_mode,
                                count_include_pad, divisor_override, precision};
  return make_plan(function, rank, input_shape, dtype,
                   [&](PoolProblem& problem) { set_windows(problem, windows); });
}

PythonPlan plan_adaptive_avg_pool(const std::string& function, int rank, nb::handle input_shape,
                                  nb::handle output_size, nb::handle dtype) {
  return make_plan(function, rank, input_shape, dtype, [&](PoolProblem& problem) {
    problem.adaptive = true;
    read_axes(output_size, "output_size", rank, problem.output_size);
    for (int axis = 0; axis < rank; ++axis) {
      if (problem.output_size[axis] > 0) continue;
      throw Error(ErrorKind::param, "{output_size}[" + std::to_string(axis) + "]",
                  std::to_string(problem.output_size[axis]), "expected a positive int");
    }
  });
}

// ---- the memory bound, for the benchmark -------------------------------------------------------

struct FillAndCopy {
  char* target;
  const char* source;
  std::int64_t target_bytes, source_bytes;
  std::atomic<std::int64_t> next{0};
};

// Copies the source to the start of the target and fills the rest of it.
void fill_and_copy(std::uintptr_t target, std::int64_t target_bytes, std::uintptr_t source,
                   std::int64_t source_bytes, int threads) {
  FillAndCopy job{reinterpret_cast<char*>(target), reinterpret_cast<const char*>(source),
                  target_bytes, std::min(source_bytes, target_bytes)};
  const nb::gil_scoped_release released;
  run_parallel(
      threads,
      [](void* context, int) {
        constexpr std::int64_t kPiece = std::int64_t{1} << 20;
        FillAndCopy& j = *static_cast<FillAndCopy*>(context);
        for (;;) {
          const std::int64_t begin = j.next.fetch_add(kPiece);
          if (begin >= j.target_bytes) return;
          const std::int64_t end = std::min(begin + kPiece, j.target_bytes);
          const std::int64_t copied = std::max(begin, std::min(end, j.source_bytes));
          std::memcpy(j.target + begin, j.source + begin, static_cast<std::size_t>(copied - begin));
          std::memset(j.target + copied, 0, static_cast<std::size_t>(end - copied));
        }
      },
      &job);
}

}  // namespace
}  // namespace backops::python

NB_MODULE(_native, m) {
  using namespace backops;
  using namespace backops::python;
  using namespace nb::literals;
  nb::register_exception_translator(translate_error);
  import_numpy();
  m.attr("__version__") = BACKOPS_VERSION;
  // Not done here: an error while a module loads would always be an ImportError.
  m.def("read_environment", [] {
    active_isa();
    g_threads = default_thread_count();
  });
  m.def("isa", [] { return name_of(active_isa()); });
  m.def("set_num_threads", set_num_threads, "n"_a.none());
  m.def("get_num_threads", [] { return g_threads.load(); });
  m.def("set_deterministic", [](bool flag) { g_deterministic = flag; }, "flag"_a);
  m.def("fill_and_copy", fill_and_copy);
  m.def("avg_pool_backward", avg_pool_backward, "function"_a, "rank"_a, "grad_output"_a.none(),
        "input"_a.none(), "kernel_size"_a.none(), "stride"_a.none(), "padding"_a.none(),
        "ceil_mode"_a.none(), "count_include_pad"_a.none(), "divisor_override"_a.none(),
        "precision"_a.none(), "out"_a.none());
  m.def("adaptive_avg_pool_backward", adaptive_avg_pool_backward, "function"_a, "rank"_a,
        "grad_output"_a.none(), "input"_a.none(), "out"_a.none());
  m.def("plan_avg_pool", plan_avg_pool, "function"_a, "rank"_a, "input_shape"_a.none(),
        "kernel_size"_a.none(), "stride"_a.none(), "padding"_a.none(), "ceil_mode"_a.none(),
        "count_include_pad"_a.none(), "divisor_override"_a.none(), "precision"_a.none(),
        "dtype"_a.none());
  m.def("plan_adaptive_avg_pool", plan_adaptive_avg_pool, "function"_a, "rank"_a,
        "input_shape"_a.none(), "output_size"_a.none(), "dtype"_a.none());
  nb::class_<PythonPlan>(m, "PoolPlan")
      .def_prop_ro("workspace_size", &PythonPlan::workspace_size)
      .def_prop_ro("kernel", [](const PythonPlan& self) { return self.plan->kernel(); })
      .def("__repr__", &PythonPlan::repr)
      .def("__call__", &PythonPlan::call, "grad_output"_a.none(), "out"_a.none() = nb::none(),
           "workspace"_a.none() = nb::none());
}

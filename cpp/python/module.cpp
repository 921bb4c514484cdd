// backops._native: unwraps Python arguments, calls the core, wraps what comes back. What is legal
// is decided in the core; only what Python alone can get wrong (types, lengths) is checked here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/isa.h"
#include "base/task_queue.h"
#include "base/threads.h"
#include "ops/conv_backward.h"
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

// Pooling is deterministic for any number of threads anyway; convolution looks at the flag.
void set_deterministic(nb::handle flag) {
  if (!PyBool_Check(flag.ptr())) {
    throw Error(ErrorKind::param, "set_deterministic: flag", short_repr(flag),
                "expected True or False");
  }
  g_deterministic = flag.ptr() == Py_True;
}

// Releases the GIL. A daemon thread that asks for it back while the interpreter ends would be
// unwound by CPython through frames that do not allow it: it stays here instead, until the process
// is gone.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    ++returning_;
    if (exiting_ && std::this_thread::get_id() != exiting_thread_) {
      --returning_;
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    PyEval_RestoreThread(state_);
    --returning_;
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  // Called before the interpreter ends: lets in who is on the way, and nobody after.
  static void close() {
    exiting_thread_ = std::this_thread::get_id();
    exiting_ = true;
    PyThreadState* const state = PyEval_SaveThread();
    while (returning_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    PyEval_RestoreThread(state);
  }

 private:
  static inline std::atomic<int> returning_{0};
  static inline std::atomic<bool> exiting_{false};
  static inline std::thread::id exiting_thread_;
  PyThreadState* state_;
};

// ---- errors ------------------------------------------------------------------------------------

// The core's error as the Python exception of its kind. `function` stands before the message.
[[noreturn]] void raise_as_python(const Error& error, const std::string& function,
                                  const std::function<std::string(const std::string&)>& spell) {
  static const char* const kClasses[] = {"DTypeError", "ShapeError", "ParamError", "LayoutError"};
  const std::string message = error.message(spell);
  const nb::object type =
      nb::module_::import_("backops.errors").attr(kClasses[static_cast<std::size_t>(error.kind())]);
  const std::string text = function.empty() ? message : function + ": " + message;
  PyErr_SetString(type.ptr(), text.c_str());
  nb::raise_python_error();
}

std::string pool_name(const std::string& name) { return name == "grad_input" ? "out" : name; }

std::string pool_plan_name(const std::string& name) {
  return name == "input" ? "input_shape" : pool_name(name);
}

void translate_error(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    try {
      raise_as_python(error, "", pool_name);
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

bool read_flag(nb::handle value, const char* name) {
  const int result = PyObject_IsTrue(value.ptr());
  if (result >= 0) return result != 0;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) nb::raise_python_error();
  PyErr_Clear();
  throw Error(ErrorKind::param, "{" + std::string(name) + "}", short_repr(value),
              "expected True or False");
}

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

// ---- plans -------------------------------------------------------------------------------------

constexpr std::size_t kPlainFields = 8;
using PoolKey = std::array<std::int64_t, kPlainFields + kMaxDims + 4 * kMaxRank>;

PoolKey key_of(const PoolProblem& p) {
  PoolKey key{};
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
  template <std::size_t kFields>
  std::size_t operator()(const std::array<std::int64_t, kFields>& key) const {
    std::uint64_t hash = 14695981039346656037u;
    for (const std::int64_t value : key) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211u;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
  }
};

// The plans that were used last, for the operator functions.
template <class Key, class PlanType>
class PlanCache {
 public:
  using Plan = std::shared_ptr<const PlanType>;

  explicit PlanCache(std::size_t most_plans) : most_plans_(most_plans) {}

  Plan find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    plans_.splice(plans_.begin(), plans_, found->second);
    return found->second->plan;
  }

  // `bytes`: what the plan holds, as far as it grows with shapes.
  void add(const Key& key, const Plan& plan, std::size_t bytes) {
    if (bytes > kMostBytes) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (places_.count(key) != 0) return;
    plans_.push_front({key, plan, bytes});
    places_.emplace(key, plans_.begin());
    bytes_ += bytes;
    while (plans_.size() > most_plans_ || bytes_ > kMostBytes) {
      bytes_ -= plans_.back().bytes;
      places_.erase(plans_.back().key);
      plans_.pop_back();
    }
  }

 private:
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  struct Entry {
    Key key;
    Plan plan;
    std::size_t bytes;
  };
  const std::size_t most_plans_;
  std::mutex mutex_;
  std::list<Entry> plans_;  // the last one used first
  std::unordered_map<Key, typename std::list<Entry>::iterator, HashKey> places_;
  std::size_t bytes_ = 0;
};

PlanCache<PoolKey, PoolPlan>& plan_cache() {
  static PlanCache<PoolKey, PoolPlan> cache(256);
  return cache;
}

// Each calling thread keeps the workspace of its last calls: for pooling at most 1 MB per worker,
// for convolution up to this much. New memory would cost a page fault per 4 KB at every call.
constexpr std::size_t kMostKeptBytes = std::size_t{256} << 20;

char* own_workspace(std::size_t bytes) {
  thread_local std::unique_ptr<char[]> memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset(new char[bytes]);
    size = bytes;
  }
  return memory.get();
}

void check_writable(const Array& out, const char* name) {
  if (!out.read_only) return;
  throw Error(ErrorKind::layout, name, "read-only", "expected a writable array");
}

// The array a result goes to: the caller's or a new one.
struct Result {
  nb::handle given;
  Array array{};     // of the caller
  NewArray fresh{};  // otherwise

  const TensorView& view() const { return given.is_none() ? fresh.view : array.view; }

  nb::object finish() const {
    if (given.is_none()) return fresh.finish();
    mark_written(given, array);
    return nb::borrow(given);
  }
};

Result make_result(nb::handle out, const char* name, nb::handle grad_output, const Array& source,
                   const std::int64_t* shape, int ndim, int rank) {
  Result result{out};
  if (out.is_none()) {
    result.fresh = new_array(grad_output, source, shape, ndim, rank);
  } else {
    result.array = view_of(out, name);
  }
  return result;
}

Result make_result(nb::handle out, nb::handle grad_output, const Array& source,
                   const PoolProblem& problem) {
  return make_result(out, "{grad_input}", grad_output, source, problem.input_shape, problem.ndim,
                     problem.rank);
}

// Runs `plan`; no workspace means this thread's own.
nb::object run_plan(const PoolPlan& plan, const Array& source, const Result& result,
                    const Memory& workspace, int threads) {
  if (!result.given.is_none()) {
    plan.check_grad_input(result.array.view, source.view);
    check_writable(result.array, "{grad_input}");
  }
  plan.check_workspace(workspace.data, workspace.bytes, source.view, result.view());
  {
    const WithoutGil released;
    char* const memory =
        workspace.data ? workspace.data : own_workspace(plan.workspace_bytes(threads));
    plan.run(source.view, result.view(), memory, threads);
  }
  return result.finish();
}

void check_same_dtype(const ShapeOf& operand, const char* name, const TensorView& grad_output) {
  if (operand.dtype.empty() || operand.dtype == name_of(grad_output.dtype)) return;
  throw Error(ErrorKind::dtype, name, operand.dtype,
              std::string("expected ") + name_of(grad_output.dtype) + " like {grad_output}");
}

// ---- operators ---------------------------------------------------------------------------------

template <class SetWindows>
nb::object pool_backward(const char* function, int rank, nb::handle grad_output, nb::handle input,
                         nb::handle out, const SetWindows& set_windows_of) {
  try {
    const Array source = view_of(grad_output, "{grad_output}");
    const ShapeOf input_shape = shape_of(input, "{input}");
    check_same_dtype(input_shape, "{input}", source.view);
    PoolProblem problem;
    problem.rank = rank;
    problem.dtype = source.view.dtype;
    set_input_shape(problem, input_shape);
    set_windows_of(problem, source.view);
    const PoolKey key = key_of(problem);
    std::shared_ptr<const PoolPlan> plan = plan_cache().find(key);
    if (plan) plan->check_grad_output(source.view);
    if (!plan) check_pool_shapes(problem, source.view);
    // Before the plan is made: tables for a result that fits no memory would fit none either.
    const Result result = make_result(out, grad_output, source, problem);
    if (!plan) {
      plan = std::make_shared<const PoolPlan>(problem);
      plan_cache().add(key, plan, plan->table_bytes());
    }
    return run_plan(*plan, source, result, {}, g_threads);
  } catch (const Error& error) {
    raise_as_python(error, function, pool_name);
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

void check_size(const Memory& workspace, std::size_t needed) {
  if (workspace.bytes >= needed) return;
  throw Error(ErrorKind::param, "{workspace}", std::to_string(workspace.bytes) + " bytes",
              "expected at least workspace_size = " + std::to_string(needed));
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

  nb::object call(nb::handle grad_output, nb::handle out, nb::handle workspace) const {
    try {
      const Array source = view_of(grad_output, "{grad_output}");
      Memory memory{};
      if (!workspace.is_none()) {
        memory = memory_of(workspace, "{workspace}");
        check_size(memory, workspace_size());
      }
      plan->check_grad_output(source.view);
      const Result result = make_result(out, grad_output, source, plan->problem());
      return run_plan(*plan, source, result, memory, std::min<int>(threads, g_threads));
    } catch (const Error& error) {
      raise_as_python(error, function, pool_name);
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
    raise_as_python(error, function, pool_plan_name);
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

// ---- convolution -------------------------------------------------------------------------------

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

// A sequence of exactly three.
nb::object three_of(nb::handle value, const char* name, const char* what) {
  if (PySequence_Check(value.ptr()) && !PyUnicode_Check(value.ptr())) {
    nb::object items = nb::steal(PySequence_Tuple(value.ptr()));
    if (items.is_valid() && PyTuple_GET_SIZE(items.ptr()) == 3) return items;
    PyErr_Clear();
  }
  throw Error(ErrorKind::param, "{" + std::string(name) + "}", short_repr(value),
              std::string("expected a tuple of three ") + what);
}

void set_mask(ConvProblem& problem, nb::handle output_mask) {
  const nb::object mask = three_of(output_mask, "output_mask", "bools");
  bool* const wants[] = {&problem.wants_input, &problem.wants_weight, &problem.wants_bias};
  for (Py_ssize_t i = 0; i < 3; ++i) {
    *wants[i] = read_flag(PyTuple_GET_ITEM(mask.ptr(), i), "output_mask");
  }
}

void set_parameters(ConvProblem& problem, const ConvArguments& a) {
  read_axes(a.stride, "stride", problem.rank, problem.stride);
  read_axes(a.padding, "padding", problem.rank, problem.padding);
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

constexpr std::size_t kPlainConvFields = 10;
using ConvKey = std::array<std::int64_t, kPlainConvFields + 2 * kMaxDims + 3 * kMaxConvRank>;

ConvKey key_of(const ConvProblem& p, int threads, bool deterministic) {
  ConvKey key{};
  std::int64_t* at = key.data();
  for (const std::int64_t value :
       {std::int64_t{p.rank}, std::int64_t{static_cast<std::uint8_t>(p.dtype)},
        std::int64_t{static_cast<std::uint8_t>(p.rounding)}, std::int64_t{p.ndim}, p.groups,
        std::int64_t{p.wants_input}, std::int64_t{p.wants_weight}, std::int64_t{p.wants_bias},
        std::int64_t{threads}, std::int64_t{deterministic}}) {
    *at++ = value;
  }
  at = std::copy(p.input_shape, p.input_shape + kMaxDims, at);
  at = std::copy(p.weight_shape, p.weight_shape + kMaxDims, at);
  for (const std::int64_t* list : {p.stride, p.padding, p.dilation}) {
    at = std::copy(list, list + kMaxConvRank, at);
  }
  return key;
}

PlanCache<ConvKey, ConvPlan>& conv_cache() {
  static PlanCache<ConvKey, ConvPlan> cache(64);
  return cache;
}

// The three results and who gave them.
struct ConvResults {
  Result results[3];
  bool wanted[3];

  const TensorView* view(int i) const { return wanted[i] ? &results[i].view() : nullptr; }

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
                    const Memory& workspace, int threads) {
  ConvTensors tensors = inputs;
  tensors.grad_input = results.view(0);
  tensors.grad_weight = results.view(1);
  tensors.grad_bias = results.view(2);
  plan.check_results(tensors);
  plan.check_workspace(workspace.data, workspace.bytes, tensors);
  bool done = false;
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
    done = plan.run(tensors, memory, threads);
  }
  if (!done) throw std::bad_alloc();
  return results.finish();
}

nb::object conv_backward(nb::handle grad_output, nb::handle input, nb::handle weight,
                         nb::handle stride, nb::handle padding, nb::handle dilation,
                         nb::handle groups, nb::handle output_mask, nb::handle precision,
                         nb::handle out) {
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
    check_conv_inputs(problem, tensors);
    const ConvResults results = make_results(out, grad_output, source, problem);
    const int threads = g_threads;
    const bool deterministic = g_deterministic;
    const ConvKey key = key_of(problem, threads, deterministic);
    std::shared_ptr<const ConvPlan> plan = conv_cache().find(key);
    if (!plan) {
      plan = std::make_shared<const ConvPlan>(problem, threads, deterministic);
      conv_cache().add(key, plan, 0);
    }
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
      Memory memory{};
      if (!workspace.is_none()) {
        memory = memory_of(workspace, "{workspace}");
        check_size(memory, plan->workspace_bytes());
      }
      ConvOperand in, kernel;
      if (problem.wants_weight) in = read_operand(input, "{input}", true);
      if (problem.wants_input) kernel = read_operand(weight, "{weight}", true);
      ConvTensors tensors;
      tensors.grad_output = &source.view;
      tensors.input = in.view();
      tensors.weight = kernel.view();
      plan->check_inputs(tensors);
      const ConvResults results = make_results(out, grad_output, source, problem);
      return run_conv(*plan, tensors, results, memory, std::min<int>(threads, g_threads));
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

// ---- addresses, for the C interfaces -----------------------------------------------------------

std::uintptr_t address_of_memory(nb::handle object, const char* argument, std::size_t bytes) {
  const Memory memory = memory_of(object, argument);
  if (memory.bytes < bytes) {
    throw Error(ErrorKind::param, argument, "memory of " + std::to_string(memory.bytes) + " bytes",
                "expected at least " + std::to_string(bytes));
  }
  return reinterpret_cast<std::uintptr_t>(memory.data);
}

// Of a tensor's first element. Arrays of dtypes that no operator has are just memory.
std::uintptr_t address_of_tensor(nb::handle object, const char* argument, bool writes) {
  try {
    const Array array = view_of(object, argument);
    if (writes) check_writable(array, argument);
    if (writes) mark_written(object, array);
    return reinterpret_cast<std::uintptr_t>(array.view.data);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::dtype) throw;
    return address_of_memory(object, argument, 0);
  }
}

// The address of a tensor's first element, of its lowest byte, and the bytes from there on.
std::tuple<std::uintptr_t, std::uintptr_t, std::size_t> span_of_tensor(nb::handle object,
                                                                       const char* argument) {
  const std::uintptr_t address = address_of_tensor(object, argument, false);
  try {
    const TensorView view = view_of(object, argument).view;
    std::int64_t below = 0, above = static_cast<std::int64_t>(size_of(view.dtype));
    for (int i = 0; i < view.ndim; ++i) {
      const std::int64_t reach = view.stride_bytes[i] * (view.shape[i] - 1);
      (reach < 0 ? below : above) += reach;
    }
    const bool empty = dense_bytes(view.shape, view.ndim, view.dtype) == 0;
    return {address, address + static_cast<std::uintptr_t>(below),
            empty ? 0 : static_cast<std::size_t>(above - below)};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::dtype) throw;
    return {address, address, memory_of(object, argument).bytes};
  }
}

// ---- the memory bound, for the benchmark -------------------------------------------------------

struct FillAndCopy {
  char* target;
  const char* source;
  std::int64_t target_bytes, source_bytes;
  TaskQueue pieces;
};

constexpr std::int64_t kPiece = std::int64_t{1} << 18;

// Copies the source to the start of the target and fills the rest of it.
void fill_and_copy(std::uintptr_t target, std::int64_t target_bytes, std::uintptr_t source,
                   std::int64_t source_bytes, int threads) {
  FillAndCopy job{reinterpret_cast<char*>(target), reinterpret_cast<const char*>(source),
                  target_bytes, std::min(source_bytes, target_bytes),
                  TaskQueue((target_bytes + kPiece - 1) / kPiece, threads)};
  const WithoutGil released;
  run_parallel(
      threads,
      [](void* context, int worker) {
        FillAndCopy& j = *static_cast<FillAndCopy*>(context);
        j.pieces.work(worker, [&j](std::int64_t piece) {
          const std::int64_t begin = piece * kPiece;
          const std::int64_t end = std::min(begin + kPiece, j.target_bytes);
          const std::int64_t copied = std::max(begin, std::min(end, j.source_bytes));
          std::memcpy(j.target + begin, j.source + begin, static_cast<std::size_t>(copied - begin));
          std::memset(j.target + copied, 0, static_cast<std::size_t>(end - copied));
        });
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
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(WithoutGil::close));
  m.def("set_num_threads", set_num_threads, "n"_a.none());
  m.def("get_num_threads", [] { return g_threads.load(); });
  m.def("set_deterministic", set_deterministic, "flag"_a.none());
  m.def("fill_and_copy", fill_and_copy);
  m.def("address_of_memory", address_of_memory, "object"_a.none(), "argument"_a, "bytes"_a);
  m.def("address_of_tensor", address_of_tensor, "object"_a.none(), "argument"_a, "writes"_a);
  m.def("span_of_tensor", span_of_tensor, "object"_a.none(), "argument"_a);
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
  m.def("conv_backward", conv_backward, "grad_output"_a.none(), "input"_a.none(), "weight"_a.none(),
        "stride"_a.none(), "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(),
        "output_mask"_a.none(), "precision"_a.none(), "out"_a.none());
  m.def("plan_conv", plan_conv, "input_shape"_a.none(), "weight_shape"_a.none(), "stride"_a.none(),
        "padding"_a.none(), "dilation"_a.none(), "groups"_a.none(), "output_mask"_a.none(),
        "precision"_a.none(), "dtype"_a.none());
  nb::class_<PythonConvPlan>(m, "ConvPlan")
      .def_prop_ro("workspace_size",
                   [](const PythonConvPlan& self) { return self.plan->workspace_bytes(); })
      .def_prop_ro("kernel", [](const PythonConvPlan& self) { return self.plan->kernel(); })
      .def("__repr__", &PythonConvPlan::repr)
      .def("__call__", &PythonConvPlan::call, "grad_output"_a.none(), "input"_a.none() = nb::none(),
           "weight"_a.none() = nb::none(), "out"_a.none() = nb::none(),
           "workspace"_a.none() = nb::none());
  nb::class_<PythonPlan>(m, "PoolPlan")
      .def_prop_ro("workspace_size", &PythonPlan::workspace_size)
      .def_prop_ro("kernel", [](const PythonPlan& self) { return self.plan->kernel(); })
      .def("__repr__", &PythonPlan::repr)
      .def("__call__", &PythonPlan::call, "grad_output"_a.none(), "out"_a.none() = nb::none(),
           "workspace"_a.none() = nb::none());
}

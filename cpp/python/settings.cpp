#include "python/settings.h"

#include <nanobind/stl/string.h>

#include <cstdlib>

#include "base/cpu.h"
#include "base/error.h"
#include "base/threads.h"
#include "python/arrays.h"
#include "python/bindings.h"
#include "python/pytorch.h"

namespace nb = nanobind;

namespace backops::python {

std::atomic<int> g_threads{1};
std::atomic<bool> g_deterministic{false};

namespace {

int read_thread_count(nb::handle n, const char* argument) {
  std::int64_t value = 0;
  if (!as_int64(n, &value) || value < 1 || value > kMaxThreads) {
    throw Error(ErrorKind::param, argument, short_repr(n),
                "expected an int from 1 to " + std::to_string(kMaxThreads));
  }
  return static_cast<int>(value);
}

// Somebody chose g_threads: it is more than a default.
std::atomic<bool> g_threads_are_chosen{false};

void set_num_threads(nb::handle n) {
  g_threads = read_thread_count(n, "set_num_threads: n");
  g_threads_are_chosen = true;
}

void read_environment() {
  active_isa();
  g_threads = default_thread_count();
  const char* const text = std::getenv("BACKOPS_NUM_THREADS");
  g_threads_are_chosen = text != nullptr && *text != '\0';
}

// Pooling is deterministic for any number of threads anyway; convolution looks at the flag.
void set_deterministic(nb::handle flag) {
  if (!PyBool_Check(flag.ptr())) {
    throw Error(ErrorKind::param, "set_deterministic: flag", short_repr(flag),
                "expected True or False");
  }
  g_deterministic = flag.ptr() == Py_True;
}

}  // namespace

CallThreads call_threads(nb::handle object, const Array& array, nb::handle count) {
  CallThreads threads{g_threads, {}, !count.is_none()};
  if (threads.for_kernel) threads.count = read_thread_count(count, "threads");
  if (array.origin == Origin::numpy || !is_pytorch_tensor(object)) return threads;
  const int pytorch_threads = threads.for_kernel ? threads.count : pytorch_thread_count();
  if (!g_threads_are_chosen) threads.count = pytorch_threads;
  if (const Team* team = pytorch_team()) {
    threads.team = *team;
    threads.team->size = pytorch_threads;
  }
  return threads;
}

void bind_settings(nb::module_& m) {
  using namespace nb::literals;
  // Not done while the module loads: an error there would always be an ImportError.
  m.def("read_environment", read_environment);
  m.def("isa", [] { return name_of(active_isa()); });
  m.def("isa_levels", [] {
    nb::list names;
    for (const Isa isa : isa_levels()) names.append(name_of(isa));
    return names;
  });
  m.def("capabilities", [] { return capability_names(active_cpu()); });
  m.def("cache_bytes",
        [] { return nb::make_tuple(active_cpu().level1_bytes, active_cpu().level2_bytes); });
  m.def("set_num_threads", set_num_threads, "n"_a.none());
  m.def("get_num_threads", [] { return g_threads.load(); });
  m.def("set_deterministic", set_deterministic, "flag"_a.none());
  watch_forks();
}

}  // namespace backops::python

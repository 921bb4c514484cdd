#include "python/settings.h"

#include <nanobind/stl/string.h>

#include "base/error.h"
#include "base/isa.h"
#include "base/threads.h"
#include "python/arrays.h"
#include "python/bindings.h"

namespace nb = nanobind;

namespace backops::python {

std::atomic<int> g_threads{1};
std::atomic<bool> g_deterministic{false};

namespace {

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

}  // namespace

void bind_settings(nb::module_& m) {
  using namespace nb::literals;
  // Not done while the module loads: an error there would always be an ImportError.
  m.def("read_environment", [] {
    active_isa();
    g_threads = default_thread_count();
  });
  m.def("isa", [] { return name_of(active_isa()); });
  m.def("set_num_threads", set_num_threads, "n"_a.none());
  m.def("get_num_threads", [] { return g_threads.load(); });
  m.def("set_deterministic", set_deterministic, "flag"_a.none());
}

}  // namespace backops::python

// backops._native: unwraps Python arguments, calls the core, wraps what comes back. What is legal
// is decided in the core.
#include <nanobind/nanobind.h>

#include "python/arrays.h"
#include "python/bindings.h"
#include "python/errors.h"
#include "python/without_gil.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  using namespace backops::python;
  register_errors();
  import_numpy();
  m.attr("__version__") = BACKOPS_VERSION;
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(WithoutGil::close));
  bind_settings(m);
  bind_memory_bound(m);
  bind_addresses(m);
  bind_pool(m);
  bind_conv(m);
  bind_conv_geometry(m);
  bind_conv_plan(m);
  bind_xla(m);
}

// XLA's handlers as Python hands them over to it, for backops.jax.
#include "python/bindings.h"
#include "python/xla_handlers.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

nb::dict xla_handlers() {
  nb::dict handlers;
  handlers["backops_pool_backward"] = nb::capsule(reinterpret_cast<void*>(xla::pool_backward));
  handlers["backops_conv_backward"] = nb::capsule(reinterpret_cast<void*>(xla::conv_backward));
  return handlers;
}

}  // namespace

void bind_xla(nb::module_& m) { m.def("xla_handlers", xla_handlers); }

}  // namespace backops::python

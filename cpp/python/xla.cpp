// XLA's handlers as Python hands them over to it, for backops.jax.
#include "python/bindings.h"
#include "python/xla_handlers.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

nb::dict xla_handlers() {
  const struct {
    const char* name;
    xla::Error* (*handler)(xla::Call* call) noexcept;
  } all[] = {{"backops_pool", xla::pool},
             {"backops_pool_backward", xla::pool_backward},
             {"backops_conv", xla::conv},
             {"backops_conv_grad_input", xla::conv_grad_input},
             {"backops_conv_grad_weight", xla::conv_grad_weight},
             {"backops_channel_sums", xla::channel_sums}};
  nb::dict handlers;
  for (const auto& [name, handler] : all) {
    handlers[name] = nb::capsule(reinterpret_cast<void*>(handler));
  }
  return handlers;
}

}  // namespace

void bind_xla(nb::module_& m) { m.def("xla_handlers", xla_handlers); }

}  // namespace backops::python

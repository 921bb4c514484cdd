// What _native is made of; each function adds its part to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace backops::python {

void bind_settings(nanobind::module_& m);
void bind_pool(nanobind::module_& m);
void bind_conv(nanobind::module_& m);
void bind_conv_geometry(nanobind::module_& m);
void bind_conv_plan(nanobind::module_& m);
void bind_addresses(nanobind::module_& m);
void bind_memory_bound(nanobind::module_& m);
void bind_xla(nanobind::module_& m);

}  // namespace backops::python

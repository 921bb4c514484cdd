// Arguments that are no arrays. Only what Python alone can get wrong (types, lengths) is checked
// here.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "ops/common/precision.h"
#include "python/arrays.h"

namespace backops::python {

// An int for all axes, or a sequence of length 1 or `rank`. None, where there are values for it, is
// the value of its axis.
void read_axes(nanobind::handle value, const char* name, int rank, std::int64_t* result,
               const std::int64_t* where_none = nullptr);

// None and () mean "not given".
bool is_given(nanobind::handle value);

Precision read_precision(nanobind::handle value);
DType read_dtype(nanobind::handle value);
bool read_flag(nanobind::handle value, const char* name);

// A sequence of exactly three, as a tuple.
nanobind::object three_of(nanobind::handle value, const char* name, const char* what);

// Also of operands that the core does not see, because only their shape is used.
void check_same_dtype(const ShapeOf& operand, const char* name, const TensorView& grad_output);

nanobind::tuple as_tuple(const std::int64_t* values, int count);

// The core's names as a forward operator spells them.
std::string forward_name(const std::string& name);

}  // namespace backops::python

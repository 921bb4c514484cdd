#include "python/arguments.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "ops/common/checks.h"
#include "python/errors.h"

namespace nb = nanobind;

namespace backops::python {

void read_axes(nb::handle value, const char* name, int rank, std::int64_t* result,
               const std::int64_t* where_none) {
  const auto read = [&](nb::handle item, int axis) {
    if (!item.is_none() || where_none == nullptr) return as_int64(item, &result[axis]);
    result[axis] = where_none[axis];
    return true;
  };
  if (read(value, 0)) {
    for (int axis = 1; axis < rank; ++axis) read(value, axis);
    return;
  }
  const auto refuse = [&]() {
    const std::string none = where_none == nullptr ? "" : " (or None, which keeps a size)";
    const std::string lengths = rank == 1 ? "1 int" : "1 or " + std::to_string(rank) + " ints";
    throw Error(ErrorKind::param, "{" + std::string(name) + "}", short_repr(value),
                "expected an int or a sequence of " + lengths + none);
  };
  if (!PySequence_Check(value.ptr()) || PyUnicode_Check(value.ptr()) ||
      PyBytes_Check(value.ptr())) {
    refuse();
  }
  const nb::object items = nb::steal(PySequence_Fast(value.ptr(), "a sequence of ints"));
  if (!items.is_valid()) {
    clear_refusal();
    refuse();
  }
  const std::size_t length = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
  if (length != 1 && length != static_cast<std::size_t>(rank)) refuse();
  for (int axis = 0; axis < rank; ++axis) {
    if (!read(PySequence_Fast_GET_ITEM(items.ptr(), length == 1 ? 0 : axis), axis)) refuse();
  }
}

bool is_given(nb::handle value) {
  if (value.is_none()) return false;
  const bool sequence = PyTuple_Check(value.ptr()) || PyList_Check(value.ptr());
  return !sequence || nb::len(value) != 0;
}

Precision read_precision(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) {
    const char* const text = PyUnicode_AsUTF8(value.ptr());
    if (text == nullptr) clear_refusal();
    for (const Precision p :
         {Precision::keep, Precision::allow_fp32_down, Precision::fp16, Precision::hf32}) {
      if (text != nullptr && std::strcmp(text, name_of(p)) == 0) return p;
    }
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

bool read_flag(nb::handle value, const char* name) {
  const int result = PyObject_IsTrue(value.ptr());
  if (result >= 0) return result != 0;
  clear_refusal();
  throw Error(ErrorKind::param, "{" + std::string(name) + "}", short_repr(value),
              "expected True or False");
}

nb::object three_of(nb::handle value, const char* name, const char* what) {
  if (PySequence_Check(value.ptr()) && !PyUnicode_Check(value.ptr())) {
    nb::object items = nb::steal(PySequence_Tuple(value.ptr()));
    if (!items.is_valid()) {
      clear_refusal();
    } else if (PyTuple_GET_SIZE(items.ptr()) == 3) {
      return items;
    }
  }
  throw Error(ErrorKind::param, "{" + std::string(name) + "}", short_repr(value),
              std::string("expected a tuple of three ") + what);
}

void check_same_dtype(const ShapeOf& operand, const char* name, const TensorView& grad_output) {
  if (operand.dtype.empty()) return;
  check_dtype(name, operand.dtype, grad_output.dtype, " like {grad_output}");
}

nb::tuple as_tuple(const std::int64_t* values, int count) {
  nb::list items;
  for (int i = 0; i < count; ++i) items.append(values[i]);
  return nb::tuple(items);
}

std::string forward_name(const std::string& name) {
  if (name == "input") return "x";
  if (name == "dtype") return "x.dtype";
  return name == "output" || name == "grad_output" ? "the result" : name;
}

}  // namespace backops::python

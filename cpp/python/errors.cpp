#include "python/errors.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <exception>

namespace nb = nanobind;

namespace backops::python {

void raise_as_python(const Error& error, const std::string& function,
                     const std::function<std::string(const std::string&)>& spell) {
  static const char* const kClasses[] = {"DTypeError", "ShapeError", "ParamError", "LayoutError"};
  const std::string message = error.message(spell);
  const nb::object type =
      nb::module_::import_("backops.errors").attr(kClasses[static_cast<std::size_t>(error.kind())]);
  const std::string text = function.empty() ? message : function + ": " + message;
  if (const auto* const no_data = dynamic_cast<const NoData*>(&error)) {
    nb::python_error cause = no_data->cause();
    nb::raise_from(cause, type.ptr(), "%s", text.c_str());
  } else {
    PyErr_SetString(type.ptr(), text.c_str());
  }
  nb::raise_python_error();
}

namespace {

void translate_error(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    try {
      raise_as_python(error, "", [](const std::string& name) { return name; });
    } catch (nb::python_error& python_error) {
      python_error.restore();
    }
  }
}

// What objects refuse with.
bool any_refusal(const std::function<bool(PyObject*)>& matches) {
  PyObject* const kinds[] = {PyExc_TypeError,   PyExc_ValueError,    PyExc_AttributeError,
                             PyExc_BufferError, PyExc_OverflowError, PyExc_RuntimeError};
  return std::any_of(std::begin(kinds), std::end(kinds), matches);
}

// The first line: PyTorch adds a C++ stack to its errors.
std::string first_line(nb::handle error) {
  const auto text = nb::cast<std::string>(nb::str(error));
  return text.substr(0, text.find('\n'));
}

}  // namespace

bool is_refusal(const nb::python_error& error) {
  return any_refusal([&](PyObject* kind) { return error.matches(kind); });
}

void clear_refusal() {
  if (!any_refusal([](PyObject* kind) { return PyErr_ExceptionMatches(kind) != 0; })) {
    nb::raise_python_error();
  }
  PyErr_Clear();
}

NoData::NoData(const std::string& argument, const nb::python_error& cause)
    : Error(ErrorKind::layout, argument,
            "an array that gives no data (" + first_line(cause.value()) + ")",
            "expected a dense array on the CPU"),
      cause_(cause) {}

void raise_no_data(const std::string& argument) {
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_RuntimeError, "no reason given");
  const nb::python_error error;
  if (!is_refusal(error)) throw error;
  throw NoData(argument, error);
}

nb::object optional_attribute(nb::handle object, const char* name) {
  PyObject* const value = PyObject_GetAttrString(object.ptr(), name);
  if (value == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) nb::raise_python_error();
    PyErr_Clear();
  }
  return nb::steal(value);
}

void register_errors() { nb::register_exception_translator(translate_error); }

}  // namespace backops::python

#include "python/errors.h"

#include <nanobind/nanobind.h>

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
  PyErr_SetString(type.ptr(), text.c_str());
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

}  // namespace

void register_errors() { nb::register_exception_translator(translate_error); }

}  // namespace backops::python

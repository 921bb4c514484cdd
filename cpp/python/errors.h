// The core's errors as Python's exceptions, and Python's own while objects are asked for things.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace backops::python {

// `function` stands before the message, unless it is empty; `spell` names arguments as the caller
// knows them.
[[noreturn]] void raise_as_python(const Error& error, const std::string& function,
                                  const std::function<std::string(const std::string&)>& spell);

void register_errors();

// An object says that it cannot do what it was asked by a few kinds of exceptions. Only these may
// be replaced by an error of ours. All others pass: interrupts, and what a signal handler raises
// while Python code of the object happens to run.
bool is_refusal(const nanobind::python_error& error);

// Clears the exception that is set if it is a refusal, and throws it if it is not.
void clear_refusal();

// An Error that Python code caused; that exception becomes the cause of ours.
class NoData : public Error {
 public:
  NoData(const std::string& argument, const nanobind::python_error& cause);
  const nanobind::python_error& cause() const { return cause_; }

 private:
  nanobind::python_error cause_;
};

// Throws the exception that is set, as NoData if it is a refusal.
[[noreturn]] void raise_no_data(const std::string& argument);

// Runs `ask`, with refusals as NoData.
template <class Ask>
nanobind::object data_of(const std::string& argument, const Ask& ask) {
  try {
    return ask();
  } catch (nanobind::python_error& error) {
    if (!is_refusal(error)) throw;
    throw NoData(argument, error);
  }
}

// object.name, or an invalid object if there is none.
nanobind::object optional_attribute(nanobind::handle object, const char* name);

}  // namespace backops::python

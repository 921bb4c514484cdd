// The core's errors as Python's exceptions.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"

namespace backops::python {

// `function` stands before the message, unless it is empty; `spell` names arguments as the caller
// knows them.
[[noreturn]] void raise_as_python(const Error& error, const std::string& function,
                                  const std::function<std::string(const std::string&)>& spell);

void register_errors();

}  // namespace backops::python

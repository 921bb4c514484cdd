// Errors as text.
#pragma once

#include <string>

#include "base/error.h"

namespace backops {
namespace test {

inline const char* name_of_kind(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::dtype: return "dtype: ";
    case ErrorKind::shape: return "shape: ";
    case ErrorKind::param: return "param: ";
    default: return "layout: ";
  }
}

// "kind: message", or nothing where `action` throws no Error.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return name_of_kind(error.kind()) + std::string(error.what());
  }
  return "";
}

}  // namespace test
}  // namespace backops

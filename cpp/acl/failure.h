// The one place where exceptions become codes and messages: nothing is thrown across the C
// boundary.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "aclnn/acl_meta.h"

namespace backops::acl {

// A code of the C interface, and why. Reads as "<argument> is <got>, <rule>"; whoever catches it
// puts the function in front.
class Failure : public std::exception {
 public:
  Failure(int code, std::string text) : code_(code), text_(std::move(text)) {}
  Failure(int code, const std::string& argument, const std::string& got, const std::string& rule)
      : Failure(code, argument + " is " + got + ", " + rule) {}

  int code() const noexcept { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int code_;
  std::string text_;
};

// Remembers the exception that is being handled as this thread's last failure; returns its code.
// Others than Failure: no memory, and whatever else it may be.
int report(const char* function, int no_memory, int unexpected) noexcept;

// Null where there was no failure.
const char* recent_message() noexcept;

// For functions of the runtime.
template <class Body>
aclError guarded(const char* function, const Body& body) noexcept {
  try {
    body();
    return ACL_SUCCESS;
  } catch (...) {
    return report(function, ACL_ERROR_BAD_ALLOC, ACL_ERROR_INTERNAL_ERROR);
  }
}

// For objects and operators.
template <class Body>
aclnnStatus guarded_aclnn(const char* function, const Body& body) noexcept {
  try {
    body();
    return ACLNN_SUCCESS;
  } catch (...) {
    return report(function, ACLNN_ERR_INNER, ACLNN_ERR_INNER);
  }
}

// Pointers that may not be null, of functions of the runtime and of the others.
inline void require(const void* pointer, const char* argument) {
  if (pointer != nullptr) return;
  throw Failure(ACL_ERROR_INVALID_PARAM, argument, "NULL", "expected a pointer");
}

inline void require_aclnn(const void* pointer, const char* argument) {
  if (pointer != nullptr) return;
  throw Failure(ACLNN_ERR_PARAM_NULLPTR, argument, "NULL", "expected a pointer");
}

}  // namespace backops::acl

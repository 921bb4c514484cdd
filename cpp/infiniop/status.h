// The one place where exceptions become statuses: nothing is thrown across the C boundary.
#pragma once

#include "base/error.h"
#include "infinicore.h"

namespace backops::infini {

inline infiniStatus_t status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::dtype: return INFINI_STATUS_BAD_TENSOR_DTYPE;
    case ErrorKind::shape: return INFINI_STATUS_BAD_TENSOR_SHAPE;
    case ErrorKind::layout: return INFINI_STATUS_BAD_TENSOR_STRIDES;
    default: return INFINI_STATUS_BAD_PARAM;
  }
}

template <class Body>
infiniStatus_t guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    return status_of(error.kind());
  } catch (...) {
    return INFINI_STATUS_INTERNAL_ERROR;  // no memory, or no thread
  }
}

template <class... Pointers>
bool any_null(const Pointers*... pointers) {
  return (... || (pointers == nullptr));
}

}  // namespace backops::infini

// What an infinirtStream_t points to; both libraries are built from this definition.
#pragma once

#include <memory>
#include <utility>

#include "infinicore.h"
#include "runtime/queue.h"

namespace backops::infini {

struct Stream {
  std::shared_ptr<Queue> queue;
};

// Null for the NULL stream.
inline Queue* queue_of(void* stream) {
  return stream == nullptr ? nullptr : static_cast<Stream*>(stream)->queue.get();
}

// `operation` runs now on the NULL stream, else in its turn.
template <class Operation>
infiniStatus_t launch(void* stream, Operation&& operation) {
  if (Queue* const queue = queue_of(stream)) {
    queue->add(std::forward<Operation>(operation));
  } else {
    operation();
  }
  return INFINI_STATUS_SUCCESS;
}

}  // namespace backops::infini

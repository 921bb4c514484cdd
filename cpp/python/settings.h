// What Python code sets for the whole process.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <optional>

#include "base/threads.h"
#include "python/arrays.h"

namespace backops::python {

extern std::atomic<int> g_threads;
extern std::atomic<bool> g_deterministic;

// Where one call runs: `count` threads of `team`, or of our own pool if there is none.
struct CallThreads {
  int count;
  std::optional<Team> team;
  // Only PyTorch, calling us as a kernel of its own, gives a count. It keeps its own books of what
  // kernels write.
  bool for_kernel = false;

  const Team* team_or_null() const { return team ? &*team : nullptr; }
};

// Of a call whose gradient came as `object`. Calls on PyTorch's tensors run on its threads, and as
// many as it has, unless set_num_threads or the environment says otherwise. A `count` that is not
// None goes before all of that.
CallThreads call_threads(nanobind::handle object, const Array& array, nanobind::handle count);

}  // namespace backops::python

// What Python code sets for the whole process.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>

#include "base/threads.h"

namespace backops::python {

extern std::atomic<int> g_threads;
extern std::atomic<bool> g_deterministic;

// Where one call runs: `count` threads of `team`, or of our own pool if that is null. Without a
// count, as many as set_num_threads says.
struct CallThreads {
  int count;
  const Team* team;
  // Only PyTorch, calling us as a kernel of its own, gives a count. It keeps its own books of what
  // kernels write.
  bool for_kernel = false;
};
CallThreads call_threads(nanobind::handle count, const Team* team);

}  // namespace backops::python

// One pool of worker threads per process. How many take part is each caller's choice, so two users
// of the library do not get in each other's way.
#pragma once

#include "base/export.h"

namespace backops {

constexpr int kMaxThreads = 1024;

// BACKOPS_NUM_THREADS if set, otherwise the CPUs this process may use.
// Throws Error for a value that is no positive integer.
BACKOPS_API int default_thread_count();

// Calls `work(context, worker)` on up to `threads` threads, worker 0 being the caller, and returns
// when all calls have returned. How many calls are made is not certain: workers that are busy for
// another caller or still asleep when worker 0 is done are left out. So `work` takes its share
// from a common counter until nothing is left; it must not call run_parallel itself. Allocates
// nothing once the workers exist.
using Work = void (*)(void* context, int worker);
BACKOPS_API void run_parallel(int threads, Work work, void* context) noexcept;

}  // namespace backops

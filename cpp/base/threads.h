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

// Threads of somebody else. A framework's OpenMP workers stay awake for a while after each region
// of theirs; work that is put between such regions does best on the same workers.
struct Team {
  // Calls function(data) on up to `threads` threads, the caller being one of them, and returns when
  // all calls have. The type is that of GOMP_parallel, `flags` is 0.
  void (*run)(void (*function)(void*), void* data, unsigned threads, unsigned flags);
  // Inside `function`: 0 for the caller, another number below `threads` for each other thread.
  int (*thread_number)();
  // How many threads its owner uses. Work for fewer is still run on all of them, most of which then
  // do nothing: GNU's runtime ends threads that a region does not ask for, and the next one starts
  // them anew.
  int size = 1;
};

// While one exists, run_parallel of the thread that made it uses `team` in place of the pool; null
// changes nothing.
class BACKOPS_API OnTeam {
 public:
  explicit OnTeam(const Team* team);
  ~OnTeam();
  OnTeam(const OnTeam&) = delete;
  OnTeam& operator=(const OnTeam&) = delete;

 private:
  const Team* const before_;
};

}  // namespace backops

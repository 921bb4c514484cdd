// Tasks for run_parallel. Each worker has a range of its own and takes from the others when that is
// done: run after run the same core works on the same memory, which is still in its caches.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace backops {

class TaskQueue {
 public:
  TaskQueue(std::int64_t tasks, int workers)
      : tasks_(tasks), ranges_(std::clamp(workers, 1, kMostRanges)) {
    for (int range = 0; range < ranges_; ++range) {
      next_[range].store(begin(range), std::memory_order_relaxed);
    }
  }

  // Calls `body` with tasks until none is left for anyone.
  template <class Body>
  void work(int worker, const Body& body) {
    for (int i = 0; i < ranges_; ++i) {
      const int range = (worker + i) % ranges_;
      const std::int64_t end = begin(range + 1);
      for (;;) {
        const std::int64_t task = next_[range].fetch_add(1, std::memory_order_relaxed);
        if (task >= end) break;
        body(task);
      }
    }
  }

 private:
  static constexpr int kMostRanges = 64;

  std::int64_t begin(int range) const {
    return tasks_ / ranges_ * range + std::min<std::int64_t>(tasks_ % ranges_, range);
  }

  const std::int64_t tasks_;
  const int ranges_;
  std::atomic<std::int64_t> next_[kMostRanges];
};

}  // namespace backops

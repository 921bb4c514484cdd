// An in-order asynchronous queue: what is called a stream where operators run beside the caller.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/export.h"

namespace backops {

// The first error of a queue since the last synchronisation; 0 is none. Outlives the queue in the
// events that were recorded on it.
class ErrorSlot {
 public:
  void keep(int error) noexcept {
    int none = 0;
    if (error != 0) first_.compare_exchange_strong(none, error);
  }
  int take() noexcept { return first_.exchange(0); }

 private:
  std::atomic<int> first_{0};
};

class BACKOPS_API Queue {
 public:
  // Returns 0 or an error code of its own choice, and throws nothing. It owns, or shares, whatever
  // must live until it has run.
  using Operation = std::function<int()>;

  Queue();
  ~Queue();  // runs what is queued first
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Throws where there is no memory or no thread to be had; nothing is queued then.
  void add(Operation operation);

  // Waits for what was added before, and takes the first error since the last synchronisation.
  int synchronize();

  const std::shared_ptr<ErrorSlot>& errors() const { return errors_; }

 private:
  void work() noexcept;

  const std::shared_ptr<ErrorSlot> errors_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable wake_, progress_;
  std::deque<Operation> waiting_;
  std::uint64_t added_ = 0, finished_ = 0;  // operations, ever
  bool closing_ = false;
  std::thread worker_;  // started with the first operation
};

// The queues of one front end, which can be waited for together.
class BACKOPS_API QueueGroup {
 public:
  std::shared_ptr<Queue> create();

  // Waits for all queues that are alive, and takes their errors; returns the first.
  int synchronize();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Queue>> queues_;
};

}  // namespace backops

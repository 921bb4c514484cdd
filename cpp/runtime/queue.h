// An in-order asynchronous queue: what is called a stream where operators run beside the caller.
#pragma once

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

class BACKOPS_API Queue {
 public:
  // Throws nothing and cannot fail: whatever can be wrong is told before it is queued. It owns, or
  // shares, whatever must live until it has run.
  using Operation = std::function<void()>;

  Queue() = default;
  ~Queue();  // runs what is queued first
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Throws where there is no memory or no thread to be had; nothing is queued then.
  void add(Operation operation);

  // Waits for what was added before.
  void synchronize();

 private:
  void work() noexcept;

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

  // Waits for all queues that are alive.
  void synchronize();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Queue>> queues_;
};

}  // namespace backops

#include "runtime/queue.h"

#include <algorithm>
#include <utility>

namespace backops {

Queue::~Queue() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  if (worker_.joinable()) worker_.join();
}

void Queue::add(Operation operation) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
    waiting_.push_back(std::move(operation));
    ++added_;
  }
  wake_.notify_one();
}

void Queue::synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  progress_.wait(lock, [this, last = added_] { return finished_ >= last; });
}

void Queue::work() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Operation operation = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    operation();
    // What it held is gone before anybody hears that it is done.
    operation = nullptr;
    lock.lock();
    ++finished_;
    progress_.notify_all();
  }
}

std::shared_ptr<Queue> QueueGroup::create() {
  auto queue = std::make_shared<Queue>();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_gone = [](const std::weak_ptr<Queue>& other) { return other.expired(); };
  queues_.erase(std::remove_if(queues_.begin(), queues_.end(), is_gone), queues_.end());
  queues_.push_back(queue);
  return queue;
}

void QueueGroup::synchronize() {
  std::vector<std::shared_ptr<Queue>> alive;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::weak_ptr<Queue>& queue : queues_) {
      if (auto shared = queue.lock()) alive.push_back(std::move(shared));
    }
  }
  for (const std::shared_ptr<Queue>& queue : alive) queue->synchronize();
}

}  // namespace backops

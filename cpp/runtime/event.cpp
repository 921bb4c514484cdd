#include "runtime/event.h"

#include <chrono>
#include <utility>

namespace backops {

class Event::Recording {
 public:
  void finish(bool with_timing) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_done_ = true;
      if (with_timing) time_ = std::chrono::steady_clock::now();
    }
    finished_.notify_all();
  }

  bool is_done() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_done_;
  }

  void wait() const {
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [this] { return is_done_; });
  }

  std::chrono::steady_clock::time_point time() const { return time_; }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  bool is_done_ = false;
  std::chrono::steady_clock::time_point time_;  // written once, before is_done_ is seen
};

Event::Event(bool with_timing) : with_timing_(with_timing) {}

std::shared_ptr<Event::Recording> Event::latest() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return latest_;
}

void Event::record(Queue* queue) {
  auto recording = std::make_shared<Recording>();
  if (queue == nullptr) {
    recording->finish(with_timing_);
  } else {
    queue->add([recording, with_timing = with_timing_] { recording->finish(with_timing); });
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  latest_ = std::move(recording);
}

bool Event::is_done() const {
  const auto recording = latest();
  return !recording || recording->is_done();
}

void Event::synchronize() const {
  if (const auto recording = latest()) recording->wait();
}

void Event::delay(Queue& queue) const {
  const auto recording = latest();
  if (!recording || recording->is_done()) return;
  queue.add([recording] { recording->wait(); });
}

bool Event::elapsed(const Event& start, const Event& end, float* milliseconds) {
  if (!start.with_timing_ || !end.with_timing_) return false;
  const auto from = start.latest(), to = end.latest();
  if (!from || !to || !from->is_done() || !to->is_done()) return false;
  *milliseconds = std::chrono::duration<float, std::milli>(to->time() - from->time()).count();
  return true;
}

}  // namespace backops

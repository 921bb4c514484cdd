// Marks in queues: whether and when a queue got there, and other queues that wait for it.
#pragma once

#include <memory>
#include <mutex>

#include "base/export.h"
#include "runtime/queue.h"

namespace backops {

class BACKOPS_API Event {
 public:
  // Without timing an event takes no time stamps.
  explicit Event(bool with_timing);

  // Done when all that was added to the queue before is; without a queue, now. What waits for an
  // earlier record goes on waiting for that one.
  void record(Queue* queue);

  // An event that was never recorded is done, and nobody waits for it.
  bool is_done() const;

  // Waits for the latest record.
  void synchronize() const;

  // What is added to `queue` from now on waits for the latest record.
  void delay(Queue& queue) const;

  // From one record to another. False, and nothing written, unless both are done and have a time.
  static bool elapsed(const Event& start, const Event& end, float* milliseconds);

 private:
  class Recording;
  std::shared_ptr<Recording> latest() const;

  const bool with_timing_;
  mutable std::mutex mutex_;
  std::shared_ptr<Recording> latest_;
};

}  // namespace backops

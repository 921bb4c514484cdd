// A program may end while operators run: they must be done before what they use is cleaned up. So
// one of these is made after an operator, as a static of the function that queues it, and cleaned
// up before. A forked child has no threads that could finish anything.
#pragma once

#include <unistd.h>

namespace backops {

class WaitAtExit {
 public:
  explicit WaitAtExit(void (*wait)()) : wait_(wait) {}
  ~WaitAtExit() {
    if (getpid() == process_) wait_();
  }
  WaitAtExit(const WaitAtExit&) = delete;
  WaitAtExit& operator=(const WaitAtExit&) = delete;

 private:
  void (*const wait_)();
  const pid_t process_ = getpid();
};

}  // namespace backops

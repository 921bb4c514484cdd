#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace backops::python {

// Releases the GIL. A daemon thread that asks for it back while the interpreter ends would be
// unwound by CPython through frames that do not allow it: it stays here instead, until the process
// is gone.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    ++returning_;
    if (exiting_ && std::this_thread::get_id() != exiting_thread_) {
      --returning_;
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    PyEval_RestoreThread(state_);
    --returning_;
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  // Called before the interpreter ends: lets in who is on the way, and nobody after.
  static void close() {
    exiting_thread_ = std::this_thread::get_id();
    exiting_ = true;
    PyThreadState* const state = PyEval_SaveThread();
    while (returning_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    PyEval_RestoreThread(state);
  }

 private:
  static inline std::atomic<int> returning_{0};
  static inline std::atomic<bool> exiting_{false};
  static inline std::thread::id exiting_thread_;
  PyThreadState* state_;
};

}  // namespace backops::python

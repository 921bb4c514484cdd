// What Python code sets for the whole process.
#pragma once

#include <atomic>

namespace backops::python {

extern std::atomic<int> g_threads;
extern std::atomic<bool> g_deterministic;

}  // namespace backops::python

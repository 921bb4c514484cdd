// Asking for memory before it is written. Stores alone make the CPU wait for each line, and let
// results leave a large last-level cache: 50 MB of halves took 1.4 times as long.
#pragma once

#include <cstdint>

namespace backops {
namespace {

constexpr std::int64_t kBytesAhead = 2048;

// To be called with the place of each store, where memory is written in order.
inline __attribute__((always_inline)) void announce_writing(const void* place,
                                                            std::int64_t ahead = kBytesAhead) {
  __builtin_prefetch(static_cast<const char*>(place) + ahead, 1);
}

}  // namespace
}  // namespace backops

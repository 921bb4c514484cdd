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

// Asks for the memory `ahead` bytes behind a row of so many bytes that is about to be written; 0:
// this CPU does better without (Cpu::absorbs_stores). Prefetchers follow long rows on their own.
inline __attribute__((always_inline)) void announce_row(const void* row, std::int64_t bytes,
                                                        std::int64_t ahead) {
  if (ahead == 0) return;
  constexpr std::int64_t kLine = 64;
  const std::int64_t most = bytes < 2 * ahead ? bytes : 2 * ahead;
  for (std::int64_t at = 0; at < most; at += kLine) announce_writing(row, ahead + at);
}

}  // namespace
}  // namespace backops

// Sums that several tasks have parts of, added up in a fixed order, and how the work is cut into
// tasks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv/shape.h"

namespace backops {

// Adds the other parts, which lie `pitch` apart, to the first.
template <class Sum>
void add_parts(Sum* first, std::int64_t count, std::int64_t parts, std::int64_t pitch) {
  for (std::int64_t part = 1; part < parts; ++part) {
    const Sum* const more = first + part * pitch;
    for (std::int64_t i = 0; i < count; ++i) first[i] += more[i];
  }
}

constexpr std::int64_t kTasksPerThread = 4;  // that even out the work

// Fewer if there are not enough operations.
inline std::int64_t tasks_per_thread(const ConvShape& s, std::int64_t threads) {
  constexpr double kTaskWork = 5e7;  // multiplications that are worth a task of their own
  const auto tasks =
      static_cast<std::int64_t>(s.multiplications() / kTaskWork / static_cast<double>(threads));
  return std::clamp<std::int64_t>(tasks, 1, kTasksPerThread);
}

}  // namespace backops

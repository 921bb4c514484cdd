// The `void *` parameters: arrays of 64-bit integers, one for each spatial axis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace backops::infini {

// size_t and ptrdiff_t alike: a size beyond 63 bits reads as negative, which the core refuses.
inline void read_axes(const void* values, int rank, std::int64_t* target) {
  std::memcpy(target, values, static_cast<std::size_t>(rank) * sizeof(std::int64_t));
}

// NULL means `otherwise` for every axis.
inline void read_axes(const void* values, int rank, std::int64_t otherwise, std::int64_t* target) {
  if (values != nullptr) return read_axes(values, rank, target);
  std::fill(target, target + rank, otherwise);
}

}  // namespace backops::infini

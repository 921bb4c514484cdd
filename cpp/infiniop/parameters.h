// The `void *` parameters: arrays with one integer for each spatial axis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace backops::infini {

// 64-bit values, size_t and ptrdiff_t alike: a size beyond 63 bits reads as negative, which the
// core refuses.
inline void read_axes(const void* values, int rank, std::int64_t* target) {
  std::memcpy(target, values, static_cast<std::size_t>(rank) * sizeof(std::int64_t));
}

// The same in 32 bits: int.
inline void read_narrow_axes(const void* values, int rank, std::int64_t* target) {
  for (int axis = 0; axis < rank; ++axis) {
    std::int32_t value;
    std::memcpy(&value,
                static_cast<const char*>(values) + static_cast<std::size_t>(axis) * sizeof value,
                sizeof value);
    target[axis] = value;
  }
}

// NULL means `otherwise` for every axis.
inline void read_axes(const void* values, int rank, std::int64_t otherwise, std::int64_t* target,
                      bool narrow = false) {
  if (values == nullptr) {
    std::fill(target, target + rank, otherwise);
  } else if (narrow) {
    read_narrow_axes(values, rank, target);
  } else {
    read_axes(values, rank, target);
  }
}

// Whether an array of two or more values, none of them 0, has 32-bit ones. The upper half of its
// first 64 bits, which are there in either width, is another value then, and else 0.
inline bool shows_narrow(const void* values) {
  std::uint64_t first = 0;
  if (values != nullptr) std::memcpy(&first, values, sizeof first);
  return first >> 32 != 0;
}

// Clients of convolution have arrays of either width, the same for all of a call. No stride and no
// dilation is 0, so these tell. Of one axis the lower half is the value in either width, and the
// upper half may lie beyond the array.
inline bool are_narrow(const void* strides, const void* dilations, int rank) {
  return rank == 1 || shows_narrow(strides) || shows_narrow(dilations);
}

}  // namespace backops::infini

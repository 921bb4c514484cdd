// Memory that starts at a cache line, and how much there is.
#pragma once

#include <cstddef>

#include "base/export.h"

namespace backops {

// Null where there is none; never null for 0 bytes. To be given back with free_aligned.
BACKOPS_API void* allocate_aligned(std::size_t bytes) noexcept;
BACKOPS_API void free_aligned(void* memory) noexcept;

struct MemoryInfo {
  std::size_t free = 0;  // what programs can have without swapping
  std::size_t total = 0;
};

// In bytes, of the machine. Throws std::runtime_error where the system does not tell.
BACKOPS_API MemoryInfo memory_info();

}  // namespace backops

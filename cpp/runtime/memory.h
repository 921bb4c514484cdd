// Memory that starts at a cache line.
#pragma once

#include <cstddef>

#include "base/export.h"

namespace backops {

// Null where there is none; never null for 0 bytes. To be given back with free_aligned.
BACKOPS_API void* allocate_aligned(std::size_t bytes) noexcept;
BACKOPS_API void free_aligned(void* memory) noexcept;

}  // namespace backops

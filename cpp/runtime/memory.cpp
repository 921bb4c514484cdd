#include "runtime/memory.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace backops {
namespace {

constexpr std::size_t kLine = 64;

}  // namespace

void* allocate_aligned(std::size_t bytes) noexcept {
  if (bytes > std::numeric_limits<std::size_t>::max() - kLine) return nullptr;
  const std::size_t lines = std::max<std::size_t>(1, (bytes + kLine - 1) / kLine);
  return std::aligned_alloc(kLine, lines * kLine);
}

void free_aligned(void* memory) noexcept { std::free(memory); }

}  // namespace backops

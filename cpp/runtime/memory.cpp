#include "runtime/memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>

#include "base/ints.h"

namespace backops {

void* allocate_aligned(std::size_t bytes) noexcept {
  if (bytes > std::numeric_limits<std::size_t>::max() - kLineBytes) return nullptr;
  return std::aligned_alloc(kLineBytes, whole_lines(std::max<std::size_t>(1, bytes)));
}

void free_aligned(void* memory) noexcept { std::free(memory); }

// Not sysinfo(), which counts what files are cached in as used.
MemoryInfo memory_info() {
  MemoryInfo info;
  std::ifstream lines("/proc/meminfo");  // such as "MemTotal:       16384256 kB"
  std::string name, unit;
  for (std::size_t kilobytes; lines >> name >> kilobytes && std::getline(lines, unit);) {
    if (name == "MemTotal:") info.total = kilobytes * 1024;
    if (name == "MemAvailable:") info.free = kilobytes * 1024;
  }
  if (info.total == 0) throw std::runtime_error("/proc/meminfo does not tell");
  return info;
}

}  // namespace backops

#include "base/caches.h"

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cctype>
#include <fstream>

namespace backops {
namespace {

constexpr int kSharedLevel = 3;

#ifdef __APPLE__
std::int64_t told_by_sysctl(const std::string& name) {
  std::int64_t value = 0;
  std::size_t bytes = sizeof value;
  return sysctlbyname(name.c_str(), &value, &bytes, nullptr, 0) == 0 ? value : 0;
}

// Of the fast cores, where there are two kinds; several of them share a second-level cache. There
// is no third level.
std::int64_t told_by_system(int level) {
  if (level >= kSharedLevel) return 0;
  const std::string name = level == 1 ? "l1dcachesize" : "l2cachesize";
  const std::int64_t of_fast = told_by_sysctl("hw.perflevel0." + name);
  if (of_fast == 0) return told_by_sysctl("hw." + name);
  const std::int64_t sharing = level == 1 ? 1 : told_by_sysctl("hw.perflevel0.cpusperl2");
  return of_fast / std::max<std::int64_t>(1, sharing);
}
#else
// The C library knows those of x86 CPUs, the files those of others.
std::int64_t told_by_system(int level) {
  long told = 0;
#ifdef _SC_LEVEL1_DCACHE_SIZE
  told = sysconf(level == 1   ? _SC_LEVEL1_DCACHE_SIZE
                 : level == 2 ? _SC_LEVEL2_CACHE_SIZE
                              : _SC_LEVEL3_CACHE_SIZE);
#endif
  return told > 0 ? told : cache_bytes_of_files("/sys/devices/system/cpu/cpu0/cache", level);
}
#endif

std::string word_of_file(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Such as 64K.
std::int64_t bytes_of(const std::string& size) {
  std::int64_t number = 0;
  for (const char c : size) {
    if (c == 'K') return number << 10;
    if (c == 'M') return number << 20;
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return 0;
    number = 10 * number + (c - '0');
  }
  return number;
}

// Bits of hexadecimal digits such as 00000000,0000000f.
std::int64_t cpus_of(const std::string& map) {
  std::size_t cpus = 0;
  for (const char c : map) {
    const auto digit = std::string("0123456789abcdef").find(c);
    if (digit != std::string::npos) cpus += std::bitset<4>(digit).count();
  }
  return static_cast<std::int64_t>(std::max<std::size_t>(1, cpus));
}

}  // namespace

std::int64_t cache_bytes(int level) { return told_by_system(level); }

std::int64_t cache_bytes_of_files(const std::string& folder, int level) {
  for (int index = 0;; ++index) {
    const std::string file = folder + "/index" + std::to_string(index) + "/";
    const std::string own_level = word_of_file(file + "level");
    if (own_level.empty()) return 0;
    if (own_level != std::to_string(level) || word_of_file(file + "type") == "Instruction") {
      continue;
    }
    const std::int64_t bytes = bytes_of(word_of_file(file + "size"));
    return level == kSharedLevel ? bytes : bytes / cpus_of(word_of_file(file + "shared_cpu_map"));
  }
}

}  // namespace backops

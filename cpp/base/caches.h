// Sizes of caches, as the system tells them.
#pragma once

#include <cstdint>
#include <string>

#include "base/export.h"

namespace backops {

// What one core has of the caches of a level, for data. 0 where the system does not tell.
BACKOPS_API std::int64_t cache_bytes(int level);

// The same from Linux's files about a CPU, which are in a folder such as
// /sys/devices/system/cpu/cpu0/cache. The last level is told whole, for it is shared by all.
BACKOPS_API std::int64_t cache_bytes_of_files(const std::string& folder, int level);

}  // namespace backops

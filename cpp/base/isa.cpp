#include "base/isa.h"

#ifdef BACKOPS_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace backops {
namespace {

Isa read_limit() {
  const char* text = std::getenv("BACKOPS_ISA");
  if (text == nullptr || *text == '\0') return Isa::amx;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (std::string(text) == name_of(isa)) return isa;
  }
  throw Error(ErrorKind::param, "BACKOPS_ISA", "'" + std::string(text) + "'",
              "expected generic, avx2, avx512 or amx");
}

Isa vector_isa() {
#ifdef BACKOPS_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return avx512 ? Isa::avx512 : avx2 ? Isa::avx2 : Isa::generic;
#else
  return Isa::generic;
#endif
}

// Tiles, and products of bfloat16. Some virtual machines do not tell how large tiles are; all that
// have been built are alike.
bool has_amx() {
#ifdef BACKOPS_AMX
  constexpr unsigned kBFloat16 = 1u << 22, kTiles = 1u << 24;
  constexpr int kGetSupported = 0x1021, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  unsigned long states = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBFloat16) != 0 &&
         (d & kTiles) != 0 && syscall(SYS_arch_prctl, kGetSupported, &states) == 0 &&
         (states >> kTileData & 1) != 0;
#else
  return false;
#endif
}

Isa isa_up_to(Isa limit) {
  const Isa vectors = vector_isa();
  if (limit >= Isa::amx && vectors == Isa::avx512 && has_amx()) return Isa::amx;
  return std::min(vectors, limit);
}

}  // namespace

Isa detected_isa() { return isa_up_to(Isa::amx); }

Isa active_isa() {
  static const Isa isa = isa_up_to(read_limit());
  return isa;
}

}  // namespace backops

#include "base/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace backops {
namespace {

Isa read_limit() {
  const char* text = std::getenv("BACKOPS_ISA");
  if (text == nullptr || *text == '\0') return Isa::avx512;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (std::string(text) == name_of(isa)) return isa;
  }
  throw Error(ErrorKind::param, "BACKOPS_ISA", "'" + std::string(text) + "'",
              "expected generic, avx2 or avx512");
}

}  // namespace

Isa detected_isa() {
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

Isa active_isa() {
  static const Isa isa = std::min(detected_isa(), read_limit());
  return isa;
}

}  // namespace backops

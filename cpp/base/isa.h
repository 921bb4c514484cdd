// Instruction sets that kernels are compiled for.
#pragma once

#include <cstdint>

#include "base/export.h"

namespace backops {

// Each includes the ones before it that its architecture has.
enum class Isa : std::uint8_t { generic, neon, avx2, avx512, avx512_bf16, amx };

constexpr const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::amx: return "amx";
    case Isa::avx512_bf16: return "avx512_bf16";
    case Isa::avx512: return "avx512";
    case Isa::avx2: return "avx2";
    case Isa::neon: return "neon";
    default: return "generic";
  }
}

// The best this CPU and the system run and this library was built with.
BACKOPS_API Isa detected_isa();

// detected_isa(), lowered by BACKOPS_ISA. Read once; throws Error for a name that is none.
BACKOPS_API Isa active_isa();

}  // namespace backops

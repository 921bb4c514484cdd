// Instruction sets that kernels are compiled for.
#pragma once

#include <cstdint>

#include "base/export.h"

namespace backops {

enum class Isa : std::uint8_t { generic, avx2, avx512 };  // each includes the ones before it

constexpr const char* name_of(Isa isa) {
  return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "generic";
}

// The best this CPU runs and this library was built with.
BACKOPS_API Isa detected_isa();

// detected_isa(), lowered by BACKOPS_ISA. Read once; throws Error for a name that is none.
BACKOPS_API Isa active_isa();

}  // namespace backops

// What every operator does with rows of memory on their way in and out: rounding, copies past the
// caches and into gaps.
//
// Results are bitwise the same for every instruction set. All pointers may be unaligned. Rows are
// written exactly: no byte beyond their last element changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/isa.h"

namespace backops {

struct ConvertKernels {
  const char* name;  // convert_<isa>
  Isa isa;
  void (*round_to_float16)(float* values, std::int64_t count);
  // Copies past the caches; finish with stream_fence.
  void (*stream)(void* target, const void* source, std::size_t bytes);
  void (*stream_fence)();
  // Element i goes to place 2 * i; what lies between may be somebody else's. Elements have 2, 4 or
  // 8 bytes.
  void (*put_every_second)(void* target, const void* source, std::int64_t count,
                           std::size_t element_bytes);
};

// The kernels of `isa`, or of the next lower one that was built.
const ConvertKernels& convert_kernels(Isa isa);

}  // namespace backops

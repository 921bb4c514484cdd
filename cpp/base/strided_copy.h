// Copies between a dense scratch buffer and memory of any strides.
#pragma once

#include <cstdint>

namespace backops {

constexpr int kCopyDims = 4;

struct StridedBlock {
  std::int64_t shape[kCopyDims];
  std::int64_t target_stride_bytes[kCopyDims];
  std::int64_t source_stride_bytes[kCopyDims];
};

// Element by element for element sizes 2, 4 and 8. `by_target` says which side lies in far memory:
// the loop over its smallest stride is the innermost.
void strided_copy(char* target, const char* source, StridedBlock block, int element_bytes,
                  bool by_target);

}  // namespace backops

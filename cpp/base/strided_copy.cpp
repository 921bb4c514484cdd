#include "base/strided_copy.h"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace backops {
namespace {

void move_axis_innermost(StridedBlock& block, int axis) {
  for (int i = axis; i + 1 < kCopyDims; ++i) {
    std::swap(block.shape[i], block.shape[i + 1]);
    std::swap(block.target_stride_bytes[i], block.target_stride_bytes[i + 1]);
    std::swap(block.source_stride_bytes[i], block.source_stride_bytes[i + 1]);
  }
}

int smallest_stride_axis(const StridedBlock& block, bool by_target) {
  const std::int64_t* const strides =
      by_target ? block.target_stride_bytes : block.source_stride_bytes;
  int best = kCopyDims - 1;
  for (int i = 0; i < kCopyDims; ++i) {
    const bool better = block.shape[best] == 1 || std::abs(strides[i]) < std::abs(strides[best]);
    if (block.shape[i] > 1 && better) best = i;
  }
  return best;
}

template <int kBytes>
void copy_row(char* target, const char* source, std::int64_t count, std::int64_t target_step,
              std::int64_t source_step) {
  if (target_step == kBytes && source_step == kBytes) {
    std::memcpy(target, source, static_cast<std::size_t>(count) * kBytes);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(target + i * target_step, source + i * source_step, kBytes);
  }
}

template <int kBytes>
void copy_block(char* target, const char* source, const StridedBlock& b) {
  const auto* t = b.target_stride_bytes;
  const auto* s = b.source_stride_bytes;
  for (std::int64_t i = 0; i < b.shape[0]; ++i) {
    for (std::int64_t j = 0; j < b.shape[1]; ++j) {
      for (std::int64_t k = 0; k < b.shape[2]; ++k) {
        copy_row<kBytes>(target + i * t[0] + j * t[1] + k * t[2],
                         source + i * s[0] + j * s[1] + k * s[2], b.shape[3], t[3], s[3]);
      }
    }
  }
}

}  // namespace

void strided_copy(char* target, const char* source, StridedBlock block, int element_bytes,
                  bool by_target) {
  move_axis_innermost(block, smallest_stride_axis(block, by_target));
  switch (element_bytes) {
    case 2: return copy_block<2>(target, source, block);
    case 4: return copy_block<4>(target, source, block);
    default: return copy_block<8>(target, source, block);
  }
}

}  // namespace backops

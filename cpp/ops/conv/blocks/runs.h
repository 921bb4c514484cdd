// Where tiles lie in the caller's tensors, if these hold sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv/blocks/sizes.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

// Strides and addresses are those of sums.
template <class Sum>
bool has_whole_sums(const Activation& tensor) {
  const auto whole = [](std::int64_t bytes) {
    return bytes % static_cast<std::int64_t>(sizeof(Sum)) == 0;
  };
  return whole(tensor.image_stride_bytes) && whole(tensor.channel_stride_bytes) &&
         std::all_of(tensor.stride_bytes, tensor.stride_bytes + kMaxConvRank, whole) &&
         reinterpret_cast<std::uintptr_t>(tensor.data) % sizeof(Sum) == 0;
}

// Positions of the last `joined` axes of a box, which lie one behind the other.
inline std::int64_t run_length(const Box& box, int joined) {
  std::int64_t count = 1;
  for (int i = 0; i < joined; ++i) count *= box.axes[kMaxConvRank - 1 - i].size();
  return count;
}

// Calls body(image, d, h, w) where runs begin.
template <class Body>
void for_runs(const Box& box, int joined, const Body& body) {
  Range axes[kMaxConvRank];
  std::copy(box.axes, box.axes + kMaxConvRank, axes);
  for (int i = 0; i < joined; ++i) {
    Range& own = axes[kMaxConvRank - 1 - i];
    own.end = std::min(own.end, own.begin + 1);
  }
  for_rows(box.images, axes, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
    if (axes[2].size() > 0) body(image, d, h, axes[2].begin);
  });
}

// Where the weight product of kernels of one tap can read the positions of a tile as they are,
// `step` apart; or null. Only rows of few channels, for which neighbours fill a cache evenly.
template <class Sum>
const Sum* input_as_it_is(const Activation& input, const BlockSide& side, const Tile& tile,
                          std::int64_t& step) {
  constexpr std::int64_t kMostBlocks = 4;
  const std::int64_t channels = side.all_channels();
  if (!side.is_whole() || channels % side.width != 0 || channels > kMostBlocks * side.width ||
      input.channel_stride_bytes != sizeof(Sum) || !has_whole_sums<Sum>(input) ||
      tile.input.has_gaps() || tile.output.has_gaps()) {
    return nullptr;
  }
  const Box& box = tile.input;
  const std::int64_t first = input.stride_bytes[kMaxConvRank - 1];
  std::int64_t next = first;
  for (int axis = kMaxConvRank - 1; axis >= 0; --axis) {
    if (box.axes[axis].size() > 1 && input.stride_bytes[axis] != next) return nullptr;
    next *= box.axes[axis].size();
  }
  if (box.images.size() > 1 && input.image_stride_bytes != next) return nullptr;
  step = first / static_cast<std::int64_t>(sizeof(Sum));
  return reinterpret_cast<const Sum*>(
      input.at(box.images.begin, 0, box.axes[0].begin, box.axes[1].begin, box.axes[2].begin));
}

}  // namespace backops

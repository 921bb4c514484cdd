// Depthwise convolutions where the channels of all tensors lie side by side: vectors are read and
// written in place. There are no zeros around tensors: positions near borders have fewer taps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ints.h"
#include "ops/conv/axes.h"
#include "ops/conv/engine.h"

namespace backops {

// Neighbours along an axis, of one residue class if they are inputs, that have the same taps: of
// the kernel if they are outputs, of the class if they are inputs.
struct Segment {
  std::int64_t first, count;
  Range taps;
};
using Segments = std::vector<Segment>;

// Those of `whole` have all taps; the others are listed one by one.
template <class TapsOf>
Segments segments_of(std::int64_t count, const Range& whole, const TapsOf& taps_of) {
  Segments list;
  const std::int64_t begin = std::clamp<std::int64_t>(whole.begin, 0, count);
  const std::int64_t end = std::clamp(whole.end, begin, count);
  for (std::int64_t i = 0; i < begin; ++i) list.push_back({i, 1, taps_of(i)});
  if (begin < end) list.push_back({begin, end - begin, taps_of(begin)});
  for (std::int64_t i = end; i < count; ++i) list.push_back({i, 1, taps_of(i)});
  return list;
}

// Positions near borders along it are listed.
inline bool has_few_borders(const ConvAxis& a) {
  constexpr std::int64_t kMostReach = 64;
  return a.reach <= kMostReach && a.padding >= 0 && a.padding <= a.reach;
}

inline bool is_depthwise(const ConvShape& s) {
  return s.inputs == s.groups && s.outputs == s.groups;
}

// A few positions of this axis are worked on at a time. Volumes of one row have slices instead.
inline int rows_axis(const ConvShape& s) {
  return ConvAxis(s, 1).is_trivial() && !ConvAxis(s, 0).is_trivial() ? 0 : 1;
}

inline bool has_channels_together(const Activation& tensor, std::int64_t element_bytes) {
  const auto is_whole = [=](std::int64_t bytes) { return bytes % element_bytes == 0; };
  return tensor.data == nullptr ||
         (tensor.channel_stride_bytes == element_bytes && is_whole(tensor.image_stride_bytes) &&
          std::all_of(tensor.stride_bytes, tensor.stride_bytes + kMaxConvRank, is_whole) &&
          is_whole(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.data))));
}

// An image of a tensor from some channel on, and how far apart neighbours are, in elements.
struct ElementImage {
  ElementImage(const Activation& tensor, std::int64_t image, std::int64_t channel,
               std::int64_t bytes)
      : data(tensor.data + image * tensor.image_stride_bytes + channel * bytes),
        element_bytes(bytes) {
    for (int axis = 0; axis < kMaxConvRank; ++axis) step[axis] = tensor.stride_bytes[axis] / bytes;
  }
  char* at(std::int64_t elements) const { return data + elements * element_bytes; }

  char* data;
  std::int64_t element_bytes, step[kMaxConvRank];
};

}  // namespace backops

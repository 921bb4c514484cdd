// Folds along a row, each of which holds numbers of its own: added where they overlap, and made of
// rows that have one channel each.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/vectors/loops.h"

namespace backops {
namespace {

// Every so many folds, which do not overlap: what was just stored would be late to be loaded.
template <class V>
void add_folds(const AddFolds& args) {
  const AddFolds a = copied(args);
  const auto* const folds = static_cast<const typename V::Sum*>(a.folds);
  auto* const row = static_cast<typename V::Sum*>(a.row);
  const int numbers = static_cast<int>(a.numbers);
  const std::int64_t apart = (a.numbers + a.row_step - 1) / a.row_step;
  for (std::int64_t first = 0; first < apart; ++first) {
    for (std::int64_t p = first; p < a.count; p += apart) {
      const auto* const from = folds + p * V::width;
      auto* const to = row + p * a.row_step;
      if (numbers == V::width) {
        (V::load(to) + V::load(from)).store(to);
      } else {
        (V::load_some(to, numbers) + V::load(from)).store_some(to, numbers);
      }
    }
  }
}

// As many vectors as there are channels hold the numbers of as many positions as a vector has
// lanes: where each lane of each of these vectors comes from.
template <int kLanes, int kChannels>
struct InterleaveTable {
  std::int32_t position[kChannels][kLanes] = {};
  std::uint32_t lanes_of[kChannels][kChannels] = {};  // of a vector that are of a channel, as bits

  constexpr InterleaveTable() {
    for (int i = 0; i < kChannels * kLanes; ++i) {
      position[i / kLanes][i % kLanes] = i / kChannels;
      lanes_of[i / kLanes][i % kChannels] |= std::uint32_t{1} << (i % kLanes);
    }
  }
};

// Returns how many positions it took.
template <class V, int kChannels>
std::int64_t interleave_vectors(const Interleave& args) {
  using Sum = typename V::Sum;
  static constexpr InterleaveTable<V::width, kChannels> table;
  const Interleave a = copied(args);
  std::int64_t i = 0;
  for (; i + V::width <= a.count; i += V::width) {
    const Sum* const from = static_cast<const Sum*>(a.from) + i;
    Sum* const to = static_cast<Sum*>(a.to) + i * kChannels;
    for (int j = 0; j < kChannels; ++j) {
      const auto pattern = V::load_pattern(table.position[j]);
      V numbers = V::permute_one(from, pattern).only(V::mask(table.lanes_of[j][0]));
      for (int c = 1; c < kChannels; ++c) {
        numbers = numbers.add_masked(V::permute_one(from + c * a.pitch, pattern),
                                     V::mask(table.lanes_of[j][c]));
      }
      numbers.store(to + j * V::width);
    }
  }
  return i;
}

template <class V>
void interleave(const Interleave& args) {
  using Sum = typename V::Sum;
  const Interleave a = copied(args);
  std::int64_t done = 0;
  if (a.channels == 2) done = interleave_vectors<V, 2>(a);
  if (a.channels == 3) done = interleave_vectors<V, 3>(a);
  if (a.channels == 4) done = interleave_vectors<V, 4>(a);
  for (std::int64_t c = 0; c < a.channels; ++c) {
    const Sum* const from = static_cast<const Sum*>(a.from) + c * a.pitch;
    Sum* const to = static_cast<Sum*>(a.to) + c;
    for (std::int64_t i = done; i < a.count; ++i) to[i * a.channels] = from[i];
  }
}

}  // namespace
}  // namespace backops

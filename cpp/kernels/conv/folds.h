// Folds along a row, each of which holds numbers of its own, added where they overlap.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/vectors/loops.h"

namespace backops {
namespace {

// Every so many folds, which do not overlap: what was just stored would be late to be loaded.
template <class V>
void add_folds(const AddFolds& args) {
  const AddFolds a = args;
  const auto* const folds = static_cast<const typename V::Sum*>(a.folds);
  auto* const row = static_cast<typename V::Sum*>(a.row);
  const int numbers = static_cast<int>(a.numbers);
  const std::int64_t apart = (a.numbers + a.row_step - 1) / a.row_step;
  for (std::int64_t first = 0; first < apart; ++first) {
    for (std::int64_t p = first; p < a.count; p += apart) {
      const auto* const from = folds + p * V::lanes;
      auto* const to = row + p * a.row_step;
      if (numbers == V::lanes) {
        (V::load(to) + V::load(from)).store(to);
      } else {
        (V::load_some(to, numbers) + V::load(from)).store_some(to, numbers);
      }
    }
  }
}

}  // namespace
}  // namespace backops

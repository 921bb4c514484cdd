// Sums of all elements of a plane, written once over a vector type.
#pragma once

#include "kernels/pool/rows.h"

namespace backops {
namespace {

// Elements go to the lanes of four chunks in turn, whatever the width of a vector; then chunks,
// then lanes are added in pairs. So every instruction set takes the same sums.
template <class V, class E>
class Total {
 public:
  using Sum = typename V::Sum;
  static constexpr int kLanes = 64 / static_cast<int>(sizeof(Sum));  // of a chunk
  static constexpr int kChunks = 4;
  static constexpr int kVectors = kLanes / V::width;  // of a chunk

  BACKOPS_INLINE Total(const E* elements, std::int64_t count, V scale) : scale_(scale) {
    for (auto& chunk : sums_) {
      for (V& sum : chunk) sum = V::fill(0);
    }
    constexpr std::int64_t kAll = kChunks * kLanes;
    std::int64_t at = 0;
    for (; at + kAll <= count; at += kAll) {
      for (int c = 0; c < kChunks; ++c) add(Whole{}, c, elements + at + c * kLanes, kLanes);
    }
    for (int c = 0; c < kChunks && at < count; ++c, at += kLanes) {
      if (at + kLanes <= count) {
        add(Whole{}, c, elements + at, kLanes);
      } else {
        add(Part{}, c, elements + at, static_cast<int>(count - at));
      }
    }
  }

  BACKOPS_INLINE Sum get() const {
    Sum lanes[kLanes];
    for (int v = 0; v < kVectors; ++v) {
      const V sum = (sums_[0][v] + sums_[1][v]) + (sums_[2][v] + sums_[3][v]);
      sum.store(lanes + v * V::width);
    }
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }

 private:
  template <class Kind>
  BACKOPS_INLINE void add(Kind kind, int chunk, const E* from, int count) {
    for (int v = 0; v < kVectors; ++v, count -= V::width) {
      if (count <= 0) return;
      const int own = count < V::width ? count : V::width;
      V& sum = sums_[chunk][v];
      sum = sum + load<V>(kind, from + v * V::width, own) * scale_;
    }
  }

  const V scale_;
  V sums_[kChunks][kVectors];
};

template <class V, class E>
BACKOPS_FLATTEN void total(const TotalArgs& args) {
  using Sum = typename V::Sum;
  const TotalArgs a = args;
  const V scale = V::fill(static_cast<Sum>(a.scale));
  const E* plane = reinterpret_cast<const E*>(a.source);
  for (std::int64_t p = 0; p < a.planes; ++p, plane += a.columns) {
    static_cast<Sum*>(a.sums)[p] = Total<V, E>(plane, a.columns, scale).get();
  }
}

}  // namespace
}  // namespace backops

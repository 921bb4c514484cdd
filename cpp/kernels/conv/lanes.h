// Copies between tensors and sums whose channels lie side by side.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/announce.h"
#include "kernels/conv/conv.h"
#include "kernels/vectors/loops.h"
#include "kernels/vectors/scalar.h"

namespace backops {
namespace {

// Positions that are brought into place for all channels before the next ones: what is written
// stays in the cache while its lines are filled.
constexpr std::int64_t kPositionsAtOnce = 64;

// Interleaving the halves often enough transposes.
template <class V>
BACKOPS_INLINE void transpose(V (&rows)[V::width]) {
  V other[V::width];
  for (int round = 1; round < V::width; round *= 2) {
    for (int i = 0; i < V::width / 2; ++i) {
      other[2 * i] = V::low(rows[i], rows[i + V::width / 2]);
      other[2 * i + 1] = V::high(rows[i], rows[i + V::width / 2]);
    }
    for (int i = 0; i < V::width; ++i) rows[i] = other[i];
  }
}

// Calls body(first channel, channels, first position, positions) for squares of at most V::width.
template <class V, class Body>
BACKOPS_INLINE void for_squares(const LaneCopy& a, const Body& body) {
  for (std::int64_t chunk = 0; chunk < a.positions; chunk += kPositionsAtOnce) {
    const std::int64_t left = a.positions - chunk;
    const std::int64_t end = chunk + (left < kPositionsAtOnce ? left : kPositionsAtOnce);
    for_vectors<V>(a.channels, [&](auto channel_kind, std::int64_t c, int channels) {
      for_vectors<V>(end - chunk, [&](auto position_kind, std::int64_t p, int positions) {
        body(channel_kind, c, channels, position_kind, chunk + p, positions);
      });
    });
  }
}

// Where the sums of positions are, one after the other.
class SumPlaces {
 public:
  BACKOPS_INLINE SumPlaces(const LaneCopy& a, std::int64_t position)
      : pitch_(a.sum_pitch),
        row_(a.row == 0 ? a.positions : a.row),
        gap_(a.row_gap),
        column_(position % row_),
        at_(position * pitch_ + position / row_ * gap_) {}

  BACKOPS_INLINE std::int64_t next() {
    const std::int64_t here = at_;
    at_ += pitch_;
    if (++column_ == row_) {
      column_ = 0;
      at_ += gap_;
    }
    return here;
  }

 private:
  const std::int64_t pitch_, row_, gap_;
  std::int64_t column_, at_;
};

template <class V, class E>
BACKOPS_FLATTEN void to_lanes_transposed(const LaneCopy& args) {
  using Sum = typename V::Sum;
  const LaneCopy a = copied(args);
  for_squares<V>(a, [&](auto channel_kind, std::int64_t c, int channels, auto position_kind,
                        std::int64_t p, int positions) {
    const char* from = a.elements + c * a.channel_stride_bytes + p * std::int64_t{sizeof(E)};
    V square[V::width];
    for (int i = 0; i < V::width; ++i) {
      square[i] =
          i < channels
              ? load<V>(position_kind,
                        reinterpret_cast<const E*>(from + i * a.channel_stride_bytes), positions)
              : V::fill(0);
    }
    transpose(square);
    Sum* const to = static_cast<Sum*>(a.sums) + c / V::width * a.vector_pitch;
    SumPlaces places(a, p);
    for (int i = 0; i < V::width; ++i) {
      if (i < positions) store(channel_kind, square[i], to + places.next(), channels);
    }
  });
}

template <class V, class E>
BACKOPS_FLATTEN void from_lanes_transposed(const LaneCopy& args) {
  using Sum = typename V::Sum;
  const LaneCopy a = copied(args);
  for_squares<V>(a, [&](auto channel_kind, std::int64_t c, int channels, auto position_kind,
                        std::int64_t p, int positions) {
    const Sum* const from = static_cast<const Sum*>(a.sums) + c / V::width * a.vector_pitch;
    SumPlaces places(a, p);
    V square[V::width];
    for (int i = 0; i < V::width; ++i) {
      square[i] =
          i < positions ? load<V>(channel_kind, from + places.next(), channels) : V::fill(0);
    }
    if (a.bias != nullptr) {
      const V bias = load<V>(channel_kind, static_cast<const Sum*>(a.bias) + c, channels);
      for (int i = 0; i < V::width; ++i) square[i] = square[i] + bias;
    }
    transpose(square);
    char* to = a.elements + c * a.channel_stride_bytes + p * std::int64_t{sizeof(E)};
    for (int i = 0; i < V::width; ++i) {
      if (i < channels) {
        announce_writing(to + i * a.channel_stride_bytes, kPositionsAtOnce * sizeof(E));
        store(position_kind, square[i], reinterpret_cast<E*>(to + i * a.channel_stride_bytes),
              positions);
      }
    }
  });
}

// Channels lie side by side in the tensor, too. Few of them are wanted at each of many positions:
// CPUs do not foresee that, so it is asked for.
constexpr std::int64_t kPositionsAhead = 32;

template <class V, class E>
BACKOPS_FLATTEN void to_lanes_aligned(const LaneCopy& args) {
  using Sum = typename V::Sum;
  const LaneCopy a = copied(args);
  const std::int64_t ahead = kPositionsAhead * a.position_stride_bytes;
  SumPlaces places(a, 0);
  for (std::int64_t p = 0; p < a.positions; ++p) {
    const E* from = reinterpret_cast<const E*>(a.elements + p * a.position_stride_bytes);
    Sum* to = static_cast<Sum*>(a.sums) + places.next();
    for_vectors<V>(a.channels, [&](auto kind, std::int64_t c, int count) {
      __builtin_prefetch(reinterpret_cast<const char*>(from + c) + ahead);
      store(kind, load<V>(kind, from + c, count), to + c / V::width * a.vector_pitch, count);
    });
  }
}

template <class V, class Kind>
BACKOPS_INLINE V plus_bias(Kind kind, const LaneCopy& a, std::int64_t c, int count, const V& sums) {
  if (a.bias == nullptr) return sums;
  return sums + load<V>(kind, static_cast<const typename V::Sum*>(a.bias) + c, count);
}

template <class V, class E>
BACKOPS_FLATTEN void from_lanes_aligned(const LaneCopy& args) {
  using Sum = typename V::Sum;
  const LaneCopy a = copied(args);
  const std::int64_t ahead = kPositionsAhead * a.position_stride_bytes;
  SumPlaces places(a, 0);
  for (std::int64_t p = 0; p < a.positions; ++p) {
    const Sum* from = static_cast<const Sum*>(a.sums) + places.next();
    E* to = reinterpret_cast<E*>(a.elements + p * a.position_stride_bytes);
    for_vectors<V>(a.channels, [&](auto kind, std::int64_t c, int count) {
      announce_writing(to + c, ahead);
      const V sums = load<V>(kind, from + c / V::width * a.vector_pitch, count);
      store(kind, plus_bias(kind, a, c, count, sums), to + c, count);
    });
  }
}

// Any strides: elements are collected, then converted a vector at a time.
template <class V, class E>
void to_lanes_collected(const LaneCopy& a) {
  SumPlaces places(a, 0);
  for (std::int64_t p = 0; p < a.positions; ++p) {
    const char* const from = a.elements + p * a.position_stride_bytes;
    auto* const to = static_cast<typename V::Sum*>(a.sums) + places.next();
    for_vectors<V>(a.channels, [&](auto kind, std::int64_t c, int count) {
      E elements[V::width] = {};
      for (int i = 0; i < count; ++i) {
        elements[i] = load_unaligned<E>(from + (c + i) * a.channel_stride_bytes);
      }
      store(kind, V::load(elements), to + c / V::width * a.vector_pitch, count);
    });
  }
}

template <class V, class E>
void from_lanes_collected(const LaneCopy& a) {
  SumPlaces places(a, 0);
  for (std::int64_t p = 0; p < a.positions; ++p) {
    const auto* const from = static_cast<const typename V::Sum*>(a.sums) + places.next();
    char* const to = a.elements + p * a.position_stride_bytes;
    for_vectors<V>(a.channels, [&](auto kind, std::int64_t c, int count) {
      E elements[V::width];
      const V sums = load<V>(kind, from + c / V::width * a.vector_pitch, count);
      plus_bias(kind, a, c, count, sums).store(elements);
      for (int i = 0; i < count; ++i) {
        std::memcpy(to + (c + i) * a.channel_stride_bytes, &elements[i], sizeof(E));
      }
    });
  }
}

template <class V, class E>
void to_lanes(const LaneCopy& a) {
  constexpr std::int64_t kBytes = sizeof(E);
  if (a.channel_stride_bytes == kBytes) return to_lanes_aligned<V, E>(a);
  if (a.position_stride_bytes == kBytes) return to_lanes_transposed<V, E>(a);
  to_lanes_collected<V, E>(a);
}

template <class V, class E>
void from_lanes(const LaneCopy& a) {
  constexpr std::int64_t kBytes = sizeof(E);
  if (a.channel_stride_bytes == kBytes) return from_lanes_aligned<V, E>(a);
  if (a.position_stride_bytes == kBytes) return from_lanes_transposed<V, E>(a);
  from_lanes_collected<V, E>(a);
}

}  // namespace
}  // namespace backops

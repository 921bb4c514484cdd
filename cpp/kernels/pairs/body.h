// The kernels of pairs as a table of functions. Included by one file per instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/conv/lanes.h"
#include "kernels/conv/products.h"
#include "kernels/pairs/pairs.h"

namespace backops {
namespace {

// What instruction sets do each in their own way: a vector of pairs from two vectors of bfloat16
// numbers (pair); the same from numbers in either half of words (join); a vector of pairs, or
// `count` numbers of one, that lie side by side (copy); and what PairKernels::watch is.
template <class V>
struct PairOps;

// On the left of a product, where they lie one pair apart, or one number.
struct NumberPair {
  BFloat16 first, second;
};

// Channels of a pair that the tensor may not have: a zero takes their place.
template <class V, class Kind>
BACKOPS_INLINE V load_pair(Kind kind, const char* from, std::int64_t channel_stride_bytes,
                           bool has_second, int count) {
  const auto at = [](const char* place) { return reinterpret_cast<const BFloat16*>(place); };
  const V first = load<V>(kind, at(from), count);
  if (!has_second) return PairOps<V>::pair(first, V::fill(0));
  return PairOps<V>::pair(first, load<V>(kind, at(from + channel_stride_bytes), count));
}

template <class V>
BACKOPS_FLATTEN void to_pairs_transposed(const LaneCopy& args) {
  const LaneCopy all = copied(args);
  LaneCopy a = all;
  a.channels = (all.channels + 1) / 2;
  for_squares<V>(a, [&](auto channel_kind, std::int64_t c, int channels, auto position_kind,
                        std::int64_t p, int positions) {
    const char* from = a.elements + 2 * c * a.channel_stride_bytes + p * std::int64_t{2};
    V square[V::width];
    for (int i = 0; i < V::width; ++i, from += 2 * a.channel_stride_bytes) {
      square[i] = i < channels ? load_pair<V>(position_kind, from, a.channel_stride_bytes,
                                              2 * (c + i) + 1 < all.channels, positions)
                               : V::fill(0);
    }
    transpose(square);
    float* const to = static_cast<float*>(a.sums) + c / V::width * a.vector_pitch;
    SumPlaces places(a, p);
    for (int i = 0; i < V::width; ++i) {
      if (i < positions) store(channel_kind, square[i], to + places.next(), channels);
    }
  });
}

// Any other strides, those of channels that lie side by side among them: a vector of pairs of one
// position after the other.
template <class V, class Bring>
BACKOPS_INLINE void to_pairs_by_position(const LaneCopy& a, const Bring& bring) {
  constexpr std::int64_t kChannels = 2 * V::width;
  SumPlaces places(a, 0);
  for (std::int64_t p = 0; p < a.positions; ++p) {
    const char* from = a.elements + p * a.position_stride_bytes;
    float* to = static_cast<float*>(a.sums) + places.next();
    for (std::int64_t c = 0; c < a.channels; c += kChannels, to += a.vector_pitch) {
      bring(from + c * a.channel_stride_bytes, to,
            static_cast<int>(a.channels - c < kChannels ? a.channels - c : kChannels));
    }
  }
}

template <class V>
BACKOPS_FLATTEN void to_pairs_aligned(const LaneCopy& args) {
  const LaneCopy a = copied(args);
  const std::int64_t ahead = kPositionsAhead * a.position_stride_bytes;
  to_pairs_by_position<V>(a, [ahead](const char* from, float* to, int count) {
    __builtin_prefetch(from + ahead);
    PairOps<V>::copy(from, to, count);
  });
}

template <class V>
void to_pairs_collected(const LaneCopy& args) {
  const LaneCopy a = copied(args);
  to_pairs_by_position<V>(a, [&a](const char* from, float* to, int count) {
    BFloat16 numbers[2 * V::width] = {};
    for (int i = 0; i < count; ++i) {
      numbers[i] = load_unaligned<BFloat16>(from + i * a.channel_stride_bytes);
    }
    std::memcpy(to, numbers, static_cast<std::size_t>((count + 1) / 2) * sizeof(float));
  });
}

template <class V>
void to_pairs(const LaneCopy& a) {
  constexpr std::int64_t kBytes = sizeof(BFloat16);
  if (a.channel_stride_bytes == kBytes) return to_pairs_aligned<V>(a);
  if (a.position_stride_bytes == kBytes) return to_pairs_transposed<V>(a);
  to_pairs_collected<V>(a);
}

template <class V>
void pack_pair_rows(const PackPairRows& args) {
  const PackPairRows a = copied(args);
  for (std::int64_t j = 0; j < a.pairs; ++j) {
    const float* const from = a.from + 2 * j * a.from_step;
    for (std::int64_t c = 0; c < a.width; c += V::width) {
      PairOps<V>::pair(V::load(from + c), V::load(from + a.from_step + c))
          .store(a.to + j * a.to_step + c);
    }
  }
}

template <class V>
void pair_numbers(const PairNumbers& args) {
  const PairNumbers a = copied(args);
  const BFloat16* from = a.from;
  float* to = a.to;
  for (std::int64_t r = 0; r < a.rows; ++r, from += a.row_step, to += a.to_step) {
    for_vectors<V>(a.count, [&](auto kind, std::int64_t i, int count) {
      const V first = load<V>(kind, from + i, count);
      const V second = load<V>(kind, from + i + a.step, count);
      store(kind, PairOps<V>::pair(first, second), to + i, count);
    });
  }
}

template <class V>
void join_taps(const JoinTaps& args) {
  const JoinTaps a = copied(args);
  for (std::int64_t j = 0; j < a.pairs; ++j) {
    for (std::int64_t tap = 0; tap < a.taps; ++tap) {
      const std::int64_t first = 2 * j * a.taps + tap, second = first + a.taps;
      const float* const low = a.from + first / 2 * a.width;
      const float* const high = a.from + second / 2 * a.width;
      float* const to = a.to + tap * a.tap_pitch + j * a.width;
      for (std::int64_t c = 0; c < a.width; c += V::width) {
        PairOps<V>::join(V::load(low + c), first % 2 != 0, V::load(high + c), second % 2 != 0)
            .store(to + c);
      }
    }
  }
}

template <class V>
void multiply_to_numbers(const BlockProducts& a) {
  multiply_rows<V, AnyLeftPitch, kSumRows<V>, kSumRows<V>, false, BFloat16>(a);
}

// V is a vector of float32, Pairs<Left> the same with products of pairs, whose numbers on the left
// lie Left apart.
template <class V, template <class> class Pairs>
constexpr PairKernels make_pair_kernels(const char* name, Isa isa, VectorSize size) {
  using OfPairs = Pairs<NumberPair>;
  ConvKernels conv{};
  conv.name = name;
  conv.isa = isa;
  conv.size = size;
  conv.dtype = DType::bfloat16;
  conv.width = V::width;
  conv.vector_channels = 2 * V::width;
  conv.most_twins = kSumRows<V> / 2;
  conv.sum_bytes = sizeof(float);
  conv.to_lanes = to_pairs<V>;
  conv.multiply_positions = multiply_positions<OfPairs>;
  conv.multiply_twins = multiply_twins<OfPairs>;
  conv.multiply_channels = multiply_rows<OfPairs, LeftPitch<1>, kSumRows<V>, kSumRows<V>, false>;
  conv.multiply_apart = multiply_apart<Pairs<BFloat16>>;
  return {conv,
          multiply_to_numbers<Pairs<BFloat16>>,
          pack_pair_rows<V>,
          join_taps<V>,
          pair_numbers<V>,
          PairOps<V>::watch};
}

}  // namespace
}  // namespace backops

// Rows of a bfloat16 tensor as words: pairs of numbers that follow each other along the row, with
// the channels of a position side by side. Positions of a weight product are multiplied in such
// pairs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/ints.h"
#include "kernels/conv/conv.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/engine.h"

namespace backops {

// Some of a row's elements: number q is the one at first + q * stride, or zero where the row, of
// `size` elements, has none.
struct RowLine {
  std::int64_t first, stride, size;
};

// Rows of a tensor that are taken for one: `count` of them, of `size` elements each, follow each
// other in memory, or lie `stride_bytes` apart.
struct JoinedRows {
  std::int64_t count, size, stride_bytes;
};

// Rows are too short for calls: copies of a size that the compiler knows, the last of which
// overlaps the one before.
inline void copy_numbers(BFloat16* to, const char* from, std::int64_t count) {
  constexpr std::int64_t kBytes = sizeof(BFloat16), kPiece = 8;
  if (count < kPiece) {
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i, from + i * kBytes, kBytes);
    return;
  }
  const auto copy = [&](std::int64_t i) {
    std::memcpy(to + i, from + i * kBytes, kPiece * kBytes);
  };
  for (std::int64_t i = 0; i < count - kPiece; i += kPiece) copy(i);
  copy(count - kPiece);
}

// Where words go: those of numbers q and q + 1, for every `every`-th q from 0 on, one or two,
// `pitch` apart. Channels lie in blocks of a vector, `block_pitch` apart; if there is one word of
// all channels after the other, that is the width of a vector.
struct WordTarget {
  float* to;
  std::int64_t every, pitch, block_pitch;
};

// Rows of some channels, one after the other. Numbers wait in the order (channels, rows, numbers)
// until all are there, unless the channels of the tensor lie side by side already.
class RowWords {
 public:
  RowWords(const PairKernels& pairs, const ConvKernels& words, const Activation& tensor,
           const JoinedRows& joined, const Range& channels, std::int64_t numbers, std::int64_t rows,
           BFloat16* staged, const WordTarget& target)
      : pairs_(pairs),
        words_(words),
        tensor_(tensor),
        joined_(joined),
        follow_each_other_(joined.count == 1 ||
                           joined.stride_bytes == joined.size * tensor.stride_bytes[2]),
        channels_(channels),
        numbers_(numbers),
        rows_(rows),
        staged_(staged),
        target_(target),
        has_channels_inside_((follow_each_other_ || has_whole_words(joined, target)) &&
                             tensor.channel_stride_bytes == kBytes &&
                             tensor.stride_bytes[2] % kBytes == 0) {}

  // Numbers that wait of so many rows and channels: the last words end beyond the last row.
  static std::int64_t staged_size(std::int64_t channels, std::int64_t numbers, std::int64_t rows) {
    return channels * (numbers * rows + kBehind);
  }

  // One row of the tensor.
  void bring(std::int64_t image, std::int64_t d, std::int64_t h, const RowLine& line,
             std::int64_t row) const {
    const auto number_at = [&](std::int64_t element) {
      return std::clamp<std::int64_t>(ceil_divide(element - line.first, line.stride), 0, numbers_);
    };
    if (!follow_each_other_) {
      const char* const first = tensor_.at(image, channels_.begin, d, h, 0);
      return has_channels_inside_ ? pair_joined(first, row) : stage_joined(first, row);
    }
    const Range inside{number_at(0), std::max(number_at(0), number_at(line.size))};
    const char* const from = tensor_.at(image, channels_.begin, d, h, 0) +
                             (line.first + inside.begin * line.stride) * tensor_.stride_bytes[2];
    const std::int64_t step = line.stride * tensor_.stride_bytes[2];
    has_channels_inside_ ? pair(from, step, inside, row) : stage(from, step, inside, row);
  }
  // One of zeros.
  void clear(std::int64_t row) const {
    if (has_channels_inside_) return put_zeros(row, {0, numbers_});
    for (std::int64_t c = 0; c < channels(); ++c) {
      std::fill_n(staged_ + c * staged_pitch() + row * numbers_, numbers_, BFloat16{});
    }
  }
  // After all rows.
  void finish(PairMagnitudes& found) const {
    if (has_channels_inside_) return watch_words(found);
    for (std::int64_t c = 0; c < channels(); ++c) {
      std::fill_n(staged_ + c * staged_pitch() + rows_ * numbers_, kBehind, BFloat16{});
    }
    pairs_.watch({staged_, channels() * staged_pitch(), &found});
    // Pairs are moved as if they were float32 numbers.
    const std::int64_t parities = kPair / target_.every;
    for (std::int64_t odd = 0; odd < parities; ++odd) {
      words_.to_lanes({reinterpret_cast<char*>(staged_ + odd), staged_pitch() * kBytes,
                       sizeof(float), target_.to + odd * target_.pitch, parities * target_.pitch,
                       target_.block_pitch, channels(), rows_ * numbers_ / kPair});
    }
  }

 private:
  static constexpr std::int64_t kPair = 2, kBehind = 2, kBytes = sizeof(BFloat16);

  std::int64_t channels() const { return channels_.size(); }
  std::int64_t staged_pitch() const { return rows_ * numbers_ + kBehind; }

  void stage(const char* from, std::int64_t step, const Range& inside, std::int64_t row) const {
    for (std::int64_t c = 0; c < channels(); ++c, from += tensor_.channel_stride_bytes) {
      BFloat16* const to = staged_ + c * staged_pitch() + row * numbers_;
      std::fill_n(to, inside.begin, BFloat16{});
      if (step == kBytes) {
        copy_numbers(to + inside.begin, from, inside.size());
      } else {
        for (std::int64_t q = inside.begin; q < inside.end; ++q) {
          std::memcpy(to + q, from + (q - inside.begin) * step, sizeof(BFloat16));
        }
      }
      std::fill_n(to + inside.end, numbers_ - inside.end, BFloat16{});
    }
  }

  // All of a row, one of its rows after the other.
  void stage_joined(const char* first, std::int64_t row) const {
    const std::int64_t size = joined_.count * joined_.size, step = tensor_.stride_bytes[2];
    for (std::int64_t c = 0; c < channels(); ++c, first += tensor_.channel_stride_bytes) {
      BFloat16* to = staged_ + c * staged_pitch() + row * numbers_;
      const char* from = first;
      for (std::int64_t i = 0; i < joined_.count; ++i, from += joined_.stride_bytes) {
        for (std::int64_t q = 0; q < joined_.size; ++q) {
          std::memcpy(to++, from + q * step, sizeof(BFloat16));
        }
      }
      std::fill_n(to, numbers_ - size, BFloat16{});
    }
  }

  // No word has numbers of two of the rows.
  static bool has_whole_words(const JoinedRows& joined, const WordTarget& target) {
    return target.every == kPair && joined.size % kPair == 0 && joined.stride_bytes % kBytes == 0;
  }
  void pair_joined(const char* first, std::int64_t row) const {
    const std::int64_t words = joined_.size / kPair, step = tensor_.stride_bytes[2] / kBytes;
    for (std::int64_t i = 0; i < joined_.count; ++i, first += joined_.stride_bytes) {
      for_blocks([&](std::int64_t c, std::int64_t count, float* to) {
        pairs_.pair({reinterpret_cast<const BFloat16*>(first) + c, step, count,
                     to + row_at(row) + i * words * target_.pitch, words, kPair * step,
                     target_.pitch});
      });
    }
    put_zeros(row, {joined_.count * joined_.size, numbers_});
  }

  // Calls body(first channel, channels, words) for each block.
  template <class Body>
  void for_blocks(const Body& body) const {
    for (std::int64_t c = 0; c < channels(); c += words_.width) {
      body(c, std::min<std::int64_t>(words_.width, channels() - c),
           target_.to + c / words_.width * target_.block_pitch);
    }
  }
  std::int64_t row_at(std::int64_t row) const {
    return row * numbers_ / target_.every * target_.pitch;
  }

  // Words of a row: those before the first number, half of one, whole ones, half of one, the rest.
  void pair(const char* from, std::int64_t step, const Range& inside, std::int64_t row) const {
    if (inside.size() == 0) return put_zeros(row, {0, numbers_});
    const std::int64_t every = target_.every;
    const std::int64_t before = round_up(std::max<std::int64_t>(0, inside.begin - 1), every);
    const std::int64_t first = round_up(inside.begin, every);
    const std::int64_t whole =
        std::max<std::int64_t>(0, ceil_divide(inside.end - 1 - first, every));
    const std::int64_t behind = round_up(inside.end, every);
    const std::int64_t last = first + whole * every;
    put_zeros(row, {0, before});
    if (before < first) put_half(from, row, before, true);
    for_blocks([&](std::int64_t c, std::int64_t count, float* to) {
      pairs_.pair({reinterpret_cast<const BFloat16*>(from + (first - inside.begin) * step) + c,
                   step / kBytes, count, to + row_at(row) + first / every * target_.pitch, whole,
                   every * step / kBytes, target_.pitch});
    });
    if (last < behind && last >= inside.begin && last < inside.end) {
      put_half(from + (last - inside.begin) * step, row, last, false);
    }
    put_zeros(row, {behind, numbers_});
  }
  // The word of number q and the next, one of which is zero.
  void put_half(const char* from, std::int64_t row, std::int64_t q, bool is_second) const {
    for_blocks([&](std::int64_t c, std::int64_t count, float* to) {
      BFloat16 numbers[2 * kMostWidth] = {};
      std::memcpy(numbers + (is_second ? count : 0), from + c * kBytes,
                  static_cast<std::size_t>(count * kBytes));
      pairs_.pair(
          {numbers, count, count, to + row_at(row) + q / target_.every * target_.pitch, 1, 0, 0});
    });
  }
  // Of these numbers.
  void put_zeros(std::int64_t row, const Range& own) const {
    for_blocks([&](std::int64_t, std::int64_t count, float* to) {
      for (std::int64_t q = own.begin; q < own.end; q += target_.every) {
        std::fill_n(to + row_at(row) + q / target_.every * target_.pitch, count, 0.0f);
      }
    });
  }
  void watch_words(PairMagnitudes& found) const {
    const std::int64_t count = rows_ * numbers_ / target_.every;
    if (target_.pitch == channels()) {
      return pairs_.watch({target_.to, kPair * count * channels(), &found});
    }
    for_blocks([&](std::int64_t, std::int64_t channels, const float* words) {
      if (channels == target_.pitch) return pairs_.watch({words, kPair * count * channels, &found});
      for (std::int64_t i = 0; i < count; ++i) {
        pairs_.watch({words + i * target_.pitch, kPair * channels, &found});
      }
    });
  }

  const PairKernels& pairs_;
  const ConvKernels& words_;
  const Activation tensor_;
  const JoinedRows joined_;
  const bool follow_each_other_;
  const Range channels_;
  const std::int64_t numbers_, rows_;
  BFloat16* const staged_;
  const WordTarget target_;
  const bool has_channels_inside_;
};

}  // namespace backops

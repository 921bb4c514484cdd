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

// Numbers of rows that wait to become words: in the order (channels, rows, numbers), or, if the
// channels of the tensor lie side by side, (rows, numbers, channels).
class StagedRows {
 public:
  StagedRows(const Activation& tensor, const Range& channels, std::int64_t numbers,
             std::int64_t rows, BFloat16* memory)
      : tensor_(tensor),
        channels_(channels),
        numbers_(numbers),
        rows_(rows),
        memory_(memory),
        has_channels_inside_(tensor.channel_stride_bytes == sizeof(BFloat16)) {}

  // Numbers that this takes for so many rows and channels: the last words end beyond the last row.
  static std::int64_t size(std::int64_t channels, std::int64_t numbers, std::int64_t rows) {
    return channels * (numbers * rows + kBehind);
  }

  // One row of the tensor, or zeros.
  void bring(std::int64_t image, std::int64_t d, std::int64_t h, const RowLine& line,
             std::int64_t row) const {
    const Range inside{
        std::clamp<std::int64_t>(ceil_divide(-line.first, line.stride), 0, numbers_),
        std::clamp<std::int64_t>(ceil_divide(line.size - line.first, line.stride), 0, numbers_)};
    const char* const from = tensor_.at(image, channels_.begin, d, h, 0) +
                             (line.first + inside.begin * line.stride) * tensor_.stride_bytes[2];
    const std::int64_t step = line.stride * tensor_.stride_bytes[2];
    if (has_channels_inside_) {
      bring_positions(from, step, inside, row);
    } else {
      bring_channels(from, step, inside, row);
    }
  }
  void clear(std::int64_t row) const {
    if (has_channels_inside_) {
      std::fill_n(memory_ + row * numbers_ * channels(), numbers_ * channels(), BFloat16{});
      return;
    }
    for (std::int64_t c = 0; c < channels(); ++c) {
      std::fill_n(memory_ + c * pitch() + row * numbers_, numbers_, BFloat16{});
    }
  }
  // After all rows.
  void finish(const PairKernels& pairs, PairMagnitudes& found) const {
    if (has_channels_inside_) {
      std::fill_n(memory_ + rows_ * numbers_ * channels(), kBehind * channels(), BFloat16{});
    } else {
      for (std::int64_t c = 0; c < channels(); ++c) {
        std::fill_n(memory_ + c * pitch() + rows_ * numbers_, kBehind, BFloat16{});
      }
    }
    pairs.watch({memory_, channels() * pitch(), &found});
  }

  // Word q of a row is the pair of its numbers q and q + 1, at (row * numbers + q) * channels.
  void put_all(const PairKernels& pairs, const ConvKernels& words, float* to) const {
    if (has_channels_inside_) {
      pairs.pair({memory_, channels(), rows_ * numbers_ * channels(), to});
      return;
    }
    for (std::int64_t odd = 0; odd < kPair; ++odd) {
      transpose(words, memory_ + odd, to + odd * channels(), kPair * channels(), words.width);
    }
  }
  // Only every second word, in blocks of a vector of channels each, `block_pitch` apart.
  void put_blocks(const PairKernels& pairs, const ConvKernels& words, float* to,
                  std::int64_t block_pitch) const {
    const std::int64_t width = words.width;
    if (!has_channels_inside_) return transpose(words, memory_, to, width, block_pitch);
    for (std::int64_t word = 0; word < rows_ * numbers_ / kPair; ++word) {
      const BFloat16* const from = memory_ + kPair * word * channels();
      for (std::int64_t c = 0; c < channels(); c += width) {
        pairs.pair({from + c, channels(), std::min(width, channels() - c),
                    to + c / width * block_pitch + word * width});
      }
    }
  }

 private:
  static constexpr std::int64_t kPair = 2, kBehind = 2;

  std::int64_t channels() const { return channels_.size(); }
  std::int64_t pitch() const { return rows_ * numbers_ + kBehind; }

  void bring_positions(const char* from, std::int64_t step, const Range& inside,
                       std::int64_t row) const {
    BFloat16* const to = memory_ + row * numbers_ * channels();
    std::fill_n(to, inside.begin * channels(), BFloat16{});
    for (std::int64_t q = inside.begin; q < inside.end; ++q, from += step) {
      std::memcpy(to + q * channels(), from,
                  static_cast<std::size_t>(channels()) * sizeof(BFloat16));
    }
    const std::int64_t end = std::max(inside.begin, inside.end);
    std::fill_n(to + end * channels(), (numbers_ - end) * channels(), BFloat16{});
  }
  void bring_channels(const char* from, std::int64_t step, const Range& inside,
                      std::int64_t row) const {
    for (std::int64_t c = 0; c < channels(); ++c, from += tensor_.channel_stride_bytes) {
      BFloat16* const to = memory_ + c * pitch() + row * numbers_;
      std::fill_n(to, inside.begin, BFloat16{});
      if (step == sizeof(BFloat16) && inside.size() > 0) {
        std::memcpy(to + inside.begin, from,
                    static_cast<std::size_t>(inside.size()) * sizeof(BFloat16));
      } else {
        for (std::int64_t q = inside.begin; q < inside.end; ++q) {
          std::memcpy(to + q, from + (q - inside.begin) * step, sizeof(BFloat16));
        }
      }
      const std::int64_t end = std::max(inside.begin, inside.end);
      std::fill_n(to + end, numbers_ - end, BFloat16{});
    }
  }

  // Pairs are moved as if they were float32 numbers.
  void transpose(const ConvKernels& words, const BFloat16* from, float* to, std::int64_t word_pitch,
                 std::int64_t block_pitch) const {
    words.to_lanes({const_cast<char*>(reinterpret_cast<const char*>(from)),
                    pitch() * std::int64_t{sizeof(BFloat16)}, sizeof(float), to, word_pitch,
                    block_pitch, channels(), rows_ * numbers_ / kPair});
  }

  const Activation& tensor_;
  const Range channels_;
  const std::int64_t numbers_, rows_;
  BFloat16* const memory_;
  const bool has_channels_inside_;
};

}  // namespace backops

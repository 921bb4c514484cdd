// Between tensors and scratch memory that holds boxes of them in blocks of channels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "kernels/conv/conv.h"
#include "kernels/pool/pool.h"
#include "ops/block_tiles.h"
#include "ops/conv_engine.h"
#include "ops/dense_copy.h"

namespace backops {

template <class Sum>
class BlockCopy {
 public:
  BlockCopy(const ConvKernels& kernels, Rounding rounding, const PoolKernels& roundings)
      : kernels_(kernels), rounding_(rounding), roundings_(roundings), lanes_(kernels.lanes) {}

  // Brings the channels of a tensor that a box is about, rounded, into blocks that lie `pitch`
  // apart; zeros where the box reaches beyond the tensor. Memory is read in the order in which it
  // lies there.
  void bring(const Activation& tensor, const std::int64_t (&shape)[kMaxConvRank], const Box& box,
             const Range& channels, Sum* to, std::int64_t pitch) const {
    if (std::abs(tensor.stride_bytes[2]) >= std::abs(tensor.channel_stride_bytes)) {
      return bring_blocks(tensor, shape, box, channels, to, pitch);
    }
    for (std::int64_t c = channels.begin; c < channels.end; c += lanes_, to += pitch) {
      bring_blocks(tensor, shape, box, {c, std::min(c + lanes_, channels.end)}, to, pitch);
    }
  }

  // The other way. The box is inside the tensor.
  void put(const Activation& tensor, const std::int64_t (&shape)[kMaxConvRank], const Box& box,
           const Range& channels, Sum* from, std::int64_t pitch) const {
    const Box rows = joined_rows(tensor, shape, box);
    const Range& columns = rows.axes[2];
    if (columns.size() <= 0) return;
    for_rows(rows.images, rows.axes, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      kernels_.from_lanes({element(tensor, channels.begin, image, d, h, columns.begin),
                           tensor.channel_stride_bytes, tensor.stride_bytes[2],
                           from + rows.place(image, d, h, columns.begin) * lanes_, lanes_, pitch,
                           channels.size(), columns.size()});
    });
  }

  // Elements that lie `stride_bytes` apart, as sums side by side, and back.
  void bring_line(const char* elements, std::int64_t stride_bytes, std::int64_t count,
                  Sum* to) const {
    kernels_.to_lanes({const_cast<char*>(elements), stride_bytes, 0, to, 0, lanes_, count, 1});
    if constexpr (sizeof(Sum) == sizeof(float)) round_operands(to, count, rounding_, roundings_);
  }
  void put_line(char* elements, std::int64_t stride_bytes, std::int64_t count, Sum* from) const {
    kernels_.from_lanes({elements, stride_bytes, 0, from, 0, lanes_, count, 1});
  }

  static char* element(const Activation& tensor, std::int64_t channel, std::int64_t image,
                       std::int64_t d, std::int64_t h, std::int64_t w) {
    return tensor.data + image * tensor.image_stride_bytes + channel * tensor.channel_stride_bytes +
           d * tensor.stride_bytes[0] + h * tensor.stride_bytes[1] + w * tensor.stride_bytes[2];
  }

 private:
  void bring_blocks(const Activation& tensor, const std::int64_t (&shape)[kMaxConvRank],
                    const Box& box, const Range& channels, Sum* to, std::int64_t pitch) const {
    const Box rows = joined_rows(tensor, shape, box);
    const Range& columns = rows.axes[2];
    const std::int64_t end = box.axes[2].end <= shape[2] ? columns.end : shape[2];
    const Range inside{std::max<std::int64_t>(columns.begin, 0), end};
    const std::int64_t blocks = (channels.size() + lanes_ - 1) / lanes_;
    for_rows(rows.images, rows.axes, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      Sum* const row = to + rows.place(image, d, h, 0) * lanes_;
      const auto clear = [&](const Range& range) {
        if (range.size() <= 0) return;
        for (std::int64_t i = 0; i < blocks; ++i) {
          std::fill_n(row + i * pitch + range.begin * lanes_, range.size() * lanes_, Sum{0});
        }
      };
      if (d < 0 || d >= shape[0] || h < 0 || h >= shape[1] || inside.size() <= 0) {
        return clear(columns);
      }
      clear({columns.begin, inside.begin});
      clear({inside.end, columns.end});
      kernels_.to_lanes({element(tensor, channels.begin, image, d, h, inside.begin),
                         tensor.channel_stride_bytes, tensor.stride_bytes[2],
                         row + inside.begin * lanes_, lanes_, pitch, channels.size(),
                         inside.size()});
      if constexpr (sizeof(Sum) == sizeof(float)) {
        for (std::int64_t i = 0; i < blocks; ++i) {
          round_operands(row + i * pitch + inside.begin * lanes_, inside.size() * lanes_, rounding_,
                         roundings_);
        }
      }
    });
  }

  // The same box with one long row where rows follow each other without gaps, in the tensor as in
  // scratch memory.
  static Box joined_rows(const Activation& tensor, const std::int64_t (&shape)[kMaxConvRank],
                         const Box& box) {
    const Range &rows = box.axes[1], &columns = box.axes[2];
    const bool joins = rows.begin >= 0 && rows.end <= shape[1] && columns.begin >= 0 &&
                       columns.end <= shape[2] && box.step[1] == columns.size() &&
                       tensor.stride_bytes[1] == columns.size() * tensor.stride_bytes[2];
    if (!joins || rows.size() <= 1) return box;
    Box joined = box;
    joined.axes[1].end = rows.begin + 1;
    joined.axes[2].end = columns.begin + rows.size() * columns.size();
    return joined;
  }

  const ConvKernels& kernels_;
  const Rounding rounding_;
  const PoolKernels& roundings_;
  const std::int64_t lanes_;
};

}  // namespace backops

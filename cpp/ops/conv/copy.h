// Between the caller's tensors, of any strides and dtype, and scratch memory that holds boxes of
// them as sums, with the channels of a position in vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/conv/conv.h"
#include "kernels/convert/convert.h"
#include "ops/common/precision.h"
#include "ops/conv/axes.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

template <class Sum>
class TileCopy {
 public:
  TileCopy(const ConvKernels& kernels, Rounding rounding, const ConvertKernels& conversions)
      : kernels_(kernels),
        rounding_(rounding),
        conversions_(conversions),
        width_(kernels.width),
        vector_channels_(kernels.vector_channels) {}

  const ConvKernels& kernels() const { return kernels_; }

  // Brings the channels of a tensor that a box is about, rounded, into vectors that lie `pitch`
  // apart; zeros where the box reaches beyond the tensor. Memory is read in the order in which it
  // lies there.
  void bring(const Activation& tensor, const std::int64_t (&shape)[kMaxConvRank], const Box& box,
             const Range& channels, Sum* to, std::int64_t pitch) const {
    if (std::abs(tensor.stride_bytes[2]) >= std::abs(tensor.channel_stride_bytes)) {
      return bring_together(tensor, shape, box, channels, to, pitch);
    }
    for (std::int64_t c = channels.begin; c < channels.end; c += vector_channels_, to += pitch) {
      bring_together(tensor, shape, box, {c, std::min(c + vector_channels_, channels.end)}, to,
                     pitch);
    }
  }

  // The same for all planes of a tensor, which lie `plane_pitch` apart.
  void bring_planes(const OutputPlanes& planes, const Activation& tensor, const Box& box,
                    const Range& channels, Sum* to, std::int64_t pitch,
                    std::int64_t plane_pitch) const {
    const bool by_row = planes.have_whole_rows() &&
                        std::abs(tensor.stride_bytes[2]) < std::abs(tensor.channel_stride_bytes);
    for (std::int64_t plane = 0; plane < planes.count(); ++plane) {
      Sum* const own = to + plane * plane_pitch;
      if (!by_row) {
        bring(planes.view(tensor, plane), planes.shape(plane), box, channels, own, pitch);
      } else if (plane % planes.row_planes() == 0) {
        const Activation rows = planes.rows_view(tensor, plane);
        for (std::int64_t c = channels.begin, i = 0; c < channels.end; c += vector_channels_, ++i) {
          bring_rows(planes, plane, rows, box, {c, std::min(c + vector_channels_, channels.end)},
                     own + i * pitch, plane_pitch);
        }
      }
    }
  }

  // The other way. The box is inside the tensor. A bias, if it is not null, has a number for each
  // of the channels.
  void put(const Activation& tensor, const Box& box, const Range& channels, Sum* from,
           std::int64_t pitch, const Sum* bias) const {
    const Range &rows = box.axes[1], &columns = box.axes[2];
    if (columns.size() <= 0 || rows.size() <= 0) return;
    const bool joins = tensor.stride_bytes[1] == columns.size() * tensor.stride_bytes[2];
    const std::int64_t at_once = joins ? rows.size() : 1;
    const Range slices[] = {box.axes[0], {0, 1}, {0, 1}};
    for_rows(box.images, slices, [&](std::int64_t image, std::int64_t d, std::int64_t) {
      for (std::int64_t h = rows.begin; h < rows.end; h += at_once) {
        kernels_.from_lanes({tensor.at(image, channels.begin, d, h, columns.begin),
                             tensor.channel_stride_bytes, tensor.stride_bytes[2],
                             from + box.place(image, d, h, columns.begin) * width_, width_, pitch,
                             channels.size(), at_once * columns.size(), columns.size(),
                             (box.step[1] - columns.size()) * width_, bias});
      }
    });
  }

  // Is added, not multiplied, and so not rounded.
  void bring_bias(const Bias& bias, const Range& channels, Sum* to) const {
    char* const first = bias.data + channels.begin * bias.stride_bytes;
    kernels_.to_lanes({first, bias.stride_bytes, 0, to, 0, width_, channels.size(), 1});
  }

  // Elements that lie `stride_bytes` apart, as sums side by side, and back.
  void bring_line(const char* elements, std::int64_t stride_bytes, std::int64_t count,
                  Sum* to) const {
    kernels_.to_lanes({const_cast<char*>(elements), stride_bytes, 0, to, 0, width_, count, 1});
    round(to, count);
  }
  void put_line(char* elements, std::int64_t stride_bytes, std::int64_t count, Sum* from) const {
    kernels_.from_lanes({elements, stride_bytes, 0, from, 0, width_, count, 1});
  }

  // Whether rows of a channel are sums as they are.
  bool has_sums(const Activation& tensor) const {
    constexpr std::int64_t kBytes = sizeof(Sum);
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    return size_of(kernels_.dtype) == sizeof(Sum) && rounding_ == Rounding::none &&
           tensor.stride_bytes[2] == kBytes && tensor.channel_stride_bytes % kBytes == 0 &&
           tensor.image_stride_bytes % kBytes == 0 && tensor.stride_bytes[0] % kBytes == 0 &&
           tensor.stride_bytes[1] % kBytes == 0 && address % sizeof(Sum) == 0;
  }

  void round(Sum* values, std::int64_t count) const {
    if constexpr (sizeof(Sum) == sizeof(float)) {
      round_operands(values, count, rounding_, conversions_);
    }
  }

 private:
  void bring_together(const Activation& tensor, const std::int64_t (&shape)[kMaxConvRank],
                      const Box& box, const Range& channels, Sum* to, std::int64_t pitch) const {
    const Range inside = common(box.axes[2], {0, shape[2]});
    const Range rows = common(box.axes[1], {0, shape[1]});
    const Range slices[] = {box.axes[0], {0, 1}, {0, 1}};
    for_rows(box.images, slices, [&](std::int64_t image, std::int64_t d, std::int64_t) {
      const auto clear_rows = [&](const Range& some, const Range& columns) {
        clear(box, image, d, some, columns, ceil_divide(channels.size(), vector_channels_), to,
              pitch);
      };
      if (d < 0 || d >= shape[0] || inside.size() <= 0 || rows.size() <= 0) {
        return clear_rows(box.axes[1], box.axes[2]);
      }
      clear_rows({box.axes[1].begin, rows.begin}, box.axes[2]);
      clear_rows({rows.end, box.axes[1].end}, box.axes[2]);
      clear_rows(rows, {box.axes[2].begin, inside.begin});
      clear_rows(rows, {inside.end, box.axes[2].end});
      // Rows that follow each other in the tensor are brought together.
      const bool joins = tensor.stride_bytes[1] == inside.size() * tensor.stride_bytes[2];
      const std::int64_t at_once = joins ? rows.size() : 1;
      for (std::int64_t h = rows.begin; h < rows.end; h += at_once) {
        Sum* const first = to + box.place(image, d, h, inside.begin) * width_;
        kernels_.to_lanes({tensor.at(image, channels.begin, d, h, inside.begin),
                           tensor.channel_stride_bytes, tensor.stride_bytes[2], first, width_,
                           pitch, channels.size(), at_once * inside.size(), inside.size(),
                           (box.step[1] - inside.size()) * width_});
      }
      if (rounding_ != Rounding::none) {
        round_rows(box, image, d, rows, inside, ceil_divide(channels.size(), width_), to, pitch);
      }
    });
  }

  // Rows of a vector of channels, whose columns belong to the planes from `first` on in turn.
  void bring_rows(const OutputPlanes& planes, std::int64_t first, const Activation& tensor,
                  const Box& box, const Range& channels, Sum* to, std::int64_t plane_pitch) const {
    const std::int64_t stride = planes.row_planes();
    const Range rows = common(box.axes[1], {0, planes.shape(first)[1]});
    const Range steps = common(box.axes[2], {0, planes.shape(first)[2]});
    const std::int64_t begin = steps.begin * stride;
    const std::int64_t count = std::min(steps.end * stride, planes.columns()) - begin;
    const Range slices[] = {box.axes[0], {0, 1}, {0, 1}};
    for_rows(box.images, slices, [&](std::int64_t image, std::int64_t d, std::int64_t) {
      const bool is_there = d >= 0 && d < planes.shape(first)[0] && count > 0 && rows.size() > 0;
      for (std::int64_t r = 0; r < stride; ++r) {
        const Range inside = common(box.axes[2], {0, planes.shape(first + r)[2]});
        clear_around(box, image, d, is_there ? rows : Range{0, 0}, inside, to + r * plane_pitch);
      }
      for (std::int64_t h = rows.begin; is_there && h < rows.end; ++h) {
        Sum* const own = to + box.place(image, d, h, steps.begin) * width_;
        kernels_.to_lanes({tensor.at(image, channels.begin, d, h, begin),
                           tensor.channel_stride_bytes, tensor.stride_bytes[2], own, plane_pitch, 0,
                           channels.size(), count, stride, width_ - stride * plane_pitch});
        for (std::int64_t r = 0; r < stride && rounding_ != Rounding::none; ++r) {
          round(own + r * plane_pitch, ceil_divide(count - r, stride) * width_);
        }
      }
    });
  }

  // All but these rows and columns of a slice of one vector.
  void clear_around(const Box& box, std::int64_t image, std::int64_t d, const Range& rows,
                    const Range& inside, Sum* to) const {
    if (rows.size() <= 0 || inside.size() <= 0) {
      return clear(box, image, d, box.axes[1], box.axes[2], 1, to, 0);
    }
    clear(box, image, d, {box.axes[1].begin, rows.begin}, box.axes[2], 1, to, 0);
    clear(box, image, d, {rows.end, box.axes[1].end}, box.axes[2], 1, to, 0);
    clear(box, image, d, rows, {box.axes[2].begin, inside.begin}, 1, to, 0);
    clear(box, image, d, rows, {inside.end, box.axes[2].end}, 1, to, 0);
  }

  // Columns of some rows of all vectors.
  template <class Body>
  void for_columns(const Box& box, std::int64_t image, std::int64_t d, const Range& rows,
                   const Range& columns, std::int64_t vectors, Sum* to, std::int64_t pitch,
                   const Body& body) const {
    if (columns.size() <= 0) return;
    for (std::int64_t i = 0; i < vectors; ++i) {
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        body(to + i * pitch + box.place(image, d, h, columns.begin) * width_,
             columns.size() * width_);
      }
    }
  }
  void clear(const Box& box, std::int64_t image, std::int64_t d, const Range& rows,
             const Range& columns, std::int64_t vectors, Sum* to, std::int64_t pitch) const {
    for_columns(box, image, d, rows, columns, vectors, to, pitch,
                [](Sum* at, std::int64_t count) { std::fill_n(at, count, Sum{0}); });
  }
  void round_rows(const Box& box, std::int64_t image, std::int64_t d, const Range& rows,
                  const Range& columns, std::int64_t vectors, Sum* to, std::int64_t pitch) const {
    for_columns(box, image, d, rows, columns, vectors, to, pitch,
                [this](Sum* at, std::int64_t count) { round(at, count); });
  }

  const ConvKernels& kernels_;
  const Rounding rounding_;
  const ConvertKernels& conversions_;
  const std::int64_t width_, vector_channels_;
};

// A row of an image.
struct TensorRow {
  std::int64_t image, d, h;
};

// Between the elements of a row that has the channels innermost already; 0 for others.
inline std::int64_t line_stride(const Activation& tensor, std::int64_t channels) {
  if (channels == 1) return tensor.stride_bytes[2];
  const std::int64_t stride = tensor.channel_stride_bytes;
  return tensor.stride_bytes[2] == channels * stride ? stride : 0;
}

// Of sums, that copying a row needs.
constexpr std::int64_t kRowSpareSums = 1024;

// Rows that have their channels innermost, for few channels.
template <class Sum>
class ChannelRows {
 public:
  static constexpr std::int64_t kSpareSums = kRowSpareSums;

  ChannelRows(const TileCopy<Sum>& copy, std::int64_t channels)
      : copy_(copy), channels_(channels) {}

  // `rows` of them, whose sums lie `pitch` apart.
  void bring_rows(const Activation& tensor, const TensorRow& first, std::int64_t rows,
                  const Range& columns, Sum* to, std::int64_t pitch, Sum* spare) const {
    const std::int64_t line = columns.size() * tensor.stride_bytes[2];
    if (channels_ > kFewChannels && line > 0 && line == tensor.stride_bytes[1] &&
        line_stride(tensor, channels_) == 0) {
      return transpose(tensor, tensor.at(first.image, 0, first.d, first.h, columns.begin), rows,
                       columns.size(), to, pitch);
    }
    TensorRow row = first;
    for (std::int64_t i = 0; i < rows; ++i, ++row.h, to += pitch) {
      bring(tensor, row, columns, to, spare);
    }
  }

  void bring(const Activation& tensor, const TensorRow& row, const Range& columns, Sum* to,
             Sum* spare) const {
    if (columns.size() <= 0) return;
    if (const std::int64_t stride = line_stride(tensor, channels_)) {
      return copy_.bring_line(tensor.at(row.image, 0, row.d, row.h, columns.begin), stride,
                              columns.size() * channels_, to);
    }
    const char* const first = tensor.at(row.image, 0, row.d, row.h, columns.begin);
    if (channels_ > kFewChannels) return transpose(tensor, first, 1, columns.size(), to, 0);
    if (copy_.has_sums(tensor)) {
      return copy_.kernels().interleave({first,
                                         tensor.channel_stride_bytes / std::int64_t{sizeof(Sum)},
                                         channels_, columns.size(), to});
    }
    const std::int64_t at_once = std::max<std::int64_t>(1, kSpareSums / channels_);
    for (std::int64_t column = columns.begin; column < columns.end; column += at_once) {
      const std::int64_t count = std::min(columns.end - column, at_once);
      for (std::int64_t channel = 0; channel < channels_; ++channel) {
        copy_.bring_line(tensor.at(row.image, channel, row.d, row.h, column),
                         tensor.stride_bytes[2], count, spare + channel * at_once);
      }
      copy_.kernels().interleave(
          {spare, at_once, channels_, count, to + (column - columns.begin) * channels_});
    }
  }

 private:
  static constexpr std::int64_t kFewChannels = 4;  // which kernels interleave in vectors

  // Rows that follow each other in the tensor.
  void transpose(const Activation& tensor, const char* elements, std::int64_t rows,
                 std::int64_t columns, Sum* to, std::int64_t pitch) const {
    copy_.kernels().to_lanes({const_cast<char*>(elements), tensor.channel_stride_bytes,
                              tensor.stride_bytes[2], to, channels_, copy_.kernels().width,
                              channels_, rows * columns, columns, pitch - columns * channels_});
    for (std::int64_t i = 0; i < rows; ++i) copy_.round(to + i * pitch, columns * channels_);
  }

  const TileCopy<Sum>& copy_;
  const std::int64_t channels_;
};

// The same rows of bfloat16 numbers as they are.
template <class Sum>
class ElementRows {
 public:
  ElementRows(const TileCopy<Sum>&, std::int64_t channels) : channels_(channels) {}

  void bring_rows(const Activation& tensor, const TensorRow& first, std::int64_t rows,
                  const Range& columns, BFloat16* to, std::int64_t pitch, Sum* spare) const {
    TensorRow row = first;
    for (std::int64_t i = 0; i < rows; ++i, ++row.h, to += pitch) {
      bring(tensor, row, columns, to, spare);
    }
  }

  void bring(const Activation& tensor, const TensorRow& row, const Range& columns, BFloat16* to,
             Sum*) const {
    if (columns.size() <= 0) return;
    const char* const from = tensor.at(row.image, 0, row.d, row.h, columns.begin);
    if (line_stride(tensor, channels_) == sizeof(BFloat16)) {
      std::memcpy(to, from, static_cast<std::size_t>(columns.size() * channels_) * sizeof *to);
      return;
    }
    for (std::int64_t c = 0; c < channels_; ++c) {
      const char* const own = from + c * tensor.channel_stride_bytes;
      for (std::int64_t i = 0; i < columns.size(); ++i) {
        std::memcpy(to + i * channels_ + c, own + i * tensor.stride_bytes[2], sizeof *to);
      }
    }
  }

 private:
  const std::int64_t channels_;
};

// The same for weights. Their sums are rows of taps, of vectors along inputs or along outputs.
template <class Sum>
class WeightCopy {
 public:
  WeightCopy(const ConvShape& shape, const TileCopy<Sum>& copy)
      : kernel_{shape.kernel[0], shape.kernel[1], shape.kernel[2]},
        taps_(shape.taps()),
        copy_(copy),
        width_(copy.kernels().width) {}

  // All taps of some channels, from `elements` on and `channel_stride` apart. Those of a tap lie
  // `tap_pitch` behind those of the one before, and are not rounded yet.
  void bring(const Weights& weight, const char* elements, std::int64_t channel_stride,
             std::int64_t channels, Sum* to, std::int64_t tap_pitch) const {
    for_tap_rows(weight, [&](std::int64_t first, std::int64_t taps, std::int64_t offset,
                             std::int64_t stride) {
      copy_.kernels().to_lanes({const_cast<char*>(elements) + offset, channel_stride, stride,
                                to + first * tap_pitch, tap_pitch, width_, channels, taps});
    });
  }

  // The same for several outputs, whose sums lie `output_pitch` apart. At once, if their taps
  // follow each other.
  void bring_outputs(const Weights& weight, const char* elements, std::int64_t channel_stride,
                     std::int64_t channels, std::int64_t outputs, Sum* to,
                     std::int64_t output_pitch, std::int64_t tap_pitch) const {
    const std::int64_t stride = weight.output_stride_bytes;
    bool done = false;
    for_tap_rows(weight, [&](std::int64_t, std::int64_t taps, std::int64_t, std::int64_t own) {
      if (taps != taps_ || taps * own != stride) return;
      copy_.kernels().to_lanes({const_cast<char*>(elements), channel_stride, own, to, tap_pitch,
                                width_, channels, outputs * taps, taps,
                                output_pitch - taps * tap_pitch});
      done = true;
    });
    for (std::int64_t o = 0; o < outputs && !done; ++o) {
      bring(weight, elements + o * stride, channel_stride, channels, to + o * output_pitch,
            tap_pitch);
    }
  }

  // The same for rows of channels, `row_stride` apart, of kernels of one tap: those of a row lie
  // `row_pitch` behind those of the one before.
  void bring_rows(const char* elements, std::int64_t row_stride, std::int64_t rows,
                  std::int64_t channel_stride, std::int64_t channels, Sum* to,
                  std::int64_t row_pitch) const {
    copy_.kernels().to_lanes({const_cast<char*>(elements), channel_stride, row_stride, to,
                              row_pitch, width_, channels, rows});
  }

  // Writes sums (rows, taps, channels of `width` together): `row_stride` between rows.
  struct Rows {
    char* elements;
    std::int64_t row_stride, channel_stride, rows, channels;
    Sum* from;
    std::int64_t width;
  };
  void put(const Weights& weight, const Rows& r) const {
    const auto put_some = [&](std::int64_t offset, std::int64_t stride, std::int64_t at,
                              std::int64_t pitch, std::int64_t count) {
      copy_.kernels().from_lanes({r.elements + offset, r.channel_stride, stride,
                                  r.from + at * r.width, pitch * r.width, width_, r.channels,
                                  count});
    };
    if (taps_ == 1) return put_some(0, r.row_stride, 0, 1, r.rows);
    for_tap_rows(weight, [&](std::int64_t first, std::int64_t taps, std::int64_t offset,
                             std::int64_t stride) {
      if (taps == taps_ && r.row_stride == taps * stride) {
        return put_some(0, stride, 0, 1, r.rows * taps);
      }
      if (std::abs(r.row_stride) < std::abs(stride)) {
        for (std::int64_t i = 0; i < taps; ++i) {
          put_some(offset + i * stride, r.row_stride, first + i, taps_, r.rows);
        }
        return;
      }
      for (std::int64_t row = 0; row < r.rows; ++row) {
        put_some(offset + row * r.row_stride, stride, row * taps_ + first, 1, taps);
      }
    });
  }

 private:
  // Calls body(first tap, taps, offset, stride in bytes): once, if all taps are as far apart.
  template <class Body>
  void for_tap_rows(const Weights& weight, const Body& body) const {
    const std::int64_t* const stride = weight.stride_bytes;
    int inner = kMaxConvRank - 1;  // the last axis that has taps
    while (inner > 0 && kernel_[inner] == 1) --inner;
    std::int64_t run = kernel_[inner];
    int outer = inner - 1;  // the last one that is not part of a run
    for (; outer >= 0 && (kernel_[outer] == 1 || stride[outer] == run * stride[inner]); --outer) {
      run *= kernel_[outer];
    }
    const std::int64_t slices = outer >= 0 ? kernel_[0] : 1, rows = outer >= 1 ? kernel_[1] : 1;
    for (std::int64_t d = 0; d < slices; ++d) {
      for (std::int64_t h = 0; h < rows; ++h) {
        body((d * rows + h) * run, run, d * stride[0] + (rows > 1 ? h * stride[1] : 0),
             stride[inner]);
      }
    }
  }

  const std::int64_t kernel_[kMaxConvRank];
  const std::int64_t taps_;
  const TileCopy<Sum>& copy_;
  const std::int64_t width_;
};

}  // namespace backops

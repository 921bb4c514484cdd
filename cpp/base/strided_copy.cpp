#include "base/strided_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/announce.h"

namespace backops {
namespace {

// Axes that follow each other without a gap on both sides become one: it is copied in fewer and
// longer pieces.
void join_axes(StridedBlock& block) {
  StridedBlock joined{{1, 1, 1, 1}, {}, {}};
  int to = kCopyDims;  // the axis written last
  for (int axis = kCopyDims - 1; axis >= 0; --axis) {
    const std::int64_t size = block.shape[axis];
    if (size == 1) continue;
    if (to < kCopyDims &&
        block.target_stride_bytes[axis] == joined.target_stride_bytes[to] * joined.shape[to] &&
        block.source_stride_bytes[axis] == joined.source_stride_bytes[to] * joined.shape[to]) {
      joined.shape[to] *= size;
      continue;
    }
    --to;
    joined.shape[to] = size;
    joined.target_stride_bytes[to] = block.target_stride_bytes[axis];
    joined.source_stride_bytes[to] = block.source_stride_bytes[axis];
  }
  block = joined;
}

void move_axis_innermost(StridedBlock& block, int axis) {
  for (int i = axis; i + 1 < kCopyDims; ++i) {
    std::swap(block.shape[i], block.shape[i + 1]);
    std::swap(block.target_stride_bytes[i], block.target_stride_bytes[i + 1]);
    std::swap(block.source_stride_bytes[i], block.source_stride_bytes[i + 1]);
  }
}

int smallest_stride_axis(const StridedBlock& block, bool by_target) {
  const std::int64_t* const strides =
      by_target ? block.target_stride_bytes : block.source_stride_bytes;
  int best = kCopyDims - 1;
  for (int i = 0; i < kCopyDims; ++i) {
    const bool better = block.shape[best] == 1 || std::abs(strides[i]) < std::abs(strides[best]);
    if (block.shape[i] > 1 && better) best = i;
  }
  return best;
}

int contiguous_axis(const StridedBlock& block, const std::int64_t* strides, int element_bytes) {
  for (int axis = 0; axis < kCopyDims; ++axis) {
    if (block.shape[axis] > 1 && strides[axis] == element_bytes) return axis;
  }
  return -1;
}

// Elements at any address, of any type.
template <class E>
using Loose __attribute__((aligned(1), may_alias)) = E;

template <int kBytes>
using ElementOf = std::conditional_t<kBytes == 2, std::uint16_t,
                                     std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>;

// Steps known to the compiler, in elements: it makes vector code of them.
template <int kBytes, int kTargetStep, int kSourceStep>
void copy_steps(char* target, const char* source, std::int64_t count) {
  auto* const to = reinterpret_cast<Loose<ElementOf<kBytes>>*>(target);
  const auto* const from = reinterpret_cast<const Loose<ElementOf<kBytes>>*>(source);
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::int64_t i = 0; i < count; ++i) to[i * kTargetStep] = from[i * kSourceStep];
}

template <int kBytes>
void copy_row(char* target, const char* source, std::int64_t count, std::int64_t target_step,
              std::int64_t source_step) {
  const auto steps = [&](std::int64_t to, std::int64_t from) {
    return target_step == to * kBytes && source_step == from * kBytes;
  };
  if (steps(1, 1)) {
    std::memcpy(target, source, static_cast<std::size_t>(count) * kBytes);
  } else if (steps(-1, 1)) {  // backwards along both is forwards from the other end
    copy_steps<kBytes, 1, -1>(target - (count - 1) * kBytes, source + (count - 1) * kBytes, count);
  } else if (steps(1, -1)) {
    copy_steps<kBytes, 1, -1>(target, source, count);
  } else if (steps(1, 2)) {
    copy_steps<kBytes, 1, 2>(target, source, count);
  } else if (steps(2, 1)) {
    copy_steps<kBytes, 2, 1>(target, source, count);
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(target + i * target_step, source + i * source_step, kBytes);
    }
  }
}

template <class E, int kSide>
using Vector __attribute__((vector_size(kSide * sizeof(E)))) = E;

// The first, or the last, halves of a and b, element by element in turn.
inline Vector<std::uint32_t, 4> low(Vector<std::uint32_t, 4> a, Vector<std::uint32_t, 4> b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
inline Vector<std::uint32_t, 4> high(Vector<std::uint32_t, 4> a, Vector<std::uint32_t, 4> b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
inline Vector<std::uint16_t, 8> low(Vector<std::uint16_t, 8> a, Vector<std::uint16_t, 8> b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline Vector<std::uint16_t, 8> high(Vector<std::uint16_t, 8> a, Vector<std::uint16_t, 8> b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Square blocks of kSide x kSide elements, 16 bytes a side: source rows become target columns.
template <class E>
void transpose_square(char* target, std::int64_t target_pitch, const char* source,
                      std::int64_t source_pitch) {
  constexpr int kSide = 16 / sizeof(E);
  Vector<E, kSide> rows[kSide], other[kSide];
  for (int i = 0; i < kSide; ++i) std::memcpy(&rows[i], source + i * source_pitch, 16);
  for (int round = 1; round < kSide; round *= 2) {  // interleaving often enough transposes
    for (int i = 0; i < kSide / 2; ++i) {
      other[2 * i] = low(rows[i], rows[i + kSide / 2]);
      other[2 * i + 1] = high(rows[i], rows[i + kSide / 2]);
    }
    for (int i = 0; i < kSide; ++i) rows[i] = other[i];
  }
  for (int i = 0; i < kSide; ++i) std::memcpy(target + i * target_pitch, &rows[i], 16);
}

// Asks for the rows of a target, `pitch` bytes apart, that are written next.
class RowsAhead {
 public:
  RowsAhead(std::int64_t pitch, std::int64_t count, std::int64_t step)
      : bytes_((count - 1) * std::abs(step)),
        distance_(std::max<std::int64_t>(kBytesAhead / (bytes_ + kLine), 1) * pitch +
                  (step < 0 ? (count - 1) * step : 0)) {}

  void announce(const char* row) const {
    for (std::int64_t at = 0; at < bytes_ + kLine; at += kLine) {
      announce_writing(row, distance_ + at);
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  std::int64_t bytes_, distance_;
};

// target[r][c] = source[c][r]
template <class E>
void transpose(char* target, std::int64_t target_pitch, const char* source,
               std::int64_t source_pitch, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kSide = 16 / sizeof(E), kBytes = sizeof(E);
  const std::int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
  const RowsAhead ahead(target_pitch, columns, kBytes);
  for (std::int64_t r = 0; r < whole_rows; r += kSide) {
    for (std::int64_t own = r; own < r + kSide; ++own) {
      ahead.announce(target + own * target_pitch);
    }
    for (std::int64_t c = 0; c < whole_columns; c += kSide) {
      transpose_square<E>(target + r * target_pitch + c * kBytes, target_pitch,
                          source + c * source_pitch + r * kBytes, source_pitch);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t done = r < whole_rows ? whole_columns : 0;
    copy_row<kBytes>(target + r * target_pitch + done * kBytes,
                     source + done * source_pitch + r * kBytes, columns - done, kBytes,
                     source_pitch);
  }
}

template <int kBytes>
void copy_block(char* target, const char* source, const StridedBlock& b) {
  const auto* t = b.target_stride_bytes;
  const auto* s = b.source_stride_bytes;
  const bool transposed = t[3] == kBytes && s[2] == kBytes && b.shape[2] > 1;
  const RowsAhead ahead(t[2], b.shape[3], t[3]);
  for (std::int64_t i = 0; i < b.shape[0]; ++i) {
    for (std::int64_t j = 0; j < b.shape[1]; ++j) {
      char* const to = target + i * t[0] + j * t[1];
      const char* const from = source + i * s[0] + j * s[1];
      if constexpr (kBytes < 8) {
        if (transposed) {
          transpose<ElementOf<kBytes>>(to, t[2], from, s[3], b.shape[2], b.shape[3]);
          continue;
        }
      }
      for (std::int64_t k = 0; k < b.shape[2]; ++k) {
        if (b.shape[2] > 1) ahead.announce(to + k * t[2]);
        copy_row<kBytes>(to + k * t[2], from + k * s[2], b.shape[3], t[3], s[3]);
      }
    }
  }
}

}  // namespace

void strided_copy(char* target, const char* source, StridedBlock block, int element_bytes,
                  bool by_target) {
  join_axes(block);
  const int to = contiguous_axis(block, block.target_stride_bytes, element_bytes);
  const int from = contiguous_axis(block, block.source_stride_bytes, element_bytes);
  if (to >= 0 && from >= 0 && to != from) {  // to be transposed
    move_axis_innermost(block, from);
    move_axis_innermost(block, to > from ? to - 1 : to);
  } else {
    move_axis_innermost(block, smallest_stride_axis(block, by_target));
  }
  switch (element_bytes) {
    case 2: return copy_block<2>(target, source, block);
    case 4: return copy_block<4>(target, source, block);
    default: return copy_block<8>(target, source, block);
  }
}

}  // namespace backops

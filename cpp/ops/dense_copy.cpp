#include "ops/dense_copy.h"

#include <algorithm>
#include <utility>

#include "base/strided_copy.h"

namespace backops {
namespace {

constexpr int kAxes = DenseAxes::kItemAxes;
static_assert(kAxes == kCopyDims, "a tile is one strided copy");

// Elements in, sums out, or the other way, one after the other.
void convert(const PoolKernels& kernels, bool to_sums, const char* from, char* to,
             std::int64_t count) {
  static constexpr Run kOnce{0, 1, 0, 1};
  static constexpr std::int64_t kNoOffset = 0;
  CombineArgs args{};
  args.planes = 1;
  args.source_offsets = args.target_offsets = &kNoOffset;
  args.source = from;
  args.target = to;
  args.runs = &kOnce;
  args.run_count = 1;
  args.scale = 1;
  args.columns = count;
  args.block = 1;
  args.axis_rows = 1;
  (to_sums ? kernels.combine_source : kernels.combine_target)(args);
}

struct Tile {
  StridedBlock block;   // between the tensor and the tile, which is dense
  std::int64_t tensor;  // where the tile starts, in bytes
  std::int64_t dense;   // the same in the dense item, in elements
  std::int64_t elements;
};

// Cuts an item into tiles that are contiguous in the dense array and no larger than the scratch
// memory: whole inner axes, then part of one axis, then one index of each outer axis.
template <class Body>
void for_tiles(const DenseAxes& axes, std::int64_t most_elements, std::int64_t element_bytes,
               const Body& body) {
  std::int64_t size[kAxes], inner = 1;
  int cut = kAxes;
  for (int axis = kAxes - 1; axis >= 0; --axis) {
    const bool fits = cut == kAxes && inner * axes.shape[axis] <= most_elements;
    size[axis] = fits ? axes.shape[axis] : cut == kAxes ? most_elements / inner : 1;
    if (!fits && cut == kAxes) cut = axis;
    inner *= size[axis];
  }
  std::int64_t at[kAxes];
  for (at[0] = 0; at[0] < axes.shape[0]; at[0] += size[0]) {
    for (at[1] = 0; at[1] < axes.shape[1]; at[1] += size[1]) {
      for (at[2] = 0; at[2] < axes.shape[2]; at[2] += size[2]) {
        for (at[3] = 0; at[3] < axes.shape[3]; at[3] += size[3]) {
          Tile tile{};
          tile.elements = 1;
          std::int64_t dense_stride = 1;
          for (int axis = kAxes - 1; axis >= 0; --axis) {
            const std::int64_t here = std::min(size[axis], axes.shape[axis] - at[axis]);
            tile.block.shape[axis] = here;
            tile.block.source_stride_bytes[axis] = axes.stride_bytes[axis];
            tile.block.target_stride_bytes[axis] = tile.elements * element_bytes;
            tile.elements *= here;
            tile.tensor += at[axis] * axes.stride_bytes[axis];
            tile.dense += at[axis] * dense_stride;
            dense_stride *= axes.shape[axis];
          }
          body(tile);
        }
      }
    }
  }
}

StridedBlock reversed(StridedBlock block) {
  std::swap(block.source_stride_bytes, block.target_stride_bytes);
  return block;
}

}  // namespace

bool DenseAxes::is_dense(std::int64_t element_bytes) const {
  std::int64_t expected = element_bytes;
  for (int axis = kItemAxes - 1; axis >= 0; --axis) {
    if (shape[axis] > 1 && stride_bytes[axis] != expected) return false;
    expected *= shape[axis];
  }
  return items <= 1 || item_stride_bytes == expected;
}

void DenseAxes::merge() {
  std::int64_t merged_shape[kItemAxes], merged_stride[kItemAxes];
  int count = 0;
  for (int axis = 0; axis < kItemAxes; ++axis) {
    if (shape[axis] == 1) continue;
    if (count > 0 && merged_stride[count - 1] == shape[axis] * stride_bytes[axis]) {
      merged_shape[count - 1] *= shape[axis];
    } else {
      merged_shape[count++] = shape[axis];
    }
    merged_stride[count - 1] = stride_bytes[axis];
  }
  const int ones = kItemAxes - count;
  std::fill(shape, shape + ones, std::int64_t{1});
  std::fill(stride_bytes, stride_bytes + ones, std::int64_t{0});
  std::copy(merged_shape, merged_shape + count, shape + ones);
  std::copy(merged_stride, merged_stride + count, stride_bytes + ones);
}

void copy_to_dense(const DenseAxes& axes, const char* tensor, std::int64_t item, void* dense_item,
                   const PoolKernels& kernels, char* scratch) {
  const std::int64_t element = static_cast<std::int64_t>(size_of(kernels.dtype));
  const char* const from = tensor + item * axes.item_stride_bytes;
  char* const dense = static_cast<char*>(dense_item);
  if (element >= 4) {
    return for_tiles(axes, axes.item_elements(), element, [&](const Tile& tile) {
      strided_copy(dense, from, tile.block, static_cast<int>(element), false);
    });
  }
  for_tiles(
      axes, static_cast<std::int64_t>(kDenseCopyBytes) / element, element, [&](const Tile& tile) {
        strided_copy(scratch, from + tile.tensor, tile.block, static_cast<int>(element), false);
        convert(kernels, true, scratch, dense + tile.dense * 4, tile.elements);
      });
}

void copy_from_dense(const DenseAxes& axes, char* tensor, std::int64_t item, const void* dense_item,
                     const PoolKernels& kernels, char* scratch) {
  const std::int64_t element = static_cast<std::int64_t>(size_of(kernels.dtype));
  char* const to = tensor + item * axes.item_stride_bytes;
  const char* const dense = static_cast<const char*>(dense_item);
  if (element >= 4) {
    return for_tiles(axes, axes.item_elements(), element, [&](const Tile& tile) {
      strided_copy(to, dense, reversed(tile.block), static_cast<int>(element), true);
    });
  }
  for_tiles(axes, static_cast<std::int64_t>(kDenseCopyBytes) / element, element,
            [&](const Tile& tile) {
              convert(kernels, false, dense + tile.dense * 4, scratch, tile.elements);
              strided_copy(to + tile.tensor, scratch, reversed(tile.block),
                           static_cast<int>(element), true);
            });
}

void round_operands(float* values, std::int64_t count, Rounding rounding,
                    const PoolKernels& kernels) {
  switch (rounding) {
    case Rounding::none: return;
    case Rounding::float16: return kernels.round_to_float16(values, count);
    case Rounding::hf32_11: return round_to_hf32(values, count, 11);
    case Rounding::hf32_10: return round_to_hf32(values, count, 10);
  }
}

}  // namespace backops

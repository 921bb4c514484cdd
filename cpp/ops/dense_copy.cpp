#include "ops/dense_copy.h"

#include <algorithm>

namespace backops {
namespace {

constexpr int kAxes = DenseAxes::kAxes;
constexpr std::int64_t kPieceElements = 16384;

// Neighbouring axes that lie one after the other become one: longer loops.
DenseAxes merged(const DenseAxes& axes) {
  std::int64_t shape[kAxes], stride[kAxes];
  int count = 0;
  for (int axis = 0; axis < kAxes; ++axis) {
    if (axes.shape[axis] == 1) continue;
    const std::int64_t whole = axes.shape[axis] * axes.stride_bytes[axis];
    if (count > 0 && stride[count - 1] == whole) {
      shape[count - 1] *= axes.shape[axis];
    } else {
      shape[count++] = axes.shape[axis];
    }
    stride[count - 1] = axes.stride_bytes[axis];
  }
  DenseAxes result{};
  const int ones = kAxes - count;
  std::fill(result.shape, result.shape + ones, std::int64_t{1});
  std::copy(shape, shape + count, result.shape + ones);
  std::copy(stride, stride + count, result.stride_bytes + ones);
  return result;
}

}  // namespace

bool DenseAxes::is_dense(std::int64_t element_bytes) const {
  std::int64_t expected = element_bytes;
  for (int axis = kAxes - 1; axis >= 0; --axis) {
    if (shape[axis] > 1 && stride_bytes[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

DenseCopy::DenseCopy(const DenseAxes& axes) : axes_(merged(axes)) {
  cut_axis_ = axes_.shape[3] > 1 ? 3 : 4;
  const std::int64_t inner = cut_axis_ == 3 ? axes_.shape[4] : 1;
  slice_ = std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, inner));
  slices_ = (axes_.shape[cut_axis_] + slice_ - 1) / slice_;
}

LaneCopy DenseCopy::lanes_of(std::int64_t piece, const char* tensor, const char* dense,
                             const ConvKernels& kernels) const {
  std::int64_t at[kAxes] = {};
  at[cut_axis_] = piece % slices_ * slice_;
  std::int64_t outer = piece / slices_;
  for (int axis = 2; axis >= 0; --axis) {
    at[axis] = outer % axes_.shape[axis];
    outer /= axes_.shape[axis];
  }
  std::int64_t sums = 0;
  for (int axis = 0; axis < kAxes; ++axis) {
    sums = sums * axes_.shape[axis] + at[axis];
    tensor += at[axis] * axes_.stride_bytes[axis];
  }
  const auto extent = [&](int axis) {
    return axis == cut_axis_ ? std::min(slice_, axes_.shape[axis] - at[axis]) : axes_.shape[axis];
  };
  return {const_cast<char*>(tensor),
          axes_.stride_bytes[4],
          axes_.stride_bytes[3],
          const_cast<char*>(dense) + sums * kernels.sum_bytes,
          axes_.shape[4],
          kernels.lanes,
          extent(4),
          extent(3)};
}

void DenseCopy::to_dense(std::int64_t piece, const char* tensor, char* dense,
                         const ConvKernels& kernels, Rounding rounding,
                         const PoolKernels& roundings) const {
  const LaneCopy copy = lanes_of(piece, tensor, dense, kernels);
  kernels.to_lanes(copy);
  if (rounding == Rounding::none) return;
  round_operands(static_cast<float*>(copy.sums), copy.positions * copy.channels, rounding,
                 roundings);
}

void DenseCopy::from_dense(std::int64_t piece, char* tensor, const char* dense,
                           const ConvKernels& kernels) const {
  kernels.from_lanes(lanes_of(piece, tensor, dense, kernels));
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

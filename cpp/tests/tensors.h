// Tensors of all kinds of strides, in memory of their own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/tensor.h"
#include "ops/common/precision.h"
#include "tests/check.h"
#include "tests/elements.h"
#include "tests/memory.h"

namespace backops {
namespace test {

inline TensorView dense_view(char* data, DType dtype, const std::int64_t* shape, int ndim) {
  TensorView view{data, dtype, ndim, {}, {}};
  std::int64_t stride = bytes_of(dtype);
  for (int i = ndim - 1; i >= 0; --i) {
    view.shape[i] = shape[i];
    view.stride_bytes[i] = stride;
    stride *= shape[i];
  }
  return view;
}

// A tensor in memory of its own, with what its elements should be or are.
struct Tensor {
  Memory memory;
  TensorView view;

  char* at(std::int64_t index) const {
    char* address = view.data;
    for (int i = view.ndim - 1; i >= 0; --i) {
      address += index % view.shape[i] * view.stride_bytes[i];
      index /= view.shape[i];
    }
    return address;
  }
  double get(std::int64_t index) const { return read_element(view.dtype, at(index)); }
  void set(std::int64_t index, double value) const { write_element(view.dtype, value, at(index)); }
};

struct StrideStyle {
  bool dense, channels_last, flips, odd_bytes, broadcast;
};

inline StrideStyle random_style(Random& random, bool may_broadcast) {
  StrideStyle style{};
  style.dense = random.chance(0.5);
  style.channels_last = random.chance(0.35);
  style.flips = random.chance(0.4);
  style.odd_bytes = random.chance(0.4);
  style.broadcast = may_broadcast && random.chance(0.15);
  return style;
}

// Axes from the one with the smallest stride on.
inline std::vector<int> memory_order(Random& random, const StrideStyle& style, int ndim, int rank) {
  std::vector<int> order;
  for (int i = ndim - 1; i >= 0; --i) order.push_back(i);
  if (style.channels_last) {
    std::rotate(order.begin(), order.begin() + rank, order.begin() + rank + 1);
  } else if (!style.dense) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(
          order[i - 1],
          order[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(i) - 1))]);
    }
  }
  return order;
}

inline Tensor make_tensor(Random& random, const StrideStyle& style, DType dtype,
                          const std::int64_t* shape, int ndim, int rank) {
  TensorView view{nullptr, dtype, ndim, {}, {}};
  std::int64_t stride = bytes_of(dtype), lowest = 0, highest = 0;
  for (const int i : memory_order(random, style, ndim, rank)) {
    view.shape[i] = shape[i];
    if (!style.dense) stride += bytes_of(dtype) * random.integer(0, 2);
    if (!style.dense && style.odd_bytes) stride += random.integer(0, 3);
    const bool repeated = style.broadcast && random.chance(0.5);
    const bool flipped = !style.dense && style.flips && random.chance(0.5);
    view.stride_bytes[i] = repeated ? 0 : flipped ? -stride : stride;
    const std::int64_t extent = view.stride_bytes[i] * std::max<std::int64_t>(0, shape[i] - 1);
    (extent < 0 ? lowest : highest) += extent;
    if (!repeated) stride *= std::max<std::int64_t>(1, shape[i]);
  }
  const std::int64_t misalignment = style.odd_bytes ? random.integer(0, 63) : 0;
  Tensor tensor{Memory(highest - lowest + bytes_of(dtype), misalignment), view};
  tensor.view.data = tensor.memory.data() - lowest;
  return tensor;
}

inline std::int64_t element_count(const std::int64_t* shape, int ndim) {
  return std::accumulate(shape, shape + ndim, std::int64_t{1}, std::multiplies<std::int64_t>());
}

// Gaps between the elements are somebody else's.
inline void check_gaps(const Tensor& tensor) {
  std::vector<bool> is_element(tensor.memory.size(), false);
  const std::int64_t count = element_count(tensor.view.shape, tensor.view.ndim);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto begin = is_element.begin() + (tensor.at(i) - tensor.memory.data());
    std::fill(begin, begin + bytes_of(tensor.view.dtype), true);
  }
  bool untouched = true;
  for (std::size_t i = 0; i < tensor.memory.size(); ++i) {
    const auto byte = static_cast<unsigned char>(tensor.memory.data()[i]);
    untouched &= is_element[i] || byte == kUntouched;
  }
  CHECK(untouched);
}

// Precision modes round the gradients first.
inline double rounded_operand(double value, Rounding rounding) {
  if (rounding == Rounding::none || !std::isfinite(value)) return value;
  if (rounding == Rounding::float16) return rounded_to(DType::float16, value);
  const int kept = rounding == Rounding::hf32_11 ? 12 : 11;
  const double unit = unit_around(value, Format{kept, -149, 0});
  return std::round(value / unit) * unit;
}

}  // namespace test
}  // namespace backops

#include "base/operand.h"

#include <string>

#include "base/error.h"

namespace backops {
namespace {

void set_shape(TensorView& view, const std::int64_t* shape, std::size_t ndim, const char* argument,
               Sizes sizes) {
  if (ndim > kMaxDims) {
    throw Error(ErrorKind::shape, argument, "a tensor of " + std::to_string(ndim) + " axes",
                "expected at most " + std::to_string(kMaxDims));
  }
  view.ndim = static_cast<int>(ndim);
  const int least = sizes == Sizes::positive ? 1 : 0;
  for (int i = 0; i < view.ndim; ++i) {
    if (shape[i] < least || shape[i] > kMostBytes) {
      throw Error(ErrorKind::shape, argument, shape_text(shape, view.ndim),
                  "expected sizes from " + std::to_string(least) + " to 2**47");
    }
    view.shape[i] = shape[i];
  }
  const std::int64_t bytes = dense_bytes(view.shape, view.ndim, view.dtype);
  if (bytes < 0 || bytes > kMostBytes) {
    throw Error(ErrorKind::shape, argument, shape_text(view.shape, view.ndim),
                "expected at most 2**47 bytes");
  }
}

void set_dense_strides(TensorView& view) {
  std::int64_t stride = static_cast<std::int64_t>(size_of(view.dtype));
  for (int i = view.ndim - 1; i >= 0; --i) {
    view.stride_bytes[i] = stride;
    stride *= view.shape[i];
  }
}

void set_strides(TensorView& view, const std::int64_t* strides, const char* argument) {
  const auto element = static_cast<std::int64_t>(size_of(view.dtype));
  for (int i = 0; i < view.ndim; ++i) {
    // An axis of one element or none is never stepped along, whatever its stride.
    if (view.shape[i] <= 1) {
      view.stride_bytes[i] = element;
      continue;
    }
    const std::int64_t most = kMostBytes / element / (view.shape[i] - 1);
    if (strides[i] < -most || strides[i] > most) {
      throw Error(ErrorKind::layout, argument, "of stride " + std::to_string(strides[i]),
                  "expected strides that stay within 2**47 bytes");
    }
    view.stride_bytes[i] = strides[i] * element;
  }
}

}  // namespace

Operand::Operand(DType dtype, const std::int64_t* shape, std::size_t ndim,
                 const std::int64_t* strides, std::int64_t offset, const char* argument,
                 Sizes sizes) {
  view_.dtype = dtype;
  set_shape(view_, shape, ndim, argument, sizes);
  if (strides == nullptr) {
    set_dense_strides(view_);
  } else {
    set_strides(view_, strides, argument);
  }
  if (offset < -kMostBytes || offset > kMostBytes) {
    throw Error(ErrorKind::layout, argument, "at offset " + std::to_string(offset),
                "expected an offset within 2**47 elements");
  }
  offset_ = offset * static_cast<std::int64_t>(size_of(dtype));
  range_ = range_of(at(nullptr));
  if (range_.size() > std::size_t{kMostBytes}) {
    throw Error(ErrorKind::layout, argument,
                "a tensor over " + std::to_string(range_.size()) + " bytes",
                "expected at most 2**47");
  }
}

// Unsigned: a pointer that is none must not make arithmetic undefined.
TensorView Operand::at(const void* data) const {
  TensorView view = view_;
  view.data = reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(data) +
                                      static_cast<std::uintptr_t>(offset_));
  return view;
}

ByteRange Operand::range(const void* data) const {
  const auto base = reinterpret_cast<std::uintptr_t>(data);
  return {base + range_.begin, base + range_.end};
}

}  // namespace backops

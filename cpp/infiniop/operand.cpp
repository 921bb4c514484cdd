#include "infiniop/operand.h"

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace backops::infini {
namespace {

// The address space of a process; sums of a few such distances stay far inside 63 bits.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;

DType dtype_of(infiniDtype_t dtype, const char* argument) {
  switch (dtype) {
    case INFINI_DTYPE_F16: return DType::float16;
    case INFINI_DTYPE_F32: return DType::float32;
    case INFINI_DTYPE_BF16: return DType::bfloat16;
    default:
      throw Error(ErrorKind::dtype, argument, std::to_string(static_cast<int>(dtype)),
                  "expected F16 (12), F32 (13) or BF16 (19)");
  }
}

void set_shape(TensorView& view, const std::vector<std::size_t>& shape, const char* argument) {
  if (shape.size() > kMaxDims) {
    throw Error(ErrorKind::shape, argument, "a tensor of " + std::to_string(shape.size()) + " axes",
                "expected at most " + std::to_string(kMaxDims));
  }
  view.ndim = static_cast<int>(shape.size());
  for (int i = 0; i < view.ndim; ++i) {
    const std::size_t size = shape[static_cast<std::size_t>(i)];
    if (size < 1 || size > static_cast<std::size_t>(kMostBytes)) {
      throw Error(ErrorKind::shape, argument, "of size " + std::to_string(size),
                  "expected 1 to 2**47");
    }
    view.shape[i] = static_cast<std::int64_t>(size);
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

void set_strides(TensorView& view, const std::vector<std::ptrdiff_t>& strides,
                 const char* argument) {
  const auto element = static_cast<std::int64_t>(size_of(view.dtype));
  for (int i = 0; i < view.ndim; ++i) {
    const std::int64_t stride = strides[static_cast<std::size_t>(i)];
    // An axis of one element is never stepped along, whatever its stride.
    if (view.shape[i] == 1) {
      view.stride_bytes[i] = element;
      continue;
    }
    const std::int64_t most = kMostBytes / element / (view.shape[i] - 1);
    if (stride < -most || stride > most) {
      throw Error(ErrorKind::layout, argument, "of stride " + std::to_string(stride),
                  "expected strides that stay within 2**47 bytes");
    }
    view.stride_bytes[i] = stride * element;
  }
}

}  // namespace

Operand::Operand(const InfiniopTensorDescriptor& descriptor, const char* argument) {
  view_.dtype = dtype_of(descriptor.dtype, argument);
  set_shape(view_, descriptor.shape, argument);
  if (descriptor.strides.empty()) {
    set_dense_strides(view_);
  } else {
    set_strides(view_, descriptor.strides, argument);
  }
  end_ = static_cast<std::int64_t>(size_of(view_.dtype));
  for (int i = 0; i < view_.ndim; ++i) {
    const std::int64_t reach = view_.stride_bytes[i] * (view_.shape[i] - 1);
    (reach < 0 ? lowest_ : end_) += reach;
  }
  if (end_ - lowest_ > kMostBytes) {
    throw Error(ErrorKind::layout, argument,
                "a tensor over " + std::to_string(end_ - lowest_) + " bytes",
                "expected at most 2**47");
  }
}

TensorView Operand::at(const void* data) const {
  TensorView view = view_;
  view.data = static_cast<char*>(const_cast<void*>(data));
  return view;
}

// Unsigned: a pointer that is none must not make arithmetic undefined.
std::uintptr_t Operand::lowest(const void* data) const {
  return reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(lowest_);
}

std::uintptr_t Operand::end(const void* data) const {
  return reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(end_);
}

bool Operand::reaches_into(const void* data, const void* memory, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  return bytes > 0 && lowest(data) < begin + bytes && begin < end(data);
}

bool Operand::share_memory(const Operand& a, const void* a_data, const Operand& b,
                           const void* b_data) {
  const bool near = a.lowest(a_data) < b.end(b_data) && b.lowest(b_data) < a.end(a_data);
  return near && overlap(a.at(a_data), b.at(b_data));
}

}  // namespace backops::infini

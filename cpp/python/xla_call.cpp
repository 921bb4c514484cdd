#include "python/xla_call.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "base/error.h"

namespace backops::xla {
namespace {

DType dtype_of(ElementType type, const std::string& argument) {
  switch (type) {
    case ElementType::f16: return DType::float16;
    case ElementType::bf16: return DType::bfloat16;
    case ElementType::f32: return DType::float32;
    case ElementType::f64: return DType::float64;
    default: break;
  }
  throw backops::Error(ErrorKind::dtype, argument,
                       "of XLA's type " + std::to_string(static_cast<std::int32_t>(type)),
                       "expected F16, BF16, F32 or F64");
}

Error* refuse(const Call* call, ErrorCode code, const std::string& message) {
  ErrorArguments arguments{sizeof(ErrorArguments), nullptr, message.c_str(), code};
  return call->api->create_error(&arguments);
}

// True where XLA did not want anything computed, only to know which version it talks to.
bool tell_version(const Call* call) {
  for (Extension* e = call->extensions; e != nullptr; e = e->next) {
    if (e->type != kMetadataExtension) continue;
    Metadata* const metadata = reinterpret_cast<MetadataExtension*>(e)->metadata;
    metadata->version = {sizeof(Version), nullptr, kMajorVersion, kMinorVersion};
    metadata->traits = 0;
    return true;
  }
  return false;
}

std::string plain(const std::string& name) { return name; }

}  // namespace

std::int64_t Batch::count() const {
  std::int64_t product = 1;
  for (int axis = 0; axis < batch_ndim; ++axis) product *= batch_dims[axis];
  return product;
}

TensorView Batch::at(std::int64_t i, const std::int64_t* dims) const {
  std::int64_t tensor = 0, step = 1;
  for (int axis = batch_ndim - 1; axis >= 0; --axis) {
    if (batch_dims[axis] != 1) tensor += i % dims[axis] * step;
    i /= dims[axis];
    step *= batch_dims[axis];
  }
  TensorView view = first;
  view.data += tensor * dense_bytes(view.shape, view.ndim, view.dtype);
  return view;
}

Batch read_batch(const Operands& operands, std::int64_t index, const char* name, int ndim) {
  if (index >= operands.count || operands.types[index] != kBufferOperand) {
    throw backops::Error(ErrorKind::shape, name, "missing", "expected a buffer");
  }
  const Buffer& buffer = *static_cast<const Buffer*>(operands.items[index]);
  if (buffer.rank < ndim) {
    throw backops::Error(ErrorKind::shape, name, "of " + std::to_string(buffer.rank) + " axes",
                         "expected at least " + std::to_string(ndim));
  }
  Batch batch{};
  batch.batch_ndim = static_cast<int>(buffer.rank) - ndim;
  batch.batch_dims = buffer.dims;
  TensorView& view = batch.first;
  view.data = static_cast<char*>(buffer.data);
  view.dtype = dtype_of(buffer.dtype, name);
  view.ndim = ndim;
  std::copy(buffer.dims + batch.batch_ndim, buffer.dims + buffer.rank, view.shape);
  auto stride = static_cast<std::int64_t>(size_of(view.dtype));
  for (int axis = ndim - 1; axis >= 0; --axis) {
    view.stride_bytes[axis] = stride;
    stride *= view.shape[axis];
  }
  return batch;
}

void read_attribute(const Call& call, const char* name, std::int64_t* values, std::size_t count) {
  const Attributes& all = call.attributes;
  for (std::int64_t i = 0; i < all.count; ++i) {
    const Text& text = *all.names[i];
    if (text.size != std::strlen(name) || std::memcmp(text.data, name, text.size) != 0) continue;
    const Array* const array = static_cast<const Array*>(all.items[i]);
    if (all.types[i] != kArrayAttribute || array->dtype != ElementType::s64 ||
        array->count != count) {
      break;
    }
    std::memcpy(values, array->data, count * sizeof(std::int64_t));
    return;
  }
  throw backops::Error(ErrorKind::param, name, "missing",
                       "expected an attribute of " + std::to_string(count) + " int64");
}

std::int64_t read_attribute(const Call& call, const char* name) {
  std::int64_t value = 0;
  read_attribute(call, name, &value, 1);
  return value;
}

int read_rank(const Call& call, const char* name) {
  const std::int64_t rank = read_attribute(call, name);
  if (rank >= 1 && rank <= 3) return static_cast<int>(rank);
  throw backops::Error(ErrorKind::param, name, std::to_string(rank), "expected 1 to 3");
}

Error* handle(Call* call, const char* function, void (*work)(const Call& call)) noexcept {
  if (tell_version(call)) return nullptr;
  const std::string prefix = std::string(function) + ": ";
  if (call->struct_size < sizeof(Call) || call->api->version.major != kMajorVersion) {
    return refuse(
        call, ErrorCode::internal,
        prefix + "this XLA's calls have version " + std::to_string(call->api->version.major) + "." +
            std::to_string(call->api->version.minor) + " and " + std::to_string(call->struct_size) +
            " bytes, expected version 0 and " + std::to_string(sizeof(Call)) + " bytes or more");
  }
  try {
    work(*call);
    return nullptr;
  } catch (const backops::Error& error) {
    return refuse(call, ErrorCode::invalid_argument, prefix + error.message(plain));
  } catch (const std::bad_alloc&) {
    return refuse(call, ErrorCode::resource_exhausted, prefix + "out of memory");
  } catch (const std::exception& error) {
    return refuse(call, ErrorCode::internal, prefix + error.what());
  }
}

}  // namespace backops::xla

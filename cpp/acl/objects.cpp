// Tensors, arrays and scalars. As they were given: what an operator cannot use, the operator
// refuses.
#include "acl/objects.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "acl/failure.h"
#include "acl/handles.h"

namespace backops::acl {
namespace {

// No framework has more axes; a larger number is a mistake, and no array of that length.
constexpr std::uint64_t kMostAxes = 64;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 32;

struct DataTypeName {
  aclDataType dtype;
  const char* name;
  std::size_t bytes;  // 0: a scalar has no such type
};
constexpr DataTypeName kDataTypes[] = {
    {ACL_FLOAT, "FLOAT", 4},
    {ACL_FLOAT16, "FLOAT16", 2},
    {ACL_INT8, "INT8", 1},
    {ACL_INT32, "INT32", 4},
    {ACL_UINT8, "UINT8", 1},
    {ACL_INT16, "INT16", 2},
    {ACL_UINT16, "UINT16", 2},
    {ACL_UINT32, "UINT32", 4},
    {ACL_INT64, "INT64", 8},
    {ACL_UINT64, "UINT64", 8},
    {ACL_DOUBLE, "DOUBLE", 8},
    {ACL_BOOL, "BOOL", 1},
    {ACL_STRING, "STRING", 0},
    {ACL_COMPLEX64, "COMPLEX64", 8},
    {ACL_COMPLEX128, "COMPLEX128", 16},
    {ACL_BF16, "BF16", 2},
    {ACL_INT4, "INT4", 0},
    {ACL_UINT1, "UINT1", 0},
    {ACL_COMPLEX32, "COMPLEX32", 4},
    {ACL_HIFLOAT8, "HIFLOAT8", 1},
    {ACL_FLOAT8_E5M2, "FLOAT8_E5M2", 1},
    {ACL_FLOAT8_E4M3FN, "FLOAT8_E4M3FN", 1},
    {ACL_FLOAT8_E8M0, "FLOAT8_E8M0", 1},
    {ACL_FLOAT6_E3M2, "FLOAT6_E3M2", 0},
    {ACL_FLOAT6_E2M3, "FLOAT6_E2M3", 0},
    {ACL_FLOAT4_E2M1, "FLOAT4_E2M1", 0},
    {ACL_FLOAT4_E1M2, "FLOAT4_E1M2", 0},
};

struct FormatName {
  aclFormat format;
  const char* name;
};
constexpr FormatName kFormats[] = {
    {ACL_FORMAT_NCHW, "NCHW"},
    {ACL_FORMAT_NHWC, "NHWC"},
    {ACL_FORMAT_ND, "ND"},
    {ACL_FORMAT_NC1HWC0, "NC1HWC0"},
    {ACL_FORMAT_FRACTAL_Z, "FRACTAL_Z"},
    {ACL_FORMAT_NC1HWC0_C04, "NC1HWC0_C04"},
    {ACL_FORMAT_HWCN, "HWCN"},
    {ACL_FORMAT_NDHWC, "NDHWC"},
    {ACL_FORMAT_FRACTAL_NZ, "FRACTAL_NZ"},
    {ACL_FORMAT_NCDHW, "NCDHW"},
    {ACL_FORMAT_NDC1HWC0, "NDC1HWC0"},
    {ACL_FRACTAL_Z_3D, "FRACTAL_Z_3D"},
    {ACL_FORMAT_NC, "NC"},
    {ACL_FORMAT_NCL, "NCL"},
};

template <class Value>
std::vector<Value> copied(const char* argument, const Value* values, std::uint64_t count,
                          std::uint64_t most) {
  if (count > most) {
    throw Failure(ACLNN_ERR_PARAM_INVALID, std::string("the size of ") + argument,
                  std::to_string(count), "expected at most " + std::to_string(most));
  }
  if (count > 0) require_aclnn(values, argument);
  return std::vector<Value>(values, values + count);
}

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i > 1; --i) {
    // Too large for 64 bits: an operator refuses the shape.
    if (__builtin_mul_overflow(strides[i - 1], shape[i - 1], &strides[i - 2])) strides[i - 2] = 0;
  }
  return strides;
}

// The new object's handle, or null.
template <class Make>
auto create(const char* function, const Make& make) noexcept -> decltype(make().get()) {
  try {
    auto made = make();
    return Handles<typename decltype(made)::element_type>::all().add(std::move(made));
  } catch (...) {
    report(function, ACLNN_ERR_INNER, ACLNN_ERR_INNER);
    return nullptr;
  }
}

[[noreturn]] void fail_not_alive(const char* argument) {
  throw Failure(ACLNN_ERR_PARAM_INVALID, argument, "no object that is alive",
                "expected one that was created and not destroyed");
}

template <class Object>
aclnnStatus destroy(const char* function, const char* argument, const Object* object) noexcept {
  return guarded_aclnn(function, [&] {
    if (object == nullptr || Handles<Object>::all().remove(object) != nullptr) return;
    fail_not_alive(argument);
  });
}

// A list of objects that are alive; null stands for one that is not there.
template <class List, class Member>
List* create_list(const char* function, const Member* const* values, std::uint64_t size) noexcept {
  return create(function, [&] {
    auto list = std::make_shared<List>(List{copied("value", values, size, kMostElements)});
    for (const Member* member : list->members) {
      if (member != nullptr && Handles<Member>::all().find(member) == nullptr) {
        fail_not_alive("value");
      }
    }
    return list;
  });
}

// And what is in it.
template <class Member, class List>
aclnnStatus destroy_list(const char* function, const List* handle) noexcept {
  return guarded_aclnn(function, [&] {
    if (handle == nullptr) return;
    const auto list = Handles<List>::all().remove(handle);
    if (list == nullptr) fail_not_alive("array");
    for (const Member* member : list->members) Handles<Member>::all().remove(member);
  });
}

// Calls `read` with the object, if there is one and all pointers to write to.
template <class Object, class Read, class... Targets>
aclnnStatus get(const char* function, const char* argument, const Object* object, const Read& read,
                const Targets*... targets) noexcept {
  return guarded_aclnn(function, [&] {
    require_aclnn(object, argument);
    (..., require_aclnn(targets, "an out-pointer"));
    const auto found = Handles<Object>::all().find(object);
    if (found == nullptr) fail_not_alive(argument);
    read(*found);
  });
}

aclnnStatus get_sizes(const char* function, const aclTensor* tensor,
                      std::vector<std::int64_t> aclTensor::* sizes, std::int64_t** values,
                      std::uint64_t* count) noexcept {
  return get(
      function, "tensor", tensor,
      [&](const aclTensor& found) {
        const std::vector<std::int64_t>& from = found.*sizes;
        auto* const copy = new std::int64_t[from.size()];
        std::copy(from.begin(), from.end(), copy);
        *values = copy;
        *count = from.size();
      },
      values, count);
}

}  // namespace

std::string name_of(aclDataType dtype) {
  for (const DataTypeName& each : kDataTypes) {
    if (each.dtype == dtype) return each.name;
  }
  return std::to_string(static_cast<int>(dtype));
}

std::string name_of(aclFormat format) {
  for (const FormatName& each : kFormats) {
    if (each.format == format) return each.name;
  }
  return std::to_string(static_cast<int>(format));
}

}  // namespace backops::acl

using namespace backops::acl;

// ---- create ------------------------------------------------------------------------------------

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                           const int64_t* stride, int64_t offset, aclFormat format,
                           const int64_t* storageDims, uint64_t storageDimsNum, void* tensorData) {
  return create("aclCreateTensor", [&] {
    auto tensor = std::make_shared<aclTensor>();
    tensor->view_shape = copied("viewDims", viewDims, viewDimsNum, kMostAxes);
    tensor->strides = stride == nullptr ? dense_strides(tensor->view_shape)
                                        : copied("stride", stride, viewDimsNum, kMostAxes);
    tensor->storage_shape = copied("storageDims", storageDims, storageDimsNum, kMostAxes);
    tensor->dtype = dataType;
    tensor->format = format;
    tensor->offset = offset;
    tensor->data = tensorData;
    return tensor;
  });
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  return create("aclCreateScalar", [&] {
    const auto* const type =
        std::find_if(std::begin(kDataTypes), std::end(kDataTypes),
                     [&](const DataTypeName& each) { return each.dtype == dataType; });
    if (type == std::end(kDataTypes) || type->bytes == 0) {
      throw Failure(ACLNN_ERR_PARAM_INVALID, "dataType", name_of(dataType),
                    "expected the type of a number of whole bytes");
    }
    require_aclnn(value, "value");
    auto scalar = std::make_shared<aclScalar>();
    scalar->dtype = dataType;
    std::memcpy(scalar->bytes, value, type->bytes);
    return scalar;
  });
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  return create("aclCreateIntArray", [&] {
    return std::make_shared<aclIntArray>(aclIntArray{copied("value", value, size, kMostElements)});
  });
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  return create("aclCreateBoolArray", [&] {
    return std::make_shared<aclBoolArray>(
        aclBoolArray{copied("value", value, size, kMostElements)});
  });
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  return create("aclCreateFloatArray", [&] {
    return std::make_shared<aclFloatArray>(
        aclFloatArray{copied("value", value, size, kMostElements)});
  });
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return create_list<aclTensorList>("aclCreateTensorList", value, size);
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  return create_list<aclScalarList>("aclCreateScalarList", value, size);
}

// ---- destroy -----------------------------------------------------------------------------------

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  return destroy("aclDestroyTensor", "tensor", tensor);
}

aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  return destroy("aclDestroyScalar", "scalar", scalar);
}

aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  return destroy("aclDestroyIntArray", "array", array);
}

aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
  return destroy("aclDestroyBoolArray", "array", array);
}

aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
  return destroy("aclDestroyFloatArray", "array", array);
}

aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  return destroy_list<aclTensor>("aclDestroyTensorList", array);
}

aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
  return destroy_list<aclScalar>("aclDestroyScalarList", array);
}

// ---- get ---------------------------------------------------------------------------------------

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  return get_sizes("aclGetViewShape", tensor, &aclTensor::view_shape, viewDims, viewDimsNum);
}

aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims,
                               uint64_t* storageDimsNum) {
  return get_sizes("aclGetStorageShape", tensor, &aclTensor::storage_shape, storageDims,
                   storageDimsNum);
}

aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue,
                              uint64_t* stridesNum) {
  return get_sizes("aclGetViewStrides", tensor, &aclTensor::strides, stridesValue, stridesNum);
}

aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  return get(
      "aclGetViewOffset", "tensor", tensor, [&](const aclTensor& found) { *offset = found.offset; },
      offset);
}

aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  return get(
      "aclGetFormat", "tensor", tensor, [&](const aclTensor& found) { *format = found.format; },
      format);
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  return get(
      "aclGetDataType", "tensor", tensor, [&](const aclTensor& found) { *dataType = found.dtype; },
      dataType);
}

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  return get(
      "aclGetIntArraySize", "array", array,
      [&](const aclIntArray& found) { *size = found.values.size(); }, size);
}

aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
  return get(
      "aclGetScalarListSize", "scalarList", scalarList,
      [&](const aclScalarList& found) { *size = found.members.size(); }, size);
}

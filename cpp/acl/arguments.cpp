#include "acl/arguments.h"

#include <algorithm>
#include <string>

#include "acl/handles.h"

namespace backops::acl {
namespace {

template <class Object>
std::shared_ptr<const Object> find(const char* name, const Object* handle, const char* source) {
  require_aclnn(handle, name);
  if (auto found = Handles<Object>::all().find(handle)) return found;
  throw Failure(ACLNN_ERR_PARAM_INVALID, name, "no object that is alive",
                std::string("expected one from ") + source);
}

DType dtype_of(const char* name, aclDataType dtype, const Product& product) {
  switch (dtype) {
    case ACL_FLOAT: return DType::float32;
    case ACL_FLOAT16: return DType::float16;
    case ACL_BF16:
      if (product.has_bfloat16) return DType::bfloat16;
      [[fallthrough]];
    default:
      throw Failure(ACLNN_ERR_PARAM_INVALID, std::string("the dtype of ") + name, name_of(dtype),
                    product.has_bfloat16
                        ? "expected FLOAT, FLOAT16 or BF16"
                        : std::string("expected FLOAT or FLOAT16 on ") + product.series);
  }
}

}  // namespace

TensorArgument::TensorArgument(const char* name, const aclTensor* handle, Sizes sizes)
    : name_(name), tensor_(find(name, handle, "aclCreateTensor")), sizes_(sizes) {}

std::optional<TensorArgument> TensorArgument::optional(const char* name, const aclTensor* handle,
                                                       Sizes sizes) {
  if (handle == nullptr) return std::nullopt;
  return TensorArgument(name, handle, sizes);
}

Operand TensorArgument::operand(const Product& product) const {
  return Operand(dtype_of(name_, tensor_->dtype, product), tensor_->view_shape.data(),
                 tensor_->view_shape.size(), tensor_->strides.data(), tensor_->offset, name_,
                 sizes_);
}

BoundTensor TensorArgument::bound(const Operand& operand, bool is_output) const {
  return {name_, operand, tensor_->data, is_output};
}

void TensorArgument::check_format(std::initializer_list<Format> formats) const {
  std::string expected;
  for (const Format& each : formats) {
    if (each.ndim != 0 && each.ndim != ndim()) continue;
    if (tensor_->format == each.format) return;
    expected += (expected.empty() ? "" : " or ") + name_of(each.format);
  }
  throw Failure(ACLNN_ERR_PARAM_INVALID, std::string("the format of ") + name_,
                name_of(tensor_->format),
                "expected " + expected + " for " + std::to_string(ndim()) + " axes");
}

void TensorArgument::check_same_format(const TensorArgument& other) const {
  if (tensor_->format == other.tensor_->format) return;
  throw Failure(
      ACLNN_ERR_PARAM_INVALID, std::string("the format of ") + name_, name_of(tensor_->format),
      std::string("expected that of ") + other.name_ + ", " + name_of(other.tensor_->format));
}

void TensorArgument::check_same_dtype(const TensorArgument& other) const {
  if (tensor_->dtype == other.tensor_->dtype) return;
  throw Failure(
      ACLNN_ERR_PARAM_INVALID, std::string("the dtype of ") + name_, name_of(tensor_->dtype),
      std::string("expected that of ") + other.name_ + ", " + name_of(other.tensor_->dtype));
}

IntArrayArgument::IntArrayArgument(const char* name, const aclIntArray* handle)
    : name_(name), array_(find(name, handle, "aclCreateIntArray")) {}

std::optional<IntArrayArgument> IntArrayArgument::optional(const char* name,
                                                           const aclIntArray* handle) {
  if (handle == nullptr) return std::nullopt;
  return IntArrayArgument(name, handle);
}

void IntArrayArgument::read_axes(int rank, std::int64_t* target) const {
  const std::vector<std::int64_t>& values = array_->values;
  if (values.size() == static_cast<std::size_t>(rank)) {
    std::copy(values.begin(), values.end(), target);
  } else if (values.size() == 1) {
    std::fill(target, target + rank, values[0]);
  } else {
    throw Failure(ACLNN_ERR_PARAM_INVALID, std::string("the length of ") + name_,
                  std::to_string(values.size()), "expected 1 or " + std::to_string(rank));
  }
}

std::shared_ptr<const aclBoolArray> bool_array_argument(const char* name,
                                                        const aclBoolArray* handle) {
  return find(name, handle, "aclCreateBoolArray");
}

}  // namespace backops::acl

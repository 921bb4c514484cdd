// What the opaque types of acl_meta.h are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aclnn/acl_meta.h"

struct aclTensor {
  std::vector<std::int64_t> view_shape, strides, storage_shape;  // strides count elements
  aclDataType dtype;
  aclFormat format;
  std::int64_t offset;  // in elements
  void* data;
};

struct aclScalar {
  aclDataType dtype;
  unsigned char bytes[16];
};

struct aclIntArray {
  std::vector<std::int64_t> values;
};

struct aclBoolArray {
  std::vector<bool> values;
};

struct aclFloatArray {
  std::vector<float> values;
};

struct aclTensorList {
  std::vector<const aclTensor*> members;
};

struct aclScalarList {
  std::vector<const aclScalar*> members;
};

namespace backops::acl {

std::string name_of(aclDataType dtype);  // FLOAT16, or the number of what has no name
std::string name_of(aclFormat format);

}  // namespace backops::acl

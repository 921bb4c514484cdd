// The arguments of first stages: that they are there, alive, and what CANN alone says about them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "acl/executor.h"
#include "acl/objects.h"
#include "acl/products.h"
#include "base/operand.h"

namespace backops::acl {

// Constructors throw Failure: PARAM_NULLPTR for NULL, PARAM_INVALID for what is not alive.
class TensorArgument {
 public:
  TensorArgument(const char* name, const aclTensor* handle, Sizes sizes = Sizes::positive);
  // Without a tensor: not there.
  static std::optional<TensorArgument> optional(const char* name, const aclTensor* handle,
                                                Sizes sizes);

  const char* name() const { return name_; }
  int ndim() const { return static_cast<int>(tensor_->view_shape.size()); }

  // Throws Error or Failure for what no operator of this product takes.
  Operand operand(const Product& product) const;
  BoundTensor bound(const Operand& operand, bool is_output) const;

  struct Format {
    aclFormat format;
    int ndim;  // 0: for tensors of any number of axes
  };
  void check_format(std::initializer_list<Format> formats) const;
  void check_same_format(const TensorArgument& other) const;
  void check_same_dtype(const TensorArgument& other) const;

 private:
  const char* name_;
  std::shared_ptr<const aclTensor> tensor_;
  Sizes sizes_;
};

class IntArrayArgument {
 public:
  IntArrayArgument(const char* name, const aclIntArray* handle);
  // Without an array: not there.
  static std::optional<IntArrayArgument> optional(const char* name, const aclIntArray* handle);

  const std::vector<std::int64_t>& values() const { return array_->values; }

  // One value for each axis, from one or `rank` of them.
  void read_axes(int rank, std::int64_t* target) const;

 private:
  const char* name_;
  std::shared_ptr<const aclIntArray> array_;
};

std::shared_ptr<const aclBoolArray> bool_array_argument(const char* name,
                                                        const aclBoolArray* handle);

}  // namespace backops::acl

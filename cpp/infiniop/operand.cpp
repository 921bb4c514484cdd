#include "infiniop/operand.h"

#include <string>

#include "base/error.h"

namespace backops::infini {
namespace {

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

}  // namespace

Operand operand_of(const InfiniopTensorDescriptor& descriptor, const char* argument) {
  return Operand(dtype_of(descriptor.dtype, argument), descriptor.shape.data(),
                 descriptor.shape.size(),
                 descriptor.strides.empty() ? nullptr : descriptor.strides.data(), 0, argument);
}

std::optional<Operand> operand_of(const InfiniopTensorDescriptor* descriptor,
                                  const char* argument) {
  if (descriptor == nullptr) return std::nullopt;
  return operand_of(*descriptor, argument);
}

}  // namespace backops::infini

// Conversions of single numbers, for programs that make or read float16 tensors.
#include "acl/acl_base.h"
#include "kernels/vectors/scalar.h"

float aclFloat16ToFloat(aclFloat16 value) { return backops::widen(backops::Float16{value}); }

aclFloat16 aclFloatToFloat16(float value) {
  backops::Float16 result;
  backops::narrow(value, &result);
  return result.bits;
}

#include "infiniop/tensor_descriptor.h"

#include <algorithm>
#include <utility>

#include "infiniop/operand.h"
#include "infiniop/status.h"

using namespace backops::infini;

namespace {

// No framework has more axes; a larger number is a mistake, and no array of that length.
constexpr std::size_t kMostAxes = 64;

}  // namespace

infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t* desc_ptr,
                                              std::size_t ndim, const std::size_t* shape,
                                              const std::ptrdiff_t* strides, infiniDtype_t dtype) {
  return guarded([&] {
    if (desc_ptr == nullptr || (shape == nullptr && ndim > 0)) return INFINI_STATUS_NULL_POINTER;
    if (ndim > kMostAxes) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    std::vector<std::int64_t> own_strides;
    if (strides != nullptr) own_strides.assign(strides, strides + ndim);
    std::vector<std::int64_t> own_shape(ndim);
    std::transform(shape, shape + ndim, own_shape.begin(),
                   [](std::size_t size) { return static_cast<std::int64_t>(size); });
    *desc_ptr = new InfiniopTensorDescriptor{dtype, std::move(own_shape), std::move(own_strides)};
    return INFINI_STATUS_SUCCESS;
  });
}

infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc) {
  delete desc;
  return INFINI_STATUS_SUCCESS;
}

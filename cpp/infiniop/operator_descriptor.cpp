#include "infiniop/operator_descriptor.h"

#include "infiniop/status.h"

using namespace backops::infini;

infiniStatus_t infiniopGetDescriptorDeviceType(const InfiniopDescriptor* desc,
                                               infiniDevice_t* device_ptr) {
  if (any_null(desc, device_ptr)) return INFINI_STATUS_BAD_PARAM;
  *device_ptr = desc->device;
  return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infiniopGetDescriptorDeviceId(const InfiniopDescriptor* desc, int* device_id_ptr) {
  if (any_null(desc, device_id_ptr)) return INFINI_STATUS_BAD_PARAM;
  *device_id_ptr = desc->device_id;
  return INFINI_STATUS_SUCCESS;
}

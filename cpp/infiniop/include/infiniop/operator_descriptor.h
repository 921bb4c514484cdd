/* What every operator's descriptor begins with. */
#ifndef INFINIOP_OPERATOR_DESCRIPTOR_H
#define INFINIOP_OPERATOR_DESCRIPTOR_H

#include "handle.h"
#include "tensor_descriptor.h"

struct InfiniopDescriptor {
  infiniDevice_t device;
  int device_id;
};

INFINI_API infiniStatus_t infiniopGetDescriptorDeviceType(const struct InfiniopDescriptor* desc,
                                                          infiniDevice_t* device_ptr);
INFINI_API infiniStatus_t infiniopGetDescriptorDeviceId(const struct InfiniopDescriptor* desc,
                                                        int* device_id_ptr);

#endif

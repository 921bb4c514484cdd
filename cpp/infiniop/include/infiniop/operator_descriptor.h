/* What every operator's descriptor begins with. */
#ifndef INFINIOP_OPERATOR_DESCRIPTOR_H
#define INFINIOP_OPERATOR_DESCRIPTOR_H

#include "handle.h"
#include "tensor_descriptor.h"

struct InfiniopDescriptor {
  infiniDevice_t device;
  int device_id;
};

#endif

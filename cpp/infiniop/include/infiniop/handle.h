/* The device that operators are made for. Any number of threads may use one handle. */
#ifndef INFINIOP_HANDLE_H
#define INFINIOP_HANDLE_H

#include "../infinicore.h"

struct InfiniopHandle {
  infiniDevice_t device;
  int device_id;
};

typedef struct InfiniopHandle* infiniopHandle_t;

/* For the device that infinirtSetDevice chose in this thread. */
INFINI_API infiniStatus_t infiniopCreateHandle(infiniopHandle_t* handle_ptr);
INFINI_API infiniStatus_t infiniopDestroyHandle(infiniopHandle_t handle);

#endif

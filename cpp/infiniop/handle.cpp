#include "infiniop/handle.h"

#include <cstddef>

#include "infiniop/status.h"
#include "infinirt.h"

using namespace backops::infini;

// Clients read these two ints.
static_assert(sizeof(infiniDevice_t) == sizeof(int), "enums are ints");
static_assert(offsetof(InfiniopHandle, device) == 0, "read by clients");
static_assert(offsetof(InfiniopHandle, device_id) == sizeof(int), "read by clients");

infiniStatus_t infiniopCreateHandle(infiniopHandle_t* handle_ptr) {
  return guarded([&] {
    if (handle_ptr == nullptr) return INFINI_STATUS_NULL_POINTER;
    InfiniopHandle handle{};
    const infiniStatus_t status = infinirtGetDevice(&handle.device, &handle.device_id);
    if (status != INFINI_STATUS_SUCCESS) return status;
    *handle_ptr = new InfiniopHandle(handle);
    return INFINI_STATUS_SUCCESS;
  });
}

infiniStatus_t infiniopDestroyHandle(infiniopHandle_t handle) {
  delete handle;
  return INFINI_STATUS_SUCCESS;
}

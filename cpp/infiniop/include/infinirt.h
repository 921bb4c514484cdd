/* Devices, streams, events and memory. The one device is the CPU. The library has InfiniCore's
 * other functions too, such as graph capture; they return INFINI_STATUS_NOT_IMPLEMENTED. */
#ifndef INFINIRT_H
#define INFINIRT_H

#include <stdint.h>

#include "infinicore.h"

/* NULL is a stream too: what is given to it is done when the call returns. */
typedef void* infinirtStream_t;
typedef void* infinirtEvent_t;

INFINI_API infiniStatus_t infinirtInit(void);

/* `count_array` has INFINI_DEVICE_TYPE_COUNT elements. */
INFINI_API infiniStatus_t infinirtGetAllDeviceCount(int* count_array);
INFINI_API infiniStatus_t infinirtGetDeviceCount(infiniDevice_t device, int* count);
/* For the calling thread. A thread that never chose has the CPU. */
INFINI_API infiniStatus_t infinirtSetDevice(infiniDevice_t device, int device_id);
/* Either pointer may be NULL. */
INFINI_API infiniStatus_t infinirtGetDevice(infiniDevice_t* device_ptr, int* device_id_ptr);
/* Of the machine; free is what programs can have without swapping. */
INFINI_API infiniStatus_t infinirtGetMemInfo(infiniDevice_t device, int device_id,
                                             size_t* free_bytes, size_t* total_bytes);

/* Whatever is wrong is told before work is queued: synchronising finds no errors of its own. */
INFINI_API infiniStatus_t infinirtDeviceSynchronize(void);

INFINI_API infiniStatus_t infinirtStreamCreate(infinirtStream_t* stream_ptr);
/* Waits for what is queued, and returns its error if nobody has seen it yet. */
INFINI_API infiniStatus_t infinirtStreamDestroy(infinirtStream_t stream);
INFINI_API infiniStatus_t infinirtStreamSynchronize(infinirtStream_t stream);
/* With a NULL stream the caller waits. */
INFINI_API infiniStatus_t infinirtStreamWaitEvent(infinirtStream_t stream, infinirtEvent_t event);

typedef enum INFINI_INT_ENUM {
  INFINIRT_EVENT_COMPLETE = 0,
  INFINIRT_EVENT_NOT_READY = 1
} infinirtEventStatus_t;

typedef enum INFINI_INT_ENUM {
  INFINIRT_EVENT_DEFAULT = 0,
  INFINIRT_EVENT_DISABLE_TIMING = 1,
  INFINIRT_EVENT_BLOCKING_SYNC = 2
} infinirtEventFlags_t;

INFINI_API infiniStatus_t infinirtEventCreate(infinirtEvent_t* event_ptr);
INFINI_API infiniStatus_t infinirtEventCreateWithFlags(infinirtEvent_t* event_ptr, uint32_t flags);
INFINI_API infiniStatus_t infinirtEventRecord(infinirtEvent_t event, infinirtStream_t stream);
INFINI_API infiniStatus_t infinirtEventQuery(infinirtEvent_t event,
                                             infinirtEventStatus_t* status_ptr);
INFINI_API infiniStatus_t infinirtEventSynchronize(infinirtEvent_t event);
INFINI_API infiniStatus_t infinirtEventDestroy(infinirtEvent_t event);
/* BAD_PARAM unless both events are complete and were made with timing. */
INFINI_API infiniStatus_t infinirtEventElapsedTime(float* ms_ptr, infinirtEvent_t start,
                                                   infinirtEvent_t end);

typedef enum INFINI_INT_ENUM {
  INFINIRT_MEMCPY_H2H = 0,
  INFINIRT_MEMCPY_H2D = 1,
  INFINIRT_MEMCPY_D2H = 2,
  INFINIRT_MEMCPY_D2D = 3
} infinirtMemcpyKind_t;

/* Sizes count bytes. INTERNAL_ERROR where there is no memory; BAD_PARAM for copies and fills of
 * more than 2^47 bytes, or beyond the last address. */
INFINI_API infiniStatus_t infinirtMalloc(void** p_ptr, size_t size);
INFINI_API infiniStatus_t infinirtMallocHost(void** p_ptr, size_t size);
INFINI_API infiniStatus_t infinirtFree(void* ptr);
INFINI_API infiniStatus_t infinirtFreeHost(void* ptr);
INFINI_API infiniStatus_t infinirtMemcpy(void* dst, const void* src, size_t size,
                                         infinirtMemcpyKind_t kind);
INFINI_API infiniStatus_t infinirtMemcpyAsync(void* dst, const void* src, size_t size,
                                              infinirtMemcpyKind_t kind, infinirtStream_t stream);
INFINI_API infiniStatus_t infinirtMallocAsync(void** p_ptr, size_t size, infinirtStream_t stream);
INFINI_API infiniStatus_t infinirtFreeAsync(void* ptr, infinirtStream_t stream);
INFINI_API infiniStatus_t infinirtMemset(void* ptr, int value, size_t count);
INFINI_API infiniStatus_t infinirtMemsetAsync(void* ptr, int value, size_t count,
                                              infinirtStream_t stream);

#endif

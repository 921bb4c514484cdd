/* Devices, contexts, streams, events and memory. The one device is the CPU. */
#ifndef ACL_RT_H
#define ACL_RT_H

#include "acl_base.h"

/* ---- devices and contexts ---- */

/* The name in the environment variable BACKOPS_SOC, Ascend910B1 by default. */
ACL_API const char* aclrtGetSocName(void);
ACL_API aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion,
                                 int32_t* patchVersion);
ACL_API aclError aclrtGetDeviceCount(uint32_t* count);
/* Gives the calling thread the default context of the device. A thread that never chose has no
 * context: ACL_ERROR_RT_CONTEXT_NULL. */
ACL_API aclError aclrtSetDevice(int32_t deviceId);
/* Waits for what is queued, and takes the default context from the calling thread. */
ACL_API aclError aclrtResetDevice(int32_t deviceId);
ACL_API aclError aclrtGetDevice(int32_t* deviceId);

/* Makes a context and gives it to the calling thread. */
ACL_API aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);
/* Default contexts cannot be destroyed. */
ACL_API aclError aclrtDestroyContext(aclrtContext context);
ACL_API aclError aclrtSetCurrentContext(aclrtContext context);
ACL_API aclError aclrtGetCurrentContext(aclrtContext* context);

typedef enum ACL_INT_ENUM { ACL_OPT_DETERMINISTIC = 0 } aclSysParamOpt;

/* 0 or 1. A context that was told nothing does as the process does. */
ACL_API aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);
ACL_API aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value);
ACL_API aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);
ACL_API aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value);

/* ---- streams and events ---- */

/* Whatever is wrong is told before work is queued: synchronising finds no errors of its own. */
ACL_API aclError aclrtSynchronizeDevice(void);

#define ACL_STREAM_FAST_LAUNCH 0x00000001U
#define ACL_STREAM_FAST_SYNC 0x00000002U

/* A NULL stream is the default stream of the thread's context, asynchronous like the others. */
ACL_API aclError aclrtCreateStream(aclrtStream* stream);
/* Priority and flags are taken and have no effect. */
ACL_API aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag);
/* Waits for what is queued. */
ACL_API aclError aclrtDestroyStream(aclrtStream stream);
ACL_API aclError aclrtSynchronizeStream(aclrtStream stream);
ACL_API aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);

typedef enum ACL_INT_ENUM {
  ACL_EVENT_STATUS_COMPLETE = 0,
  ACL_EVENT_STATUS_NOT_READY = 1,
  ACL_EVENT_STATUS_RESERVED = 2
} aclrtEventStatus;

typedef enum ACL_INT_ENUM {
  ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
  ACL_EVENT_RECORDED_STATUS_COMPLETE = 1
} aclrtEventRecordedStatus;

ACL_API aclError aclrtCreateEvent(aclrtEvent* event);
ACL_API aclError aclrtDestroyEvent(aclrtEvent event);
ACL_API aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
ACL_API aclError aclrtSynchronizeEvent(aclrtEvent event);
/* An event that was never recorded is complete. */
ACL_API aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status);
ACL_API aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status);
/* Milliseconds between two events that are complete. */
ACL_API aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent);

/* ---- memory: all sizes count bytes ---- */

typedef enum ACL_INT_ENUM {
  ACL_MEM_MALLOC_HUGE_FIRST = 0,
  ACL_MEM_MALLOC_HUGE_ONLY = 1,
  ACL_MEM_MALLOC_NORMAL_ONLY = 2
} aclrtMemMallocPolicy;

typedef enum ACL_INT_ENUM {
  ACL_MEMCPY_HOST_TO_HOST = 0,
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
  ACL_MEMCPY_DEFAULT = 4
} aclrtMemcpyKind;

typedef enum ACL_INT_ENUM {
  ACL_DDR_MEM = 0,
  ACL_HBM_MEM = 1,
  ACL_DDR_MEM_HUGE = 2,
  ACL_DDR_MEM_NORMAL = 3,
  ACL_HBM_MEM_HUGE = 4,
  ACL_HBM_MEM_NORMAL = 5
} aclrtMemAttr;

typedef enum ACL_INT_ENUM { ACL_HOST_REGISTER_MAPPED = 0 } aclrtHostRegisterType;

/* Device memory is known: work on memory that is none is refused when it is launched. */
ACL_API aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
/* Work that is queued keeps what it uses. */
ACL_API aclError aclrtFree(void* devPtr);
ACL_API aclError aclrtMallocHost(void** hostPtr, size_t size);
ACL_API aclError aclrtFreeHost(void* hostPtr);
/* Lets operators use memory of the host; `devPtr` receives `ptr`. */
ACL_API aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type,
                                   void** devPtr);
ACL_API aclError aclrtHostUnregister(void* ptr);
/* `destMax` is what `dst` has room for; a device side must be device memory. */
ACL_API aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                             aclrtMemcpyKind kind);
ACL_API aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                                  aclrtMemcpyKind kind, aclrtStream stream);
ACL_API aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count);
ACL_API aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                                  aclrtStream stream);
ACL_API aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);

#endif

#include "infinirt.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "base/operand.h"
#include "infiniop/status.h"
#include "infiniop/stream.h"
#include "runtime/event.h"
#include "runtime/memory.h"
#include "runtime/queue.h"

using namespace backops;
using namespace backops::infini;

namespace {

constexpr int kCpuCount = 1;
constexpr std::uint32_t kKnownEventFlags =
    INFINIRT_EVENT_DISABLE_TIMING | INFINIRT_EVENT_BLOCKING_SYNC;

struct CurrentDevice {
  infiniDevice_t type = INFINI_DEVICE_CPU;
  int id = 0;
};
thread_local CurrentDevice t_device;

// Never destroyed: streams may outlive main().
QueueGroup& all_queues() {
  static QueueGroup* const group = new QueueGroup;
  return *group;
}

bool is_device_type(infiniDevice_t device) {
  return device >= INFINI_DEVICE_CPU && device < INFINI_DEVICE_TYPE_COUNT;
}

infiniStatus_t find_device(infiniDevice_t device, int device_id) {
  if (device != INFINI_DEVICE_CPU) return INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
  if (device_id < 0 || device_id >= kCpuCount) return INFINI_STATUS_DEVICE_NOT_FOUND;
  return INFINI_STATUS_SUCCESS;
}

infiniStatus_t create_event(infinirtEvent_t* event_ptr, std::uint32_t flags) {
  return guarded([&] {
    if (event_ptr == nullptr) return INFINI_STATUS_NULL_POINTER;
    if ((flags & ~kKnownEventFlags) != 0) return INFINI_STATUS_BAD_PARAM;
    *event_ptr = new Event((flags & INFINIRT_EVENT_DISABLE_TIMING) == 0);
    return INFINI_STATUS_SUCCESS;
  });
}

Event& event_of(infinirtEvent_t event) { return *static_cast<Event*>(event); }

infiniStatus_t allocate(void** p_ptr, std::size_t size) {
  if (p_ptr == nullptr) return INFINI_STATUS_NULL_POINTER;
  void* const memory = allocate_aligned(size);
  if (memory == nullptr) return INFINI_STATUS_INTERNAL_ERROR;
  *p_ptr = memory;
  return INFINI_STATUS_SUCCESS;
}

// Whether there can be so much memory at an address: less than a process has, and not around the
// end of all addresses.
bool can_be(const void* memory, std::size_t bytes) {
  return bytes <= std::size_t{kMostBytes} && bytes <= std::numeric_limits<std::uintptr_t>::max() -
                                                          reinterpret_cast<std::uintptr_t>(memory);
}

infiniStatus_t copy(void* dst, const void* src, std::size_t size, infinirtMemcpyKind_t kind,
                    infinirtStream_t stream) {
  return guarded([&] {
    if (kind < INFINIRT_MEMCPY_H2H || kind > INFINIRT_MEMCPY_D2D) return INFINI_STATUS_BAD_PARAM;
    if (size == 0) return INFINI_STATUS_SUCCESS;
    if (any_null(dst, src)) return INFINI_STATUS_NULL_POINTER;
    if (!can_be(dst, size) || !can_be(src, size)) return INFINI_STATUS_BAD_PARAM;
    return launch(stream, [=] { std::memmove(dst, src, size); });
  });
}

infiniStatus_t fill(void* ptr, int value, std::size_t count, infinirtStream_t stream) {
  return guarded([&] {
    if (count == 0) return INFINI_STATUS_SUCCESS;
    if (ptr == nullptr) return INFINI_STATUS_NULL_POINTER;
    if (!can_be(ptr, count)) return INFINI_STATUS_BAD_PARAM;
    return launch(stream, [=] { std::memset(ptr, value, count); });
  });
}

}  // namespace

// ---- devices -----------------------------------------------------------------------------------

infiniStatus_t infinirtInit() { return INFINI_STATUS_SUCCESS; }

infiniStatus_t infinirtGetAllDeviceCount(int* count_array) {
  if (count_array == nullptr) return INFINI_STATUS_NULL_POINTER;
  std::fill_n(count_array, static_cast<int>(INFINI_DEVICE_TYPE_COUNT), 0);
  count_array[INFINI_DEVICE_CPU] = kCpuCount;
  return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtGetDeviceCount(infiniDevice_t device, int* count) {
  if (count == nullptr) return INFINI_STATUS_NULL_POINTER;
  if (!is_device_type(device)) return INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
  *count = device == INFINI_DEVICE_CPU ? kCpuCount : 0;
  return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtSetDevice(infiniDevice_t device, int device_id) {
  const infiniStatus_t status = find_device(device, device_id);
  if (status == INFINI_STATUS_SUCCESS) t_device = {device, device_id};
  return status;
}

infiniStatus_t infinirtGetDevice(infiniDevice_t* device_ptr, int* device_id_ptr) {
  if (device_ptr != nullptr) *device_ptr = t_device.type;
  if (device_id_ptr != nullptr) *device_id_ptr = t_device.id;
  return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtGetMemInfo(infiniDevice_t device, int device_id, std::size_t* free_bytes,
                                  std::size_t* total_bytes) {
  return guarded([&] {
    if (any_null(free_bytes, total_bytes)) return INFINI_STATUS_NULL_POINTER;
    const infiniStatus_t status = find_device(device, device_id);
    if (status != INFINI_STATUS_SUCCESS) return status;
    const MemoryInfo info = memory_info();
    *free_bytes = info.free;
    *total_bytes = info.total;
    return INFINI_STATUS_SUCCESS;
  });
}

infiniStatus_t infinirtDeviceSynchronize() {
  return guarded([] {
    all_queues().synchronize();
    return INFINI_STATUS_SUCCESS;
  });
}

// ---- streams -----------------------------------------------------------------------------------

infiniStatus_t infinirtStreamCreate(infinirtStream_t* stream_ptr) {
  return guarded([&] {
    if (stream_ptr == nullptr) return INFINI_STATUS_NULL_POINTER;
    *stream_ptr = new Stream{all_queues().create()};
    return INFINI_STATUS_SUCCESS;
  });
}

infiniStatus_t infinirtStreamDestroy(infinirtStream_t stream) {
  return guarded([&] {
    if (stream == nullptr) return INFINI_STATUS_SUCCESS;
    const std::unique_ptr<Stream> own(static_cast<Stream*>(stream));
    own->queue->synchronize();
    return INFINI_STATUS_SUCCESS;
  });
}

infiniStatus_t infinirtStreamSynchronize(infinirtStream_t stream) {
  return guarded([&] {
    if (Queue* const queue = queue_of(stream)) queue->synchronize();
    return INFINI_STATUS_SUCCESS;
  });
}

infiniStatus_t infinirtStreamWaitEvent(infinirtStream_t stream, infinirtEvent_t event) {
  return guarded([&] {
    if (event == nullptr) return INFINI_STATUS_NULL_POINTER;
    if (Queue* const queue = queue_of(stream)) {
      event_of(event).delay(*queue);
    } else {
      event_of(event).synchronize();
    }
    return INFINI_STATUS_SUCCESS;
  });
}

// ---- events ------------------------------------------------------------------------------------

infiniStatus_t infinirtEventCreate(infinirtEvent_t* event_ptr) {
  return create_event(event_ptr, INFINIRT_EVENT_DEFAULT);
}

infiniStatus_t infinirtEventCreateWithFlags(infinirtEvent_t* event_ptr, std::uint32_t flags) {
  return create_event(event_ptr, flags);
}

infiniStatus_t infinirtEventRecord(infinirtEvent_t event, infinirtStream_t stream) {
  return guarded([&] {
    if (event == nullptr) return INFINI_STATUS_NULL_POINTER;
    event_of(event).record(queue_of(stream));
    return INFINI_STATUS_SUCCESS;
  });
}

infiniStatus_t infinirtEventQuery(infinirtEvent_t event, infinirtEventStatus_t* status_ptr) {
  return guarded([&] {
    if (any_null(event, status_ptr)) return INFINI_STATUS_NULL_POINTER;
    *status_ptr = event_of(event).is_done() ? INFINIRT_EVENT_COMPLETE : INFINIRT_EVENT_NOT_READY;
    return INFINI_STATUS_SUCCESS;
  });
}

infiniStatus_t infinirtEventSynchronize(infinirtEvent_t event) {
  return guarded([&] {
    if (event == nullptr) return INFINI_STATUS_NULL_POINTER;
    event_of(event).synchronize();
    return INFINI_STATUS_SUCCESS;
  });
}

infiniStatus_t infinirtEventDestroy(infinirtEvent_t event) {
  delete static_cast<Event*>(event);
  return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtEventElapsedTime(float* ms_ptr, infinirtEvent_t start, infinirtEvent_t end) {
  return guarded([&] {
    if (any_null(ms_ptr, start, end)) return INFINI_STATUS_NULL_POINTER;
    const bool known = Event::elapsed(event_of(start), event_of(end), ms_ptr);
    return known ? INFINI_STATUS_SUCCESS : INFINI_STATUS_BAD_PARAM;
  });
}

// ---- memory ------------------------------------------------------------------------------------

infiniStatus_t infinirtMalloc(void** p_ptr, std::size_t size) { return allocate(p_ptr, size); }

infiniStatus_t infinirtMallocHost(void** p_ptr, std::size_t size) { return allocate(p_ptr, size); }

infiniStatus_t infinirtFree(void* ptr) {
  free_aligned(ptr);
  return INFINI_STATUS_SUCCESS;
}

infiniStatus_t infinirtFreeHost(void* ptr) { return infinirtFree(ptr); }

infiniStatus_t infinirtMemcpy(void* dst, const void* src, std::size_t size,
                              infinirtMemcpyKind_t kind) {
  return copy(dst, src, size, kind, nullptr);
}

infiniStatus_t infinirtMemcpyAsync(void* dst, const void* src, std::size_t size,
                                   infinirtMemcpyKind_t kind, infinirtStream_t stream) {
  return copy(dst, src, size, kind, stream);
}

// The address is wanted now, so only giving memory back takes its turn in the stream.
infiniStatus_t infinirtMallocAsync(void** p_ptr, std::size_t size, infinirtStream_t) {
  return allocate(p_ptr, size);
}

infiniStatus_t infinirtFreeAsync(void* ptr, infinirtStream_t stream) {
  return guarded([&] { return launch(stream, [ptr] { free_aligned(ptr); }); });
}

infiniStatus_t infinirtMemset(void* ptr, int value, std::size_t count) {
  return fill(ptr, value, count, nullptr);
}

infiniStatus_t infinirtMemsetAsync(void* ptr, int value, std::size_t count,
                                   infinirtStream_t stream) {
  return fill(ptr, value, count, stream);
}

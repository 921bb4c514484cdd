// Device and host memory, copies and fills.
#include <cstring>
#include <string>
#include <utility>

#include "acl/acl_rt.h"
#include "acl/context.h"
#include "acl/failure.h"
#include "acl/memory.h"
#include "runtime/memory.h"

using namespace backops::acl;
using backops::ByteRange;
using backops::kMostBytes;
using backops::range_of;

namespace {

using Held = std::shared_ptr<const Allocation>;

void check_enum(const char* argument, int value, int last) {
  if (value >= 0 && value <= last) return;
  throw Failure(ACL_ERROR_INVALID_PARAM, argument, std::to_string(value),
                "expected 0 to " + std::to_string(last));
}

void check_size(std::size_t size) {
  if (size == 0) throw Failure(ACL_ERROR_INVALID_PARAM, "size", "0", "expected at least 1");
}

// Of memory of the host nothing else is known.
void check_exists(const char* argument, std::size_t bytes) {
  if (bytes <= std::size_t{kMostBytes}) return;
  throw Failure(ACL_ERROR_RT_PARAM_INVALID, argument, std::to_string(bytes),
                "expected at most 2**47: there is no such memory");
}

void* allocate(Memory& memory, std::size_t size) {
  current_context();
  check_size(size);
  try {
    return memory.allocate(size);
  } catch (const std::bad_alloc&) {
    throw Failure(ACL_ERROR_RT_MEMORY_ALLOCATION, "size", std::to_string(size),
                  "expected less: there is no such memory");
  }
}

void free(Memory& memory, void* pointer, const char* argument, const char* source) {
  require(pointer, argument);
  if (memory.free(pointer)) return;
  ByteRange freed;
  const bool twice = memory.was_freed(reinterpret_cast<std::uintptr_t>(pointer), &freed);
  throw Failure(ACL_ERROR_RT_PARAM_INVALID, argument,
                twice ? "memory that was freed before" : "no memory of that kind",
                std::string("expected a pointer from ") + source);
}

// What a copy or fill uses, so that freeing it meanwhile does no harm; null for memory of the host.
Held find_side(const char* argument, const void* memory, std::size_t count, bool on_device) {
  const ByteRange range = range_of(memory, count);
  if (on_device) {
    return find_device_memory(ACL_ERROR_RT_PARAM_INVALID, argument, range.begin, range);
  }
  const Held device = device_memory().find(range.begin);
  if (device == nullptr || !device->is_owned()) return nullptr;
  throw Failure(
      ACL_ERROR_RT_PARAM_INVALID, argument, "at bytes " + text_of(range),
      "expected memory of the host, not of the device allocation " + text_of(device->range()));
}

// Memory of the host that is mapped is still memory of the host.
bool is_on_device(const void* memory) {
  const Held found = device_memory().find(reinterpret_cast<std::uintptr_t>(memory));
  return found != nullptr && found->is_owned();
}

void check_room(const char* argument, std::size_t room, std::size_t count) {
  check_exists("count", count);
  if (count <= room) return;
  throw Failure(ACL_ERROR_RT_PARAM_INVALID, "count", std::to_string(count),
                std::string("expected at most ") + argument + " = " + std::to_string(room));
}

struct Copy {
  Copy(void* dst, std::size_t dest_max, const void* src, std::size_t count, aclrtMemcpyKind kind)
      : dst_(dst), src_(src), count_(count) {
    require(dst, "dst");
    require(src, "src");
    check_enum("kind", kind, ACL_MEMCPY_DEFAULT);
    check_room("destMax", dest_max, count);
    if (count == 0) return;
    const bool any = kind == ACL_MEMCPY_DEFAULT;
    const bool to_device =
        any ? is_on_device(dst)
            : kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    const bool from_device =
        any ? is_on_device(src)
            : kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    held_dst_ = find_side("dst", dst, count, to_device);
    held_src_ = find_side("src", src, count, from_device);
  }

  void operator()() const {
    if (count_ > 0) std::memmove(dst_, src_, count_);
  }

 private:
  void* dst_;
  const void* src_;
  std::size_t count_;
  Held held_dst_, held_src_;
};

struct Fill {
  Fill(void* memory, std::size_t max_count, std::int32_t value, std::size_t count)
      : memory_(memory), value_(value), count_(count) {
    require(memory, "devPtr");
    check_room("maxCount", max_count, count);
    if (count > 0) held_ = find_side("devPtr", memory, count, is_on_device(memory));
  }

  void operator()() const {
    if (count_ > 0) std::memset(memory_, value_, count_);
  }

 private:
  void* memory_;
  std::int32_t value_;
  std::size_t count_;
  Held held_;
};

}  // namespace

// ---- allocations -------------------------------------------------------------------------------

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return guarded("aclrtMalloc", [&] {
    require(devPtr, "devPtr");
    check_enum("policy", policy, ACL_MEM_MALLOC_NORMAL_ONLY);
    *devPtr = allocate(device_memory(), size);
  });
}

aclError aclrtFree(void* devPtr) {
  return guarded("aclrtFree", [&] { free(device_memory(), devPtr, "devPtr", "aclrtMalloc"); });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return guarded("aclrtMallocHost", [&] {
    require(hostPtr, "hostPtr");
    *hostPtr = allocate(host_memory(), size);
  });
}

aclError aclrtFreeHost(void* hostPtr) {
  return guarded("aclrtFreeHost",
                 [&] { free(host_memory(), hostPtr, "hostPtr", "aclrtMallocHost"); });
}

aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type, void** devPtr) {
  return guarded("aclrtHostRegister", [&] {
    require(ptr, "ptr");
    require(devPtr, "devPtr");
    check_enum("type", type, ACL_HOST_REGISTER_MAPPED);
    check_size(size);
    check_exists("size", size);
    const ByteRange range = range_of(ptr, size);
    if (range.size() < size) {
      throw Failure(ACL_ERROR_RT_PARAM_INVALID, "ptr", "at bytes " + text_of(range),
                    "expected " + std::to_string(size) + " bytes before the last address");
    }
    device_memory().map(range);
    *devPtr = ptr;
  });
}

aclError aclrtHostUnregister(void* ptr) {
  return guarded("aclrtHostUnregister", [&] {
    require(ptr, "ptr");
    if (device_memory().unmap(ptr)) return;
    throw Failure(ACL_ERROR_RT_PARAM_INVALID, "ptr", "not registered",
                  "expected a pointer that aclrtHostRegister was given");
  });
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  return guarded("aclrtGetMemInfo", [&] {
    require(free, "free");
    require(total, "total");
    check_enum("attr", attr, ACL_HBM_MEM_NORMAL);
    current_context();
    const backops::MemoryInfo info = backops::memory_info();
    *free = info.free;
    *total = info.total;
  });
}

// ---- copies and fills --------------------------------------------------------------------------

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind) {
  return guarded("aclrtMemcpy", [&] {
    current_context();
    Copy(dst, destMax, src, count, kind)();
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  return guarded("aclrtMemcpyAsync",
                 [&] { queue_of(stream)->add(Copy(dst, destMax, src, count, kind)); });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return guarded("aclrtMemset", [&] {
    current_context();
    Fill(devPtr, maxCount, value, count)();
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                          aclrtStream stream) {
  return guarded("aclrtMemsetAsync",
                 [&] { queue_of(stream)->add(Fill(devPtr, maxCount, value, count)); });
}

// The memory of a device: which bytes are allocated, and to whom a byte belongs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace backops::acl {

std::string text_of(const ByteRange& range);  // 0x1000 to 0x10ff (256 bytes)

// Lives as long as anybody holds it: work that is queued may outlive aclrtFree.
class Allocation {
 public:
  explicit Allocation(std::size_t bytes);  // throws std::bad_alloc
  explicit Allocation(const ByteRange& mapped) : range_(mapped), owned_(false) {}
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  const ByteRange& range() const { return range_; }
  bool is_owned() const { return owned_; }  // not mapped

 private:
  ByteRange range_;
  bool owned_;
};

class Memory {
 public:
  void* allocate(std::size_t bytes);  // throws std::bad_alloc
  bool free(void* memory);            // false unless it was allocated here and not freed yet

  // Memory of somebody else that counts as ours; any number of ranges, which may overlap.
  void map(const ByteRange& range);
  bool unmap(const void* memory);  // the shortest that begins there

  // What holds the byte at `address`; null for memory that is not ours.
  std::shared_ptr<const Allocation> find(std::uintptr_t address) const;
  // The same, but of several that hold it the one that also holds `range`, if there is one.
  std::shared_ptr<const Allocation> find(std::uintptr_t address, const ByteRange& range) const;

  // Whether the byte was in an allocation that was freed lately, and in which.
  bool was_freed(std::uintptr_t address, ByteRange* range) const;

 private:
  mutable std::shared_mutex mutex_;  // guards everything below
  std::map<std::uintptr_t, std::shared_ptr<const Allocation>> allocations_;  // by their begin
  std::vector<std::shared_ptr<const Allocation>> mapped_;
  std::deque<ByteRange> freed_;  // the latest first
};

// Never cleaned up: programs may use them while they end.
Memory& device_memory();
Memory& host_memory();  // from aclrtMallocHost

// The allocation that holds the bytes of `range`, which belong to memory at `address`. Throws
// Failure with `code`, naming `what`, where there is none.
std::shared_ptr<const Allocation> find_device_memory(int code, const char* what,
                                                     std::uintptr_t address,
                                                     const ByteRange& range);

}  // namespace backops::acl

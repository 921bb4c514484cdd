#include "acl/memory.h"

#include <algorithm>
#include <cstdio>
#include <new>

#include "acl/failure.h"
#include "runtime/memory.h"

namespace backops::acl {
namespace {

// Enough to name the usual mistake; older ranges are forgotten.
constexpr std::size_t kMostFreed = 256;

}  // namespace

std::string text_of(const ByteRange& range) {
  char text[96];
  std::snprintf(text, sizeof text, "0x%zx to 0x%zx (%zu bytes)",
                static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.end - 1),
                range.size());
  return text;
}

Allocation::Allocation(std::size_t bytes)
    : range_(range_of(allocate_aligned(bytes), bytes)), owned_(true) {
  if (range_.begin == 0) throw std::bad_alloc();
}

Allocation::~Allocation() {
  if (owned_) free_aligned(reinterpret_cast<void*>(range_.begin));
}

void* Memory::allocate(std::size_t bytes) {
  auto allocation = std::make_shared<const Allocation>(bytes);
  const std::uintptr_t begin = allocation->range().begin;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  allocations_.emplace(begin, std::move(allocation));
  return reinterpret_cast<void*>(begin);
}

bool Memory::free(void* memory) {
  std::shared_ptr<const Allocation> gone;  // given back after the lock
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == allocations_.end()) return false;
  freed_.push_front(found->second->range());
  if (freed_.size() > kMostFreed) freed_.pop_back();
  gone = std::move(found->second);
  allocations_.erase(found);
  return true;
}

void Memory::map(const ByteRange& range) {
  auto allocation = std::make_shared<const Allocation>(range);
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  mapped_.push_back(std::move(allocation));
}

bool Memory::unmap(const void* memory) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  auto shortest = mapped_.end();
  for (auto each = mapped_.begin(); each != mapped_.end(); ++each) {
    const ByteRange& range = (*each)->range();
    if (range.begin != reinterpret_cast<std::uintptr_t>(memory)) continue;
    if (shortest == mapped_.end() || range.end < (*shortest)->range().end) shortest = each;
  }
  if (shortest == mapped_.end()) return false;
  mapped_.erase(shortest);
  return true;
}

std::shared_ptr<const Allocation> Memory::find(std::uintptr_t address) const {
  return find(address, {address, address + 1});
}

std::shared_ptr<const Allocation> Memory::find(std::uintptr_t address,
                                               const ByteRange& range) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto after = allocations_.upper_bound(address);
  if (after != allocations_.begin()) {
    const auto& candidate = std::prev(after)->second;
    if (candidate->range().has(address)) return candidate;
  }
  const std::shared_ptr<const Allocation>* best = nullptr;
  for (const auto& mapped : mapped_) {
    if (!mapped->range().has(address)) continue;
    best = &mapped;
    if (mapped->range().holds(range)) break;
  }
  return best == nullptr ? nullptr : *best;
}

bool Memory::was_freed(std::uintptr_t address, ByteRange* range) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = std::find_if(freed_.begin(), freed_.end(),
                                  [address](const ByteRange& each) { return each.has(address); });
  if (found == freed_.end()) return false;
  *range = *found;
  return true;
}

Memory& device_memory() {
  static Memory* const memory = new Memory;
  return *memory;
}

Memory& host_memory() {
  static Memory* const memory = new Memory;
  return *memory;
}

std::shared_ptr<const Allocation> find_device_memory(int code, const char* what,
                                                     std::uintptr_t address,
                                                     const ByteRange& range) {
  auto allocation = device_memory().find(address, range);
  if (allocation != nullptr && allocation->range().holds(range)) return allocation;
  const std::string bytes = "at bytes " + text_of(range);
  if (allocation != nullptr) {
    throw Failure(code, what, bytes,
                  "expected bytes inside its device allocation, " + text_of(allocation->range()));
  }
  ByteRange freed;
  if (device_memory().was_freed(address, &freed)) {
    throw Failure(
        code, what, bytes,
        "expected device memory: the allocation there, " + text_of(freed) + ", was freed");
  }
  throw Failure(code, what, bytes,
                "expected device memory (from aclrtMalloc), not memory of the host");
}

}  // namespace backops::acl

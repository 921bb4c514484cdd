// Memory for tests of code that must stay inside its bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace backops {
namespace test {

constexpr unsigned char kUntouched = 0xa5;

// Bytes that begin `misalignment` beyond a multiple of 64 and end where the allocation does: an
// address sanitizer sees every access behind them.
class Memory {
 public:
  Memory(std::int64_t bytes, std::int64_t misalignment)
      : size_(static_cast<std::size_t>(bytes)),
        start_(static_cast<char*>(
            ::operator new(size_ + static_cast<std::size_t>(misalignment), std::align_val_t{64}))),
        data_(start_ + misalignment) {
    std::memset(data_, kUntouched, size_);
  }
  Memory(Memory&& other) noexcept : size_(other.size_), start_(other.start_), data_(other.data_) {
    other.start_ = nullptr;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::operator delete(start_, std::align_val_t{64}); }

  char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  char* start_;
  char* data_;
};

inline bool equal_bytes(const Memory& a, const Memory& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace test
}  // namespace backops

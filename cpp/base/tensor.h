// A view of somebody else's memory. Strides count bytes, because NumPy's may be no multiple of the
// element size; they may be negative or zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/export.h"

namespace backops {

constexpr int kMaxDims = 8;

// No process has more memory; sums of a few such distances stay far inside 63 bits.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;

struct TensorView {
  char* data;
  DType dtype;
  int ndim;
  std::int64_t shape[kMaxDims];
  std::int64_t stride_bytes[kMaxDims];
};

// Addresses from `begin` to before `end`. One whose end lies before its beginning goes around the
// end of all addresses, and is in no other.
struct ByteRange {
  std::uintptr_t begin = 0, end = 0;

  bool holds(const ByteRange& other) const {
    return begin <= other.begin && other.begin <= other.end && other.end <= end;
  }
  bool has(std::uintptr_t address) const { return begin <= address && address < end; }
  bool meets(const ByteRange& other) const { return begin < other.end && other.begin < end; }
  std::size_t size() const { return end - begin; }
};

// Up to the end of all addresses, if there are not that many bytes.
inline ByteRange range_of(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  return {begin, begin + std::min<std::uintptr_t>(bytes, UINTPTR_MAX - begin)};
}

// From a view's lowest to its highest byte; of no size where the view is empty.
BACKOPS_API ByteRange range_of(const TensorView& view);

// The text people know from Python: (2, 3, 8, 8), (2,) or ().
BACKOPS_API std::string shape_text(const std::int64_t* shape, int ndim);

// Bytes of a dense tensor, or -1 where they do not fit 63 bits.
BACKOPS_API std::int64_t dense_bytes(const std::int64_t* shape, int ndim, DType dtype);

// Whether two views have an element's byte in common. Exact for every layout people build from
// slices and permutations; a search that grows too long counts as an overlap.
BACKOPS_API bool overlap(const TensorView& a, const TensorView& b);

// A tensor of one run, of which no operator has more; one that is not there has no view.
constexpr std::size_t kMostRunTensors = 8;
struct RunTensor {
  const char* name;
  const TensorView* view;
  bool is_written;
};

// The first two that overlap although one is written, which is the later of them. What is read
// comes first.
struct SharedMemory {
  const RunTensor *written = nullptr, *other = nullptr;
};
BACKOPS_API SharedMemory find_shared_memory(const RunTensor* tensors, std::size_t count);

// Whether the memory between a view's lowest and highest byte has a byte of `memory`.
BACKOPS_API bool reaches_into(const TensorView& view, const void* memory, std::size_t bytes);

BACKOPS_API void write_zeros(const TensorView& view);

// Whether two different elements of one view have a byte in common; as careful as overlap().
BACKOPS_API bool has_overlapping_elements(const TensorView& view);

}  // namespace backops

#include "base/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/ints.h"

namespace backops {
namespace {

// Bounded integer combination: is there a choice of x[i] in [0, count[i]] with
// low <= sum(step[i] * x[i]) <= high? Steps are positive and searched largest first, so that for
// nested strides (every layout made of slices) at most two choices survive per level.
class CombinationSearch {
 public:
  void add(std::int64_t step, std::int64_t count) {
    if (step == 0 || count == 0) return;
    terms_[size_++] = {step, count};
  }

  bool exists(std::int64_t low, std::int64_t high) {
    std::sort(terms_, terms_ + size_, [](Term a, Term b) { return a.step > b.step; });
    reach_[size_] = divisor_[size_] = 0;
    for (int i = size_ - 1; i >= 0; --i) {
      reach_[i] = reach_[i + 1] + terms_[i].step * terms_[i].count;
      divisor_[i] = std::gcd(divisor_[i + 1], terms_[i].step);
    }
    budget_ = 100000;
    return search(0, low, high);
  }

 private:
  struct Term {
    std::int64_t step, count;
  };

  bool search(int level, std::int64_t low, std::int64_t high) {
    if (--budget_ < 0) return true;
    if (high < 0 || low > reach_[level]) return false;
    if (level == size_) return true;
    // Sums of what is left are multiples of its common divisor: is there one in range?
    const std::int64_t largest = std::min(high, reach_[level]);
    if (largest / divisor_[level] * divisor_[level] < low) return false;
    const Term term = terms_[level];
    const std::int64_t least = std::max<std::int64_t>(0, low - reach_[level + 1]);
    const std::int64_t first = ceil_divide(least, term.step);
    const std::int64_t last = std::min(term.count, high / term.step);
    for (std::int64_t x = first; x <= last; ++x) {
      if (search(level + 1, low - x * term.step, high - x * term.step)) return true;
    }
    return false;
  }

  Term terms_[2 * kMaxDims] = {};
  std::int64_t reach_[2 * kMaxDims + 1] = {};    // largest sum of the terms from here on
  std::int64_t divisor_[2 * kMaxDims + 1] = {};  // greatest common divisor of their steps
  int size_ = 0;
  int budget_ = 0;
};

// Along this axis of the view and all behind it.
void write_zeros_from(const TensorView& view, char* at, int axis) {
  const std::size_t element = size_of(view.dtype);
  if (axis == view.ndim) {
    std::memset(at, 0, element);
  } else if (axis == view.ndim - 1 &&
             view.stride_bytes[axis] == static_cast<std::int64_t>(element)) {
    std::memset(at, 0, element * static_cast<std::size_t>(view.shape[axis]));
  } else {
    for (std::int64_t i = 0; i < view.shape[axis]; ++i) {
      write_zeros_from(view, at + i * view.stride_bytes[axis], axis + 1);
    }
  }
}

bool is_empty(const TensorView& view) {
  return std::find(view.shape, view.shape + view.ndim, 0) != view.shape + view.ndim;
}

}  // namespace

// Unsigned: a pointer that is none must not make arithmetic undefined.
ByteRange range_of(const TensorView& view) {
  if (is_empty(view)) return range_of(view.data, 0);
  ByteRange range = range_of(view.data, size_of(view.dtype));
  for (int i = 0; i < view.ndim; ++i) {
    const std::int64_t reach = view.stride_bytes[i] * (view.shape[i] - 1);
    (reach < 0 ? range.begin : range.end) += static_cast<std::uintptr_t>(reach);
  }
  return range;
}

std::string shape_text(const std::int64_t* shape, int ndim) {
  std::string text = "(";
  for (int i = 0; i < ndim; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (ndim == 1 ? ",)" : ")");
}

std::int64_t dense_bytes(const std::int64_t* shape, int ndim, DType dtype) {
  // A zero anywhere does not excuse an overflowing product of the other sizes.
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, shape[i], &bytes)) {
      return -1;
    }
  }
  return empty ? 0 : bytes;
}

bool overlap(const TensorView& a, const TensorView& b) {
  if (is_empty(a) || is_empty(b)) return false;
  // An element of a starts at lowest(a) + sum(|stride| * x), likewise b's with y. They share a byte
  // when -size(b) < a - b < size(a). With y' = count - y all steps become positive.
  CombinationSearch search;
  auto distance = static_cast<std::int64_t>(range_of(a).begin - range_of(b).begin);
  for (int i = 0; i < a.ndim; ++i) search.add(std::abs(a.stride_bytes[i]), a.shape[i] - 1);
  for (int i = 0; i < b.ndim; ++i) {
    const std::int64_t step = std::abs(b.stride_bytes[i]);
    search.add(step, b.shape[i] - 1);
    distance -= step * (b.shape[i] - 1);
  }
  const std::int64_t size_a = static_cast<std::int64_t>(size_of(a.dtype));
  const std::int64_t size_b = static_cast<std::int64_t>(size_of(b.dtype));
  return search.exists(-size_a + 1 - distance, size_b - 1 - distance);
}

SharedMemory find_shared_memory(const RunTensor* tensors, std::size_t count) {
  // Ranges tell nearly always, and in no time.
  ByteRange ranges[kMostRunTensors];
  for (std::size_t i = 0; i < count; ++i) {
    if (tensors[i].view == nullptr) continue;
    ranges[i] = range_of(*tensors[i].view);
    if (!tensors[i].is_written) continue;
    for (std::size_t j = 0; j < i; ++j) {
      if (tensors[j].view != nullptr && ranges[i].meets(ranges[j]) &&
          overlap(*tensors[i].view, *tensors[j].view)) {
        return {&tensors[i], &tensors[j]};
      }
    }
  }
  return {};
}

bool reaches_into(const TensorView& view, const void* memory, std::size_t bytes) {
  return !is_empty(view) && bytes > 0 && range_of(view).meets(range_of(memory, bytes));
}

void write_zeros(const TensorView& view) {
  if (!is_empty(view)) write_zeros_from(view, view.data, 0);
}

bool has_overlapping_elements(const TensorView& view) {
  if (is_empty(view)) return false;
  const std::int64_t size = static_cast<std::int64_t>(size_of(view.dtype));
  // Two elements differ by sum(d[i] * stride[i]) with |d[i]| < shape[i]. For the first axis that
  // differs d is positive (else swap the two elements); shift the later ones to start at zero.
  for (int lead = 0; lead < view.ndim; ++lead) {
    if (view.shape[lead] == 1) continue;
    const std::int64_t lead_step = std::abs(view.stride_bytes[lead]);
    CombinationSearch search;
    search.add(lead_step, view.shape[lead] - 2);
    std::int64_t shift = lead_step;
    if (lead_step == 0) return true;
    for (int i = lead + 1; i < view.ndim; ++i) {
      const std::int64_t step = std::abs(view.stride_bytes[i]);
      search.add(step, 2 * (view.shape[i] - 1));
      shift -= step * (view.shape[i] - 1);
    }
    if (search.exists(-size + 1 - shift, size - 1 - shift)) return true;
  }
  return false;
}

}  // namespace backops

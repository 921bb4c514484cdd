// What the files that use oneDNN share. Its own threads are not used: each task runs a primitive on
// one thread of our pool, so no second pool competes for the cores.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <dnnl.hpp>
#include <string>

namespace backops {

// Primitives are made for, and run on, as many OpenMP threads as the calling thread may start.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

// Never destroyed: work that is still queued when the process ends may use it.
inline const dnnl::engine& onednn_cpu() {
  static const dnnl::engine& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

inline dnnl::primitive_attr with_own_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

inline dnnl::memory memory_at(const dnnl::memory::desc& desc, const void* data) {
  return dnnl::memory(desc, onednn_cpu(), const_cast<void*>(data));
}

inline dnnl::memory scratchpad_at(const dnnl::primitive& primitive, void* data) {
  const_dnnl_memory_desc_t needed =
      dnnl_primitive_desc_query_md(primitive.get_primitive_desc(), dnnl_query_scratchpad_md, 0);
  dnnl_memory_t raw = nullptr;
  dnnl::error::wrap_c_api(dnnl_memory_create(&raw, needed, onednn_cpu().get(), data),
                          "no memory object");
  return dnnl::memory(raw);
}

// Parts that add up to `total`, as equal as can be; larger ones come first.
struct EvenParts {
  std::int64_t total = 1, count = 1;

  std::int64_t smaller() const { return total / count; }
  std::int64_t larger() const { return (total + count - 1) / count; }
  bool is_larger(std::int64_t index) const { return index < total % count; }
  std::int64_t first(std::int64_t index) const {
    return total / count * index + std::min(index, total % count);
  }
};

// What computes the parts, which have two sizes at most.
template <class T>
struct ByPart {
  template <class Make>
  ByPart(const EvenParts& parts, const Make& make)
      : smaller(make(parts.smaller())),
        larger(parts.is_larger(0) ? make(parts.larger()) : smaller) {}
  ByPart() = default;

  const T& of(const EvenParts& parts, std::int64_t index) const {
    return parts.is_larger(index) ? larger : smaller;
  }
  std::size_t scratch_bytes() const {
    return std::max(smaller.scratch_bytes(), larger.scratch_bytes());
  }

  T smaller, larger;
};

}  // namespace backops

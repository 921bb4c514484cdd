// One call from XLA: its operands, its attributes, and how it says no.
#pragma once

#include <cstdint>

#include "base/tensor.h"
#include "python/xla_abi.h"

namespace backops::xla {

// An operand whose axes before the last `ndim` are the axes of vmap: that many tensors, or one for
// all where an axis has size 1.
struct Batch {
  const std::int64_t* batch_dims;
  int batch_ndim;
  TensorView first;  // dense, of `ndim` axes

  std::int64_t count() const;
  // Tensor `i` of as many as `dims` (batch_ndim of them) say.
  TensorView at(std::int64_t i, const std::int64_t* dims) const;
};

// These throw backops::Error where the call is not what it should be.
Batch read_batch(const Operands& operands, std::int64_t index, const char* name, int ndim);
void read_attribute(const Call& call, const char* name, std::int64_t* values, std::size_t count);
std::int64_t read_attribute(const Call& call, const char* name);
// One to three; `name` is that of an attribute.
int read_rank(const Call& call, const char* name);

// Runs `work(call)` and tells XLA what it throws; tells it our version when that is what it asks.
Error* handle(Call* call, const char* function, void (*work)(const Call& call)) noexcept;

}  // namespace backops::xla

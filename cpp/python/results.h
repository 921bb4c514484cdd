// Where results and scratch memory are.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

#include "python/arrays.h"

namespace backops::python {

// The array a result goes to: the caller's or a new one.
struct Result {
  nanobind::handle given;
  Array array{};     // of the caller
  NewArray fresh{};  // otherwise

  const TensorView& view() const { return given.is_none() ? fresh.view : array.view; }

  // Before the caller's array is written. A new one is nobody's yet.
  void announce() const {
    if (!given.is_none()) mark_written(given);
  }

  nanobind::object finish() const {
    return given.is_none() ? fresh.finish() : nanobind::borrow(given);
  }
};

// `name` is for messages. A new array has the type and layout of grad_output, see new_array.
Result make_result(nanobind::handle out, const char* name, nanobind::handle grad_output,
                   const Array& source, const std::int64_t* shape, int ndim, int rank);

void check_writable(const Array& out, const char* name);

// What the caller gave as workspace, of at least `needed` bytes; nothing for None.
Memory read_workspace(nanobind::handle workspace, std::size_t needed);

// Each calling thread keeps the workspace of its last calls: for pooling at most 1 MB per worker,
// for convolution up to this much. New memory would cost a page fault per 4 KB at every call.
constexpr std::size_t kMostKeptBytes = std::size_t{256} << 20;
char* own_workspace(std::size_t bytes);

}  // namespace backops::python

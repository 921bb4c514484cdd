// Arrays of NumPy, PyTorch, JAX and whatever else speaks DLPack, as tensor views and back. Nothing
// is copied, and no framework is imported that the caller has not.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "base/tensor.h"

namespace backops::python {

// Which exchange an array came through; results go back the same way.
enum class Origin : std::uint8_t { numpy, dlpack };

struct Array {
  TensorView view;
  Origin origin;
  bool read_only;
  nanobind::object owner;  // keeps the memory while the view is used
};

// Must be called once, before anything else here.
void import_numpy();

// Throws Error naming `argument` (in braces, see Error) for what is no usable array.
Array view_of(nanobind::handle object, const std::string& argument);

// Writable contiguous memory of any dtype.
struct Memory {
  char* data;
  std::size_t bytes;
  nanobind::object owner;
};
Memory memory_of(nanobind::handle object, const std::string& argument);

// Shape and dtype of an operand of which nothing else is used: an array or a sequence of ints.
struct ShapeOf {
  int ndim;
  std::int64_t shape[kMaxDims];
  std::string dtype;  // empty for a bare shape
};
ShapeOf shape_of(nanobind::handle object, const std::string& argument);

// A new array of `like`'s type and dtype, with `rank` spatial axes. Channels-last if `like` is that
// and not C-contiguous too; always C-contiguous for rank 0.
struct NewArray {
  nanobind::object object;
  TensorView view;
  nanobind::object importer;  // of the array's library, which may copy: call finish() once written

  nanobind::object finish() const { return importer.is_valid() ? importer(object) : object; }
};
NewArray new_array(nanobind::handle like_object, const Array& like, const std::int64_t* shape,
                   int ndim, int rank);

// Tells PyTorch that a tensor's values have changed, so that autograd can refuse to use them where
// it had kept the old ones. To be called before they do: Python code runs here, and may raise what
// a signal handler raises.
void mark_written(nanobind::handle object);

// A plain int or anything with __index__; false if it is none or does not fit 64 bits.
bool as_int64(nanobind::handle object, std::int64_t* result);

// repr() cut to a length that fits a message.
std::string short_repr(nanobind::handle object);

}  // namespace backops::python

// Where arrays are, for the C interfaces.
#include "python/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "base/error.h"
#include "python/arrays.h"
#include "python/results.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

std::uintptr_t address_of_memory(nb::handle object, const char* argument, std::size_t bytes) {
  const Memory memory = memory_of(object, argument);
  if (memory.bytes < bytes) {
    throw Error(ErrorKind::param, argument, "memory of " + std::to_string(memory.bytes) + " bytes",
                "expected at least " + std::to_string(bytes));
  }
  return reinterpret_cast<std::uintptr_t>(memory.data);
}

// Of a tensor's first element. Arrays of dtypes that no operator has are just memory.
std::uintptr_t address_of_tensor(nb::handle object, const char* argument, bool writes) {
  try {
    const Array array = view_of(object, argument);
    if (writes) check_writable(array, argument);
    if (writes) mark_written(object);
    return reinterpret_cast<std::uintptr_t>(array.view.data);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::dtype) throw;
    return address_of_memory(object, argument, 0);
  }
}

// The address of a tensor's first element, of its lowest byte, and the bytes from there on.
std::tuple<std::uintptr_t, std::uintptr_t, std::size_t> span_of_tensor(nb::handle object,
                                                                       const char* argument) {
  const std::uintptr_t address = address_of_tensor(object, argument, false);
  try {
    const ByteRange range = range_of(view_of(object, argument).view);
    return {address, range.begin, range.size()};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::dtype) throw;
    return {address, address, memory_of(object, argument).bytes};
  }
}

}  // namespace

void bind_addresses(nb::module_& m) {
  using namespace nb::literals;
  m.def("address_of_memory", address_of_memory, "object"_a.none(), "argument"_a, "bytes"_a);
  m.def("address_of_tensor", address_of_tensor, "object"_a.none(), "argument"_a, "writes"_a);
  m.def("span_of_tensor", span_of_tensor, "object"_a.none(), "argument"_a);
}

}  // namespace backops::python

// What an array of any library shows of itself through DLPack.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "base/dtype.h"
#include "python/dlpack.h"

namespace backops::python {

// The exchange table of an array's type (DLPack 1.3), or null.
const dlpack::ExchangeApi* exchange_api(nanobind::handle object);

struct Exchanged {
  dlpack::Tensor tensor;
  bool read_only;
  nanobind::object owner;  // keeps what `tensor` points to; none where the array itself does
};

// What an object shows that speaks DLPack, by the table of its type or by __dlpack__; nothing for
// one that does not. With `for_memory`, memory that no CPU can read is an Error naming `argument`,
// and so are values that the memory does not have yet. An array that gives no data is one always.
std::optional<Exchanged> exchange(nanobind::handle object, const std::string& argument,
                                  bool for_memory);

void check_device(dlpack::Device device, const std::string& argument);
// PyTorch has tensors with a shape and no storage behind it: fake ones, wrappers, freed ones.
void check_memory(const dlpack::Tensor& tensor, const std::string& argument);

// False for a dtype that no operator has.
bool dlpack_dtype(dlpack::DataType type, DType* dtype);
std::string dlpack_dtype_name(dlpack::DataType type);

}  // namespace backops::python

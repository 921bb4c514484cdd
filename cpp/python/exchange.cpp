#include "python/exchange.h"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "base/error.h"
#include "python/arrays.h"
#include "python/errors.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

// DLPack has no word for PyTorch's lazily negated views: their memory holds the opposite sign.
void check_not_negated(nb::handle object, const std::string& argument) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const nb::object negated = nb::steal(PyObject_CallMethodNoArgs(object.ptr(), name));
  if (!negated.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) nb::raise_python_error();
    PyErr_Clear();  // not PyTorch
  }
  if (negated.ptr() != Py_True) return;
  throw Error(ErrorKind::layout, argument, "a lazily negated view",
              "expected memory with its final values, as resolve_neg() gives");
}

void check_version(const dlpack::ManagedVersioned& managed, const std::string& argument) {
  if (managed.version.major == 1) return;
  throw Error(ErrorKind::layout, argument,
              "an array of DLPack " + std::to_string(managed.version.major) + "." +
                  std::to_string(managed.version.minor),
              "expected version 1");
}

// The memory of an array whose table has no way to show it without handing it over.
Exchanged take_over(const dlpack::ExchangeApi& api, nb::handle object,
                    const std::string& argument) {
  dlpack::ManagedVersioned* managed = nullptr;
  if (api.from_object(object.ptr(), &managed) != 0) raise_no_data(argument);
  nb::capsule owner(managed, [](void* pointer) noexcept {
    auto* const mine = static_cast<dlpack::ManagedVersioned*>(pointer);
    if (mine->deleter != nullptr) mine->deleter(mine);
  });
  check_version(*managed, argument);
  return {managed->tensor, (managed->flags & dlpack::kReadOnly) != 0, std::move(owner)};
}

nb::object ask_for_capsule(nb::handle object) {
  try {
    return object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // a producer older than max_version
  }
  return object.attr("__dlpack__")();
}

nb::object dlpack_capsule(nb::handle object, const std::string& argument) {
  try {
    return ask_for_capsule(object);
  } catch (nb::python_error& error) {
    if (!is_refusal(error)) throw;
    // PyTorch refuses tensors that require grad; their data is all that is wanted here.
    const nb::object detach = optional_attribute(object, "detach");
    if (!detach.is_valid()) throw NoData(argument, error);
    return data_of(argument, [&] { return ask_for_capsule(detach()); });
  }
}

Exchanged through_api(const dlpack::ExchangeApi& api, nb::handle object,
                      const std::string& argument) {
  if (api.view_object == nullptr) return take_over(api, object, argument);
  Exchanged result{};
  if (api.view_object(object.ptr(), &result.tensor) != 0) raise_no_data(argument);
  return result;
}

bool comes_from_jax(nb::handle object) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  const auto module = nb::cast<std::string>(nb::str(type.attr("__module__")));
  return module.rfind("jax", 0) == 0;
}

Exchanged through_capsule(nb::handle object, const std::string& argument) {
  const nb::object capsule = dlpack_capsule(object, argument);
  // The capsule is not consumed: it frees the tensor itself when the owner goes.
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    const auto* managed = static_cast<dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    check_version(*managed, argument);
    const bool read_only = (managed->flags & dlpack::kReadOnly) != 0 || comes_from_jax(object);
    return {managed->tensor, read_only, capsule};
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0) {
    const auto* managed =
        static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    return {managed->tensor, comes_from_jax(object), capsule};
  }
  throw Error(ErrorKind::dtype, argument, short_repr(object), "expected an array");
}

// Before memory is asked for that no CPU can read.
void check_dlpack_device(nb::handle object, const std::string& argument) {
  const nb::object ask = optional_attribute(object, "__dlpack_device__");
  if (!ask.is_valid()) return;
  const nb::object device = data_of(argument, [&] {
    const nb::object pair = ask();
    return nb::object(nb::make_tuple(nb::int_(nb::object(pair[0])), nb::int_(nb::object(pair[1]))));
  });
  check_device({nb::cast<std::int32_t>(device[0]), nb::cast<std::int32_t>(device[1])}, argument);
}

}  // namespace

// Not cached: a cache would have to know when a type dies.
const dlpack::ExchangeApi* exchange_api(nb::handle object) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  const nb::object capsule = optional_attribute(type, "__dlpack_c_exchange_api__");
  if (!capsule.is_valid() || PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) {
    return nullptr;
  }
  auto* api =
      static_cast<dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (api != nullptr && api->version.major != 1) api = api->older;
  const bool is_whole = api != nullptr && api->allocate != nullptr && api->from_object != nullptr &&
                        api->to_object != nullptr;
  return is_whole ? api : nullptr;
}

std::optional<Exchanged> exchange(nb::handle object, const std::string& argument, bool for_memory) {
  if (const dlpack::ExchangeApi* const api = exchange_api(object)) {
    const Exchanged result = through_api(*api, object, argument);
    if (for_memory) check_not_negated(object, argument);
    return result;
  }
  if (!optional_attribute(object, "__dlpack__").is_valid()) return std::nullopt;
  if (for_memory) check_dlpack_device(object, argument);
  return through_capsule(object, argument);
}

void check_device(dlpack::Device device, const std::string& argument) {
  if (device.type == dlpack::kCpu || device.type == dlpack::kCudaHost ||
      device.type == dlpack::kRocmHost) {
    return;
  }
  throw Error(ErrorKind::layout, argument,
              "on DLPack device " + std::to_string(device.type) + ":" + std::to_string(device.id),
              "expected an array on the CPU");
}

void check_memory(const dlpack::Tensor& tensor, const std::string& argument) {
  const bool empty =
      std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim;
  if (tensor.data != nullptr || empty) return;
  throw Error(ErrorKind::layout, argument, "an array without memory",
              "expected a dense array on the CPU");
}

bool dlpack_dtype(dlpack::DataType type, DType* dtype) {
  if (type.lanes != 1) return false;
  const int key = type.code * 256 + type.bits;
  switch (key) {
    case dlpack::kFloat * 256 + 16: *dtype = DType::float16; return true;
    case dlpack::kFloat * 256 + 32: *dtype = DType::float32; return true;
    case dlpack::kFloat * 256 + 64: *dtype = DType::float64; return true;
    case dlpack::kBfloat * 256 + 16: *dtype = DType::bfloat16; return true;
    default: return false;
  }
}

std::string dlpack_dtype_name(dlpack::DataType type) {
  const std::string bits = std::to_string(type.bits);
  switch (type.code) {
    case dlpack::kInt: return "int" + bits;
    case dlpack::kUnsigned: return "uint" + bits;
    case dlpack::kFloat: return "float" + bits;
    case dlpack::kBfloat: return "bfloat" + bits;
    case dlpack::kComplex: return "complex" + bits;
    case dlpack::kBool: return "bool";
    default: return "DLPack type " + std::to_string(type.code) + " of " + bits + " bits";
  }
}

}  // namespace backops::python

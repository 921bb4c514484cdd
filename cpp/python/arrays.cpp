#include "python/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <new>

#include "base/error.h"
#include "python/dlpack.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

constexpr const char* kSupportedDtypes = "expected float16, bfloat16, float32 or float64";
constexpr std::size_t kArrayAlignment = 64;  // what XLA asks of memory it does not copy

PyObject* g_bfloat16_type = nullptr;  // ml_dtypes.bfloat16

void take_shape(TensorView& view, int ndim, const std::int64_t* shape,
                const std::string& argument) {
  if (ndim > kMaxDims) {
    throw Error(ErrorKind::shape, argument, "an array with " + std::to_string(ndim) + " axes",
                "expected at most " + std::to_string(kMaxDims));
  }
  view.ndim = ndim;
  std::copy(shape, shape + ndim, view.shape);
}

// ---- NumPy -------------------------------------------------------------------------------------

bool numpy_dtype(PyArray_Descr* descr, DType* dtype) {
  switch (descr->type_num) {
    case NPY_HALF: *dtype = DType::float16; break;
    case NPY_FLOAT: *dtype = DType::float32; break;
    case NPY_DOUBLE: *dtype = DType::float64; break;
    default:
      if (reinterpret_cast<PyObject*>(descr->typeobj) != g_bfloat16_type) return false;
      *dtype = DType::bfloat16;
  }
  return descr->byteorder != NPY_OPPBYTE;
}

Array view_of_numpy(PyArrayObject* array, const std::string& argument) {
  Array result{{}, Origin::numpy, PyArray_ISWRITEABLE(array) == 0, {}};
  TensorView& view = result.view;
  if (!numpy_dtype(PyArray_DESCR(array), &view.dtype)) {
    const nb::handle dtype(reinterpret_cast<PyObject*>(PyArray_DESCR(array)));
    throw Error(ErrorKind::dtype, argument, nb::cast<std::string>(nb::str(dtype)),
                kSupportedDtypes);
  }
  static_assert(sizeof(npy_intp) == sizeof(std::int64_t), "64-bit only");
  const npy_intp* const shape = PyArray_DIMS(array);
  take_shape(view, PyArray_NDIM(array), reinterpret_cast<const std::int64_t*>(shape), argument);
  std::copy(PyArray_STRIDES(array), PyArray_STRIDES(array) + view.ndim, view.stride_bytes);
  view.data = PyArray_BYTES(array);
  return result;
}

// ---- DLPack ------------------------------------------------------------------------------------

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

void check_device(dlpack::Device device, const std::string& argument) {
  if (device.type == dlpack::kCpu || device.type == dlpack::kCudaHost ||
      device.type == dlpack::kRocmHost) {
    return;
  }
  throw Error(ErrorKind::layout, argument,
              "on DLPack device " + std::to_string(device.type) + ":" + std::to_string(device.id),
              "expected an array on the CPU");
}

// PyTorch has tensors with a shape and no storage behind it: fake ones, wrappers, freed ones.
void check_memory(const dlpack::Tensor& tensor, const std::string& argument) {
  const bool empty =
      std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim;
  if (tensor.data != nullptr || empty) return;
  throw Error(ErrorKind::layout, argument, "an array without memory",
              "expected a dense array on the CPU");
}

TensorView view_of_dlpack(const dlpack::Tensor& tensor, const std::string& argument) {
  TensorView view{};
  check_device(tensor.device, argument);
  if (!dlpack_dtype(tensor.dtype, &view.dtype)) {
    throw Error(ErrorKind::dtype, argument, dlpack_dtype_name(tensor.dtype), kSupportedDtypes);
  }
  take_shape(view, tensor.ndim, tensor.shape, argument);
  check_memory(tensor, argument);
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  std::int64_t dense = static_cast<std::int64_t>(size_of(view.dtype));
  for (int i = view.ndim - 1; i >= 0; --i) {
    view.stride_bytes[i] =
        tensor.strides ? tensor.strides[i] * static_cast<std::int64_t>(size_of(view.dtype)) : dense;
    dense *= view.shape[i];
  }
  return view;
}

// The exchange table of an array's type, or null. Not cached: a cache would have to
// know when a type dies.
const dlpack::ExchangeApi* exchange_api(nb::handle object) {
  const nb::object type = nb::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_CheckExact(capsule.ptr())) return nullptr;
  auto* api =
      static_cast<dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) PyErr_Clear();
  while (api != nullptr && api->version.major != 1) api = api->older;
  return api != nullptr && api->view_object != nullptr ? api : nullptr;
}

// The first line: PyTorch adds a C++ stack to its errors.
std::string first_line(nb::handle error) {
  const auto text = nb::cast<std::string>(nb::str(error));
  return text.substr(0, text.find('\n'));
}

Error no_data(const std::string& argument, const nb::python_error& error) {
  return Error(ErrorKind::layout, argument,
               "an array that gives no data (" + first_line(error.value()) + ")",
               "expected a dense array on the CPU");
}

// DLPack has no word for PyTorch's lazily negated views: their memory holds the opposite sign.
void check_not_negated(nb::handle object, const std::string& argument) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const nb::object negated = nb::steal(PyObject_CallMethodNoArgs(object.ptr(), name));
  if (!negated.is_valid()) {
    PyErr_Clear();  // not PyTorch
  } else if (negated.ptr() == Py_True) {
    throw Error(ErrorKind::layout, argument, "a lazily negated view",
                "expected memory with its final values, as resolve_neg() gives");
  }
}

Array view_through_api(const dlpack::ExchangeApi& api, nb::handle object,
                       const std::string& argument) {
  dlpack::Tensor tensor{};
  if (api.view_object(object.ptr(), &tensor) != 0) {
    const nb::python_error error;
    throw no_data(argument, error);
  }
  check_not_negated(object, argument);
  return {view_of_dlpack(tensor, argument), Origin::exchange_api, false, {}};
}

nb::object ask_for_capsule(nb::handle object) {
  try {
    return object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // a producer older than max_version
    return object.attr("__dlpack__")();
  }
}

// Runs `ask`, turning what Python raises into an Error; interrupts pass.
template <class Ask>
nb::object data_of(const std::string& argument, const Ask& ask) {
  try {
    return ask();
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    throw no_data(argument, error);
  }
}

nb::object dlpack_capsule(nb::handle object, const std::string& argument) {
  try {
    return ask_for_capsule(object);
  } catch (nb::python_error& error) {
    // PyTorch refuses tensors that require grad; their data is all that is wanted here.
    if (error.matches(PyExc_Exception) && nb::hasattr(object, "detach")) {
      return data_of(argument, [&] { return ask_for_capsule(object.attr("detach")()); });
    }
    if (!error.matches(PyExc_Exception)) throw;
    throw no_data(argument, error);
  }
}

void check_dlpack_device(nb::handle object, const std::string& argument) {
  if (!nb::hasattr(object, "__dlpack_device__")) return;
  const nb::object device = data_of(argument, [&] {
    const nb::object pair = object.attr("__dlpack_device__")();
    return nb::object(nb::make_tuple(nb::int_(nb::object(pair[0])), nb::int_(nb::object(pair[1]))));
  });
  check_device({nb::cast<std::int32_t>(device[0]), nb::cast<std::int32_t>(device[1])}, argument);
}

bool comes_from_jax(nb::handle object) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  const auto module = nb::cast<std::string>(nb::str(type.attr("__module__")));
  return module.rfind("jax", 0) == 0;
}

Array view_through_capsule(nb::handle object, const std::string& argument) {
  check_dlpack_device(object, argument);
  const nb::object capsule = dlpack_capsule(object, argument);
  // The capsule is not consumed: it frees the tensor itself when `owner` goes.
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* managed = static_cast<dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    const bool read_only = (managed->flags & dlpack::kReadOnly) != 0 || comes_from_jax(object);
    return {view_of_dlpack(managed->tensor, argument), Origin::dlpack, read_only, capsule};
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    const auto* managed =
        static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    return {view_of_dlpack(managed->tensor, argument), Origin::dlpack, comes_from_jax(object),
            capsule};
  }
  throw Error(ErrorKind::dtype, argument, short_repr(object), "expected an array");
}

// ---- results -----------------------------------------------------------------------------------

bool is_dense(const TensorView& view, const int* order) {
  std::int64_t expected = static_cast<std::int64_t>(size_of(view.dtype));
  for (int i = view.ndim - 1; i >= 0; --i) {
    const int axis = order[i];
    if (view.shape[axis] != 1 && view.stride_bytes[axis] != expected) return false;
    expected *= view.shape[axis];
  }
  return true;
}

// The axes in memory order for a result like `view`: as they are, or channels last.
void memory_order(const TensorView& view, int rank, int* order) {
  const int channels = view.ndim - rank - 1;
  int channels_last[kMaxDims] = {};
  for (int i = 0; i < view.ndim; ++i) {
    order[i] = i;
    channels_last[i] = i < channels ? i : i + 1 < view.ndim ? i + 1 : channels;
  }
  if (is_dense(view, order) || !is_dense(view, channels_last)) return;
  std::copy(channels_last, channels_last + view.ndim, order);
}

TensorView dense_view(char* data, DType dtype, const std::int64_t* shape, int ndim,
                      const int* order) {
  TensorView view{};
  view.data = data;
  view.dtype = dtype;
  view.ndim = ndim;
  std::copy(shape, shape + ndim, view.shape);
  std::int64_t stride = static_cast<std::int64_t>(size_of(dtype));
  for (int i = ndim - 1; i >= 0; --i) {
    view.stride_bytes[order[i]] = stride;
    stride *= shape[order[i]];
  }
  return view;
}

struct Permutation {
  std::int64_t shape[kMaxDims];  // of the dense array, in memory order
  npy_intp back[kMaxDims];       // axis i of the result is axis back[i] of the dense array
  bool is_identity;
};

Permutation permutation(const std::int64_t* shape, int ndim, const int* order) {
  Permutation result{};
  result.is_identity = true;
  for (int i = 0; i < ndim; ++i) {
    result.shape[i] = shape[order[i]];
    result.back[order[i]] = i;
    result.is_identity &= order[i] == i;
  }
  return result;
}

NewArray new_numpy(PyArray_Descr* descr, DType dtype, const std::int64_t* shape, int ndim,
                   const int* order) {
  Permutation p = permutation(shape, ndim, order);
  Py_INCREF(descr);
  nb::object array = nb::steal(PyArray_NewFromDescr(&PyArray_Type, descr, ndim,
                                                    reinterpret_cast<npy_intp*>(p.shape), nullptr,
                                                    nullptr, 0, nullptr));
  if (!array.is_valid()) nb::raise_python_error();
  char* const data = PyArray_BYTES(reinterpret_cast<PyArrayObject*>(array.ptr()));
  if (!p.is_identity) {
    PyArray_Dims back{p.back, ndim};
    array = nb::steal(PyArray_Transpose(reinterpret_cast<PyArrayObject*>(array.ptr()), &back));
    if (!array.is_valid()) nb::raise_python_error();
  }
  return {array, dense_view(data, dtype, shape, ndim, order), {}};
}

PyArray_Descr* new_descr(DType dtype) {
  switch (dtype) {
    case DType::float16: return PyArray_DescrFromType(NPY_HALF);
    case DType::float32: return PyArray_DescrFromType(NPY_FLOAT);
    case DType::float64: return PyArray_DescrFromType(NPY_DOUBLE);
    default: break;
  }
  PyArray_Descr* descr = nullptr;
  if (PyArray_DescrConverter(g_bfloat16_type, &descr) != NPY_SUCCEED) nb::raise_python_error();
  return descr;
}

dlpack::DataType dlpack_type_of(DType dtype) {
  return {dtype == DType::bfloat16 ? dlpack::kBfloat : dlpack::kFloat,
          static_cast<std::uint8_t>(8 * size_of(dtype)), 1};
}

NewArray new_through_api(const dlpack::ExchangeApi& api, DType dtype, const std::int64_t* shape,
                         int ndim, const int* order) {
  Permutation p = permutation(shape, ndim, order);
  dlpack::Tensor prototype{nullptr, {dlpack::kCpu, 0}, ndim, dlpack_type_of(dtype),
                           p.shape, nullptr,           0};
  dlpack::ManagedVersioned* managed = nullptr;
  std::string reason;
  const auto set_error = [](void* context, const char*, const char* message) {
    *static_cast<std::string*>(context) = message;
  };
  if (api.allocate(&prototype, &managed, &reason, set_error) != 0) {
    PyErr_SetString(PyExc_MemoryError, reason.c_str());
    nb::raise_python_error();
  }
  char* const data = static_cast<char*>(managed->tensor.data) + managed->tensor.byte_offset;
  void* raw = nullptr;
  if (api.to_object(managed, &raw) != 0) {
    if (managed->deleter != nullptr) managed->deleter(managed);
    nb::raise_python_error();
  }
  nb::object array = nb::steal(static_cast<PyObject*>(raw));
  if (!p.is_identity) {
    nb::list back;
    for (int i = 0; i < ndim; ++i) back.append(static_cast<std::int64_t>(p.back[i]));
    array = array.attr("permute")(back);
  }
  return {array, dense_view(data, dtype, shape, ndim, order), {}};
}

// The from_dlpack of the array's own library, or none.
nb::object importer_of(nb::handle array) {
  if (nb::hasattr(array, "__array_namespace__")) {
    const nb::object space = array.attr("__array_namespace__")();
    if (nb::hasattr(space, "from_dlpack")) return space.attr("from_dlpack");
  }
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(array.ptr())));
  const auto module = nb::cast<std::string>(nb::str(type.attr("__module__")));
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  const nb::object root =
      modules.attr("get")(nb::cast(module.substr(0, module.find('.'))), nb::none());
  return nb::getattr(root, "from_dlpack", nb::none());
}

NewArray new_through_dlpack(const nb::object& importer, DType dtype, const std::int64_t* shape,
                            int ndim) {
  int order[kMaxDims];
  for (int i = 0; i < ndim; ++i) order[i] = i;
  const std::int64_t bytes = std::max<std::int64_t>(1, dense_bytes(shape, ndim, dtype));
  char* const data = static_cast<char*>(
      ::operator new(static_cast<std::size_t>(bytes), std::align_val_t{kArrayAlignment}));
  const nb::capsule owner(
      data, [](void* p) noexcept { ::operator delete(p, std::align_val_t{kArrayAlignment}); });
  const dlpack::DataType type = dlpack_type_of(dtype);
  std::size_t sizes[kMaxDims];
  for (int i = 0; i < ndim; ++i) sizes[i] = static_cast<std::size_t>(shape[i]);
  const nb::ndarray<nb::array_api> memory(data, static_cast<std::size_t>(ndim), sizes, owner,
                                          nullptr,
                                          nb::dlpack::dtype{type.code, type.bits, type.lanes});
  return {nb::cast(memory), dense_view(data, dtype, shape, ndim, order), importer};
}

}  // namespace

void import_numpy() {
  if (_import_array() < 0) nb::raise_python_error();
  g_bfloat16_type = nb::object(nb::module_::import_("ml_dtypes").attr("bfloat16")).release().ptr();
}

Array view_of(nb::handle object, const std::string& argument) {
  if (PyArray_Check(object.ptr())) {
    return view_of_numpy(reinterpret_cast<PyArrayObject*>(object.ptr()), argument);
  }
  if (const dlpack::ExchangeApi* api = exchange_api(object)) {
    return view_through_api(*api, object, argument);
  }
  if (nb::hasattr(object, "__dlpack__")) return view_through_capsule(object, argument);
  throw Error(ErrorKind::dtype, argument, short_repr(object),
              "expected an array (NumPy, PyTorch, JAX or any other with DLPack)");
}

Memory memory_of(nb::handle object, const std::string& argument) {
  const auto refuse = [&]() {
    return Error(ErrorKind::layout, argument, short_repr(object),
                 "expected a writable contiguous array, such as numpy.empty(n, numpy.uint8)");
  };
  if (PyArray_Check(object.ptr())) {
    auto* const array = reinterpret_cast<PyArrayObject*>(object.ptr());
    if (!PyArray_ISWRITEABLE(array) || !PyArray_IS_C_CONTIGUOUS(array)) throw refuse();
    return {PyArray_BYTES(array), static_cast<std::size_t>(PyArray_NBYTES(array)), {}};
  }
  if (const dlpack::ExchangeApi* api = exchange_api(object)) {
    dlpack::Tensor tensor{};
    if (api->view_object(object.ptr(), &tensor) != 0) {
      const nb::python_error error;
      throw no_data(argument, error);
    }
    check_device(tensor.device, argument);
    check_memory(tensor, argument);
    std::int64_t count = 1;
    for (int i = tensor.ndim - 1; i >= 0; --i) {
      const bool dense = !tensor.strides || tensor.shape[i] == 1 || tensor.strides[i] == count;
      if (!dense) throw refuse();
      count *= tensor.shape[i];
    }
    return {static_cast<char*>(tensor.data) + tensor.byte_offset,
            static_cast<std::size_t>(count * tensor.dtype.bits * tensor.dtype.lanes / 8),
            {}};
  }
  const nb::object view = nb::steal(PyMemoryView_FromObject(object.ptr()));
  if (!view.is_valid()) {
    PyErr_Clear();
    throw refuse();
  }
  const Py_buffer* const buffer = PyMemoryView_GET_BUFFER(view.ptr());
  if (buffer->readonly != 0 || PyBuffer_IsContiguous(buffer, 'C') == 0) throw refuse();
  return {static_cast<char*>(buffer->buf), static_cast<std::size_t>(buffer->len), view};
}

void mark_written(nb::handle object, const Array& array) {
  if (array.origin != Origin::exchange_api) return;
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  const nb::object torch = nb::steal(PyMapping_GetItemString(modules.ptr(), "torch"));
  if (!torch.is_valid()) return PyErr_Clear();
  static PyObject* const increment =
      nb::object(torch.attr("autograd").attr("graph").attr("increment_version")).release().ptr();
  // Tensors made in inference mode count no versions, and say so.
  if (!nb::steal(PyObject_CallOneArg(increment, object.ptr())).is_valid()) PyErr_Clear();
}

bool as_int64(nb::handle object, std::int64_t* result) {
  if (!PyIndex_Check(object.ptr())) return false;
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) nb::raise_python_error();
    PyErr_Clear();
    return false;
  }
  int overflow = 0;
  *result = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  return overflow == 0;
}

std::string short_repr(nb::handle object) {
  constexpr Py_ssize_t kLongest = 60;
  nb::object text = nb::steal(PyObject_Repr(object.ptr()));
  if (!text.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) nb::raise_python_error();
    PyErr_Clear();
    return "an object without repr";
  }
  const bool is_long = PyUnicode_GetLength(text.ptr()) > kLongest;
  if (is_long) text = nb::steal(PyUnicode_Substring(text.ptr(), 0, kLongest - 3));
  // A repr may hold what UTF-8 cannot, and line ends and zeros that a message should not.
  const nb::object bytes =
      nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) nb::raise_python_error();
  std::string result(PyBytes_AS_STRING(bytes.ptr()),
                     static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr())));
  std::replace_if(result.begin(), result.end(), [](char c) { return c == '\n' || c == '\0'; }, ' ');
  return is_long ? result + "..." : result;
}

namespace {

ShapeOf shape_from_sequence(nb::handle object, const std::string& argument) {
  ShapeOf result{};
  const std::size_t length = nb::len(object);
  if (length > kMaxDims) {
    throw Error(ErrorKind::shape, argument, short_repr(object),
                "expected at most " + std::to_string(kMaxDims) + " axes");
  }
  result.ndim = static_cast<int>(length);
  for (int i = 0; i < result.ndim; ++i) {
    if (!as_int64(object[i], &result.shape[i])) {
      throw Error(ErrorKind::shape, argument, short_repr(object), "expected a tuple of ints");
    }
  }
  return result;
}

ShapeOf shape_from_view(const Array& array) {
  ShapeOf result{};
  result.ndim = array.view.ndim;
  std::copy(array.view.shape, array.view.shape + result.ndim, result.shape);
  result.dtype = name_of(array.view.dtype);
  return result;
}

}  // namespace

ShapeOf shape_of(nb::handle object, const std::string& argument) {
  if (PyTuple_Check(object.ptr()) || PyList_Check(object.ptr())) {
    return shape_from_sequence(object, argument);
  }
  if (PyArray_Check(object.ptr())) return shape_from_view(view_of(object, argument));
  // Only the shape is used: a tensor without memory (PyTorch's meta device) will do.
  if (const dlpack::ExchangeApi* api = exchange_api(object)) {
    dlpack::Tensor tensor{};
    DType dtype;
    if (api->view_object(object.ptr(), &tensor) != 0) {
      PyErr_Clear();
    } else if (dlpack_dtype(tensor.dtype, &dtype) && tensor.ndim <= kMaxDims) {
      ShapeOf result{};
      result.ndim = tensor.ndim;
      std::copy(tensor.shape, tensor.shape + tensor.ndim, result.shape);
      result.dtype = name_of(dtype);
      return result;
    }
  }
  if (!nb::hasattr(object, "shape") || !nb::hasattr(object, "dtype")) {
    throw Error(ErrorKind::shape, argument, short_repr(object),
                "expected an array or a tuple of ints");
  }
  const nb::object shape = data_of(argument, [&] {
    const nb::object sizes = object.attr("shape");
    const nb::object tuple = nb::steal(PySequence_Tuple(sizes.ptr()));
    if (!tuple.is_valid()) nb::raise_python_error();
    return tuple;
  });
  ShapeOf result = shape_from_sequence(shape, argument);
  const nb::object dtype = data_of(argument, [&] {
    const nb::object type = object.attr("dtype");
    return nb::object(nb::str(nb::object(nb::getattr(type, "name", type))));
  });
  const auto name = nb::cast<std::string>(dtype);
  result.dtype = name.substr(name.rfind('.') + 1);  // torch.float32 -> float32
  return result;
}

NewArray new_array(nb::handle like_object, const Array& like, const std::int64_t* shape, int ndim,
                   int rank) {
  int order[kMaxDims];
  if (rank > 0) {
    memory_order(like.view, rank, order);
  } else {
    for (int i = 0; i < ndim; ++i) order[i] = i;
  }
  const DType dtype = like.view.dtype;
  if (like.origin == Origin::numpy) {
    PyArray_Descr* const descr = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(like_object.ptr()));
    return new_numpy(descr, dtype, shape, ndim, order);
  }
  if (like.origin == Origin::exchange_api) {
    return new_through_api(*exchange_api(like_object), dtype, shape, ndim, order);
  }
  const nb::object importer = importer_of(like_object);
  if (!importer.is_none()) return new_through_dlpack(importer, dtype, shape, ndim);
  const nb::object descr = nb::steal(reinterpret_cast<PyObject*>(new_descr(dtype)));
  return new_numpy(reinterpret_cast<PyArray_Descr*>(descr.ptr()), dtype, shape, ndim, order);
}

}  // namespace backops::python

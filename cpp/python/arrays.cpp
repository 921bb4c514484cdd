#include "python/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "python/dlpack.h"
#include "python/errors.h"
#include "python/exchange.h"
#include "python/pytorch.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

constexpr const char* kSupportedDtypes = "expected float16, bfloat16, float32 or float64";
constexpr std::size_t kArrayAlignment = 64;  // what XLA asks of memory it does not copy

PyObject* g_bfloat16_type = nullptr;  // ml_dtypes.bfloat16

void take_shape(TensorView& view, int ndim, const std::int64_t* shape,
                const std::string& argument) {
  if (ndim < 0 || ndim > kMaxDims) {
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
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_RuntimeError, "no reason given");
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
  const nb::object namespace_of = optional_attribute(array, "__array_namespace__");
  if (namespace_of.is_valid()) {
    const nb::object importer = optional_attribute(namespace_of(), "from_dlpack");
    if (importer.is_valid()) return importer;
  }
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(array.ptr())));
  const auto module = nb::cast<std::string>(nb::str(type.attr("__module__")));
  PyObject* const root =
      PyDict_GetItemString(PyImport_GetModuleDict(), module.substr(0, module.find('.')).c_str());
  return root == nullptr ? nb::object() : optional_attribute(root, "from_dlpack");
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
  const std::optional<Exchanged> given = exchange(object, argument, true);
  if (!given) {
    throw Error(ErrorKind::dtype, argument, short_repr(object),
                "expected an array (NumPy, PyTorch, JAX or any other with DLPack)");
  }
  return {view_of_dlpack(given->tensor, argument), Origin::dlpack, given->read_only, given->owner};
}

namespace {

Error no_plain_memory(nb::handle object, const std::string& argument) {
  return Error(ErrorKind::layout, argument, short_repr(object),
               "expected a writable contiguous array, such as numpy.empty(n, numpy.uint8)");
}

Memory memory_of_buffer(nb::handle object, const std::string& argument) {
  const nb::object view = nb::steal(PyMemoryView_FromObject(object.ptr()));
  if (!view.is_valid()) {
    clear_refusal();
    throw no_plain_memory(object, argument);
  }
  const Py_buffer* const buffer = PyMemoryView_GET_BUFFER(view.ptr());
  if (buffer->readonly != 0 || PyBuffer_IsContiguous(buffer, 'C') == 0) {
    throw no_plain_memory(object, argument);
  }
  return {static_cast<char*>(buffer->buf), static_cast<std::size_t>(buffer->len), view};
}

}  // namespace

Memory memory_of(nb::handle object, const std::string& argument) {
  if (PyArray_Check(object.ptr())) {
    auto* const array = reinterpret_cast<PyArrayObject*>(object.ptr());
    if (!PyArray_ISWRITEABLE(array) || !PyArray_IS_C_CONTIGUOUS(array)) {
      throw no_plain_memory(object, argument);
    }
    return {PyArray_BYTES(array), static_cast<std::size_t>(PyArray_NBYTES(array)), {}};
  }
  if (PyObject_CheckBuffer(object.ptr()) != 0) return memory_of_buffer(object, argument);
  const std::optional<Exchanged> given = exchange(object, argument, true);
  if (!given || given->read_only) throw no_plain_memory(object, argument);
  const dlpack::Tensor& tensor = given->tensor;
  check_device(tensor.device, argument);
  check_memory(tensor, argument);
  std::int64_t count = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    const bool dense = !tensor.strides || tensor.shape[i] == 1 || tensor.strides[i] == count;
    if (!dense) throw no_plain_memory(object, argument);
    count *= tensor.shape[i];
  }
  return {static_cast<char*>(tensor.data) + tensor.byte_offset,
          static_cast<std::size_t>(count * tensor.dtype.bits * tensor.dtype.lanes / 8),
          given->owner};
}

void mark_written(nb::handle object) {
  // Tensors made in inference mode count no versions.
  if (!is_pytorch_tensor(object) || nb::cast<bool>(object.attr("is_inference")())) return;
  static PyObject* const increment =
      nb::object(nb::module_::import_("torch.autograd.graph").attr("increment_version"))
          .release()
          .ptr();
  if (!nb::steal(PyObject_CallOneArg(increment, object.ptr())).is_valid()) nb::raise_python_error();
}

bool as_int64(nb::handle object, std::int64_t* result) {
  if (!PyIndex_Check(object.ptr())) return false;
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) {
    clear_refusal();
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
    clear_refusal();
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

ShapeOf shape_from_dlpack(const dlpack::Tensor& tensor, const std::string& argument) {
  TensorView view{};
  take_shape(view, tensor.ndim, tensor.shape, argument);
  ShapeOf result{};
  result.ndim = view.ndim;
  std::copy(view.shape, view.shape + view.ndim, result.shape);
  result.dtype = dlpack_dtype_name(tensor.dtype);
  return result;
}

ShapeOf shape_from_attributes(nb::handle sizes, nb::handle type, const std::string& argument) {
  const nb::object shape = data_of(argument, [&] {
    const nb::object tuple = nb::steal(PySequence_Tuple(sizes.ptr()));
    if (!tuple.is_valid()) nb::raise_python_error();
    return tuple;
  });
  ShapeOf result = shape_from_sequence(shape, argument);
  const nb::object dtype = data_of(argument, [&] {
    const nb::object name = optional_attribute(type, "name");
    return nb::object(nb::str(name.is_valid() ? name : nb::borrow(type)));
  });
  const auto name = nb::cast<std::string>(dtype);
  result.dtype = name.substr(name.rfind('.') + 1);  // torch.float32 -> float32
  return result;
}

}  // namespace

// Only the shape is used, so a tensor without memory will do (PyTorch's meta device), on any
// device.
ShapeOf shape_of(nb::handle object, const std::string& argument) {
  if (PyTuple_Check(object.ptr()) || PyList_Check(object.ptr())) {
    return shape_from_sequence(object, argument);
  }
  if (PyArray_Check(object.ptr())) return shape_from_view(view_of(object, argument));
  const dlpack::ExchangeApi* const api = exchange_api(object);
  if (api != nullptr && api->view_object != nullptr) {
    // What it does not show, its attributes may still tell: PyTorch's own names of dtypes, say.
    dlpack::Tensor tensor{};
    DType dtype;
    if (api->view_object(object.ptr(), &tensor) != 0) {
      if (PyErr_Occurred() != nullptr) clear_refusal();
    } else if (dlpack_dtype(tensor.dtype, &dtype)) {
      return shape_from_dlpack(tensor, argument);
    }
  }
  const nb::object sizes = optional_attribute(object, "shape");
  const nb::object type = optional_attribute(object, "dtype");
  if (sizes.is_valid() && type.is_valid()) return shape_from_attributes(sizes, type, argument);
  const std::optional<Exchanged> given = exchange(object, argument, false);
  if (given) return shape_from_dlpack(given->tensor, argument);
  throw Error(ErrorKind::shape, argument, short_repr(object),
              "expected an array or a tuple of ints");
}

NewArray new_array(nb::handle like_object, const Array& like, const std::int64_t* shape, int ndim,
                   int rank) {
  int order[kMaxDims];
  if (rank > 0) {
    memory_order(like.view, rank, order);
  } else {
    std::iota(order, order + ndim, 0);
  }
  const DType dtype = like.view.dtype;
  if (like.origin == Origin::numpy) {
    PyArray_Descr* const descr = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(like_object.ptr()));
    return new_numpy(descr, dtype, shape, ndim, order);
  }
  if (const dlpack::ExchangeApi* const api = exchange_api(like_object)) {
    // PyTorch's tensors can be permuted; results of other types are C-contiguous.
    if (!std::is_sorted(order, order + ndim) &&
        !optional_attribute(like_object, "permute").is_valid()) {
      std::iota(order, order + ndim, 0);
    }
    return new_through_api(*api, dtype, shape, ndim, order);
  }
  const nb::object importer = importer_of(like_object);
  if (importer.is_valid()) return new_through_dlpack(importer, dtype, shape, ndim);
  const nb::object descr = nb::steal(reinterpret_cast<PyObject*>(new_descr(dtype)));
  return new_numpy(reinterpret_cast<PyArray_Descr*>(descr.ptr()), dtype, shape, ndim, order);
}

}  // namespace backops::python

#include "python/pytorch.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "python/errors.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

// Kept for good: a module that was imported once does not go.
struct PyTorch {
  PyTypeObject* tensor;
  PyObject* get_num_threads;
};

// Null while the caller has not imported it, or is still at it.
const PyTorch* loaded_pytorch() {
  static const PyTorch* loaded = nullptr;
  if (loaded != nullptr) return loaded;
  static PyObject* const name = PyUnicode_InternFromString("torch");
  const nb::object module = nb::steal(PyImport_GetModule(name));
  if (!module.is_valid()) {
    if (PyErr_Occurred() != nullptr) nb::raise_python_error();
    return nullptr;
  }
  nb::object tensor = optional_attribute(module, "Tensor");
  nb::object get_num_threads = optional_attribute(module, "get_num_threads");
  if (!tensor.is_valid() || !PyType_Check(tensor.ptr()) || !get_num_threads.is_valid()) {
    return nullptr;
  }
  loaded = new PyTorch{reinterpret_cast<PyTypeObject*>(tensor.release().ptr()),
                       get_num_threads.release().ptr()};
  return loaded;
}

// Null for a runtime without GNU's interface.
const Team* find_team() {
  const nb::object found = nb::module_::import_("backops._openmp").attr("functions_of_pytorch")();
  if (found.is_none()) return nullptr;
  const auto run = nb::cast<std::uintptr_t>(found[0]);
  const auto thread_number = nb::cast<std::uintptr_t>(found[1]);
  return new Team{reinterpret_cast<decltype(Team::run)>(run),
                  reinterpret_cast<decltype(Team::thread_number)>(thread_number)};
}

std::atomic<bool> g_is_child{false};

}  // namespace

bool is_pytorch_tensor(nb::handle object) {
  const PyTorch* const loaded = loaded_pytorch();
  return loaded != nullptr && PyObject_TypeCheck(object.ptr(), loaded->tensor);
}

int pytorch_thread_count() {
  const nb::object count = nb::steal(PyObject_CallNoArgs(loaded_pytorch()->get_num_threads));
  if (!count.is_valid()) nb::raise_python_error();
  return std::clamp(nb::cast<int>(count), 1, kMaxThreads);
}

const Team* pytorch_team() {
  if (g_is_child) return nullptr;
  // Two threads may look at the same time, since importing releases the GIL: they find the same.
  static const Team* team = nullptr;
  static bool looked = false;
  if (!looked) team = find_team();
  looked = true;
  return team;
}

void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] { g_is_child = true; });
}

}  // namespace backops::python

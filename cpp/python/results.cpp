#include "python/results.h"

#include <memory>
#include <string>

#include "base/error.h"

namespace nb = nanobind;

namespace backops::python {

Result make_result(nb::handle out, const char* name, nb::handle grad_output, const Array& source,
                   const std::int64_t* shape, int ndim, int rank) {
  Result result{out};
  if (out.is_none()) {
    result.fresh = new_array(grad_output, source, shape, ndim, rank);
  } else {
    result.array = view_of(out, name);
  }
  return result;
}

void check_writable(const Array& out, const char* name) {
  if (!out.read_only) return;
  throw Error(ErrorKind::layout, name, "read-only", "expected a writable array");
}

Memory read_workspace(nb::handle workspace, std::size_t needed) {
  if (workspace.is_none()) return {};
  const Memory memory = memory_of(workspace, "{workspace}");
  if (memory.bytes >= needed) return memory;
  throw Error(ErrorKind::param, "{workspace}", std::to_string(memory.bytes) + " bytes",
              "expected at least workspace_size = " + std::to_string(needed));
}

char* own_workspace(std::size_t bytes) {
  thread_local std::unique_ptr<char[]> memory;
  thread_local std::size_t size = 0;
  if (bytes > size) {
    memory.reset(new char[bytes]);
    size = bytes;
  }
  return memory.get();
}

}  // namespace backops::python

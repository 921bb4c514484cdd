#include "ops/common/checks.h"

#include "base/error.h"

namespace backops {
namespace {

constexpr std::int64_t kMaxParameter = std::int64_t{1} << 60;

}  // namespace

std::string element_name(const char* name, int axis) {
  return std::string(name) + "[" + std::to_string(axis) + "]";
}

void check_range(const char* name, int axis, std::int64_t value, std::int64_t low) {
  if (value >= low && value <= kMaxParameter) return;
  throw Error(ErrorKind::param, element_name(name, axis), std::to_string(value),
              "expected " + std::to_string(low) + " to 2**60");
}

void check_sizes(const char* name, const std::int64_t* shape, int ndim, bool batched) {
  const int first_positive = batched ? 1 : 0;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] >= (i < first_positive ? 0 : 1)) continue;
    throw Error(ErrorKind::shape, name, shape_text(shape, ndim),
                batched ? "expected positive sizes (only the batch may be empty)"
                        : "expected positive sizes");
  }
}

void check_bytes(const char* name, const std::int64_t* shape, int ndim, DType dtype) {
  if (dense_bytes(shape, ndim, dtype) >= 0) return;
  throw Error(ErrorKind::shape, name, shape_text(shape, ndim),
              "expected sizes whose bytes fit in 63 bits");
}

void check_dtype(const char* name, DType got, DType expected, const char* because) {
  if (got != expected) check_dtype(name, name_of(got), expected, because);
}

void check_dtype(const char* name, const std::string& got, DType expected, const char* because) {
  if (got == name_of(expected)) return;
  throw Error(ErrorKind::dtype, name, got, std::string("expected ") + name_of(expected) + because);
}

void check_no_overlap_within(const char* name, const TensorView& result) {
  if (!has_overlapping_elements(result)) return;
  throw Error(ErrorKind::layout, name, "a tensor whose elements overlap",
              "expected one memory location per element");
}

void check_memory(const RunTensor* tensors, std::size_t count, const void* workspace,
                  std::size_t bytes) {
  if (const SharedMemory shared = find_shared_memory(tensors, count); shared.written != nullptr) {
    throw Error(ErrorKind::layout, shared.written->name, "memory of another tensor",
                std::string("expected memory that ") + shared.other->name + " does not share");
  }
  for (const RunTensor* each = tensors; each != tensors + count; ++each) {
    if (each->view == nullptr || !reaches_into(*each->view, workspace, bytes)) continue;
    throw Error(ErrorKind::layout, "{workspace}", "memory of a tensor",
                std::string("expected memory that ") + each->name + " does not share");
  }
}

}  // namespace backops

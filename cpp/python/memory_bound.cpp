// A plain fill and copy, which the benchmark compares pooling with.
#include "python/bindings.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/ints.h"
#include "base/task_queue.h"
#include "base/threads.h"
#include "python/without_gil.h"

namespace nb = nanobind;

namespace backops::python {
namespace {

struct FillAndCopy {
  char* target;
  const char* source;
  std::int64_t target_bytes, source_bytes;
  TaskQueue pieces;
};

constexpr std::int64_t kPiece = std::int64_t{1} << 18;

// Copies the source to the start of the target and fills the rest of it.
void fill_and_copy(std::uintptr_t target, std::int64_t target_bytes, std::uintptr_t source,
                   std::int64_t source_bytes, int threads) {
  FillAndCopy job{reinterpret_cast<char*>(target), reinterpret_cast<const char*>(source),
                  target_bytes, std::min(source_bytes, target_bytes),
                  TaskQueue(ceil_divide(target_bytes, kPiece), threads)};
  const WithoutGil released;
  run_parallel(
      threads,
      [](void* context, int worker) {
        FillAndCopy& j = *static_cast<FillAndCopy*>(context);
        j.pieces.work(worker, [&j](std::int64_t piece) {
          const std::int64_t begin = piece * kPiece;
          const std::int64_t end = std::min(begin + kPiece, j.target_bytes);
          const std::int64_t copied = std::max(begin, std::min(end, j.source_bytes));
          std::memcpy(j.target + begin, j.source + begin, static_cast<std::size_t>(copied - begin));
          std::memset(j.target + copied, 0, static_cast<std::size_t>(end - copied));
        });
      },
      &job);
}

}  // namespace

void bind_memory_bound(nb::module_& m) { m.def("fill_and_copy", fill_and_copy); }

}  // namespace backops::python

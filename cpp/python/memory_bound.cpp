// What memory allows, which the benchmark compares pooling with: a plain fill and copy.
#include "python/bindings.h"

#include <algorithm>
#include <atomic>
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
  std::atomic<std::uint64_t> seen{0};  // so that reading cannot be left out
};

constexpr std::int64_t kPiece = std::int64_t{1} << 18;

// Reads everything, in order, by vectors. The caller must use the result.
std::uint64_t read_all(const char* begin, const char* end) {
  using Vector = std::uint64_t __attribute__((vector_size(16)));
  Vector seen[4] = {};
  for (; end - begin >= static_cast<std::int64_t>(sizeof seen); begin += sizeof seen) {
    for (std::size_t i = 0; i < 4; ++i) {
      Vector line;
      std::memcpy(&line, begin + i * sizeof line, sizeof line);
      seen[i] ^= line;
    }
  }
  const Vector all = (seen[0] ^ seen[1]) ^ (seen[2] ^ seen[3]);
  return all[0] ^ all[1];
}

// Copies the source to the start of the target and fills the rest of it, or reads what is left of
// the source.
void fill_and_copy(std::uintptr_t target, std::int64_t target_bytes, std::uintptr_t source,
                   std::int64_t source_bytes, int threads) {
  FillAndCopy job{reinterpret_cast<char*>(target), reinterpret_cast<const char*>(source),
                  target_bytes, source_bytes,
                  TaskQueue(ceil_divide(std::max(source_bytes, target_bytes), kPiece), threads)};
  const WithoutGil released;
  run_parallel(
      threads,
      [](void* context, int worker) {
        FillAndCopy& j = *static_cast<FillAndCopy*>(context);
        j.pieces.work(worker, [&j](std::int64_t piece) {
          const std::int64_t begin = piece * kPiece;
          const auto within = [&](std::int64_t bytes) {
            return std::clamp(bytes, begin, begin + kPiece);
          };
          const std::int64_t written = within(j.target_bytes), read = within(j.source_bytes);
          const std::int64_t copied = std::min(written, read);
          std::memcpy(j.target + begin, j.source + begin, static_cast<std::size_t>(copied - begin));
          std::memset(j.target + copied, 0, static_cast<std::size_t>(written - copied));
          j.seen.fetch_xor(read_all(j.source + copied, j.source + read), std::memory_order_relaxed);
        });
      },
      &job);
}

}  // namespace

void bind_memory_bound(nb::module_& m) { m.def("fill_and_copy", fill_and_copy); }

}  // namespace backops::python

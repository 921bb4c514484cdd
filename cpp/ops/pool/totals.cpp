// Pooling whose windows cover all of the input: each plane becomes one number.
#include <algorithm>
#include <cstring>

#include "base/ints.h"
#include "base/strided_copy.h"
#include "base/task_queue.h"
#include "base/threads.h"
#include "kernels/vectors/scalar.h"
#include "ops/common/precision.h"
#include "ops/pool/binding.h"

namespace backops {
namespace {

// Planes are summed in pieces of so many elements, which are then added in order: the same ones for
// every layout, whether they are copied first or not.
constexpr std::int64_t kPieceElements = 16384;
// Elements of the planes that a task takes, at least.
constexpr std::int64_t kTaskElements = 32768;
constexpr std::int64_t kMostPlanes = 1024;

std::int64_t elements_of(const PoolPlan::Impl& plan) {
  std::int64_t elements = 1;
  for (const AxisWindows& axis : plan.axes) elements *= axis.sources();
  return elements;
}

std::int64_t planes_of_task(const PoolPlan::Impl& plan) {
  return std::clamp<std::int64_t>(kTaskElements / elements_of(plan), 1, kMostPlanes);
}

std::size_t packed_bytes(const PoolPlan::Impl& plan) {
  const std::int64_t elements = std::min(elements_of(plan), kPieceElements);
  return whole_lines(static_cast<std::size_t>(elements) * plan.element_bytes());
}

struct TotalsJob {
  const PoolPlan::Impl& plan;
  const TensorView& source_view;
  const TensorView& target_view;
  PoolStrides source, target;
  std::int64_t elements;  // of a plane
  bool dense;             // planes need no copy
  char* workspace;
  TaskQueue tasks;
};

bool is_dense(const PoolPlan::Impl& plan, const PoolStrides& source) {
  std::int64_t expected = static_cast<std::int64_t>(plan.element_bytes());
  for (int axis = kColumns; axis >= kDepth; --axis) {
    const std::int64_t size = plan.axes[static_cast<std::size_t>(axis)].sources();
    if (!has_stride(size, source.axis[axis], expected)) return false;
    expected *= size;
  }
  return plan.problem.rounding == Rounding::none;
}

// Elements [begin, end) of a plane in the order of its axes, dense and rounded.
void pack(const TotalsJob& job, const char* plane, std::int64_t begin, std::int64_t end,
          char* packed) {
  const std::vector<AxisWindows>& axes = job.plan.axes;
  const std::int64_t columns = axes[kColumns].sources(), rows = axes[kRows].sources();
  const auto element_bytes = static_cast<std::int64_t>(job.plan.element_bytes());
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t column = at % columns, row = at / columns % rows,
                       depth = at / columns / rows;
    const bool whole = column == 0 && end - at >= columns;
    const std::int64_t run = whole ? columns : std::min(columns - column, end - at);
    const std::int64_t run_rows = whole ? std::min(rows - row, (end - at) / columns) : 1;
    const StridedBlock block = {{1, 1, run_rows, run},
                                {0, 0, run * element_bytes, element_bytes},
                                {0, 0, job.source.axis[kRows], job.source.axis[kColumns]}};
    strided_copy(packed + (at - begin) * element_bytes,
                 plane + depth * job.source.axis[kDepth] + row * job.source.axis[kRows] +
                     column * job.source.axis[kColumns],
                 block, static_cast<int>(element_bytes), false);
    at += run * run_rows;
  }
  round_operands(reinterpret_cast<float*>(packed), end - begin, job.plan.problem.rounding,
                 *job.plan.conversions);
}

// The sum of one plane, piece by piece.
template <class Sum>
Sum total_of(const TotalsJob& job, const char* plane, char* packed) {
  const auto element_bytes = static_cast<std::int64_t>(job.plan.element_bytes());
  Sum all = 0;
  for (std::int64_t begin = 0; begin < job.elements; begin += kPieceElements) {
    const std::int64_t end = std::min(begin + kPieceElements, job.elements);
    if (!job.dense) pack(job, plane, begin, end, packed);
    Sum piece = 0;
    job.plan.kernels->total({1, job.dense ? plane + begin * element_bytes : packed, end - begin,
                             job.plan.scale, &piece});
    all = begin == 0 ? piece : all + piece;
  }
  return all;
}

template <class E>
void work_on_totals(void* context, int worker) {
  TotalsJob& job = *static_cast<TotalsJob*>(context);
  using Sum = decltype(widen(E{}));
  char* const packed = job.workspace + static_cast<std::size_t>(worker) * packed_bytes(job.plan);
  const std::int64_t planes = job.plan.batch() * job.plan.channels();
  const std::int64_t channels = job.plan.channels(), most = planes_of_task(job.plan);
  const bool joined = job.dense && job.elements <= kPieceElements;
  const std::int64_t plane_bytes = job.elements * static_cast<std::int64_t>(sizeof(E));
  job.tasks.work(worker, [&](std::int64_t task) {
    Sum sums[kMostPlanes];
    const std::int64_t begin = task * most, end = std::min(planes, begin + most);
    for (std::int64_t p = begin; p < end;) {
      const std::int64_t batch = p / channels, channel = p % channels;
      const char* const plane =
          job.source_view.data + batch * job.source.batch + channel * job.source.channel;
      // Channels that follow each other are summed in one call.
      const std::int64_t count = joined && has_stride(channels, job.source.channel, plane_bytes)
                                     ? std::min(end - p, channels - channel)
                                     : 1;
      if (count > 1) {
        job.plan.kernels->total({count, plane, job.elements, job.plan.scale, sums});
      } else {
        sums[0] = total_of<Sum>(job, plane, packed);
      }
      char* to = job.target_view.data + batch * job.target.batch + channel * job.target.channel;
      for (std::int64_t i = 0; i < count; ++i, to += job.target.channel) {
        E result;
        narrow(sums[i], &result);
        std::memcpy(to, &result, sizeof result);
      }
      p += count;
    }
  });
}

}  // namespace

std::size_t pool_totals_bytes(const PoolPlan::Impl& plan, int threads) {
  return packed_bytes(plan) * static_cast<std::size_t>(threads);
}

void run_pool_totals(const PoolPlan::Impl& plan, const TensorView& source, const TensorView& target,
                     char* workspace, int threads) noexcept {
  const PoolStrides source_strides = strides_of(plan, source);
  const std::int64_t tasks = ceil_divide(plan.batch() * plan.channels(), planes_of_task(plan));
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, tasks));
  const std::uintptr_t misalignment = reinterpret_cast<std::uintptr_t>(workspace) % kLineBytes;
  TotalsJob job{plan,
                source,
                target,
                source_strides,
                strides_of(plan, target),
                elements_of(plan),
                is_dense(plan, source_strides),
                workspace + (kLineBytes - misalignment) % kLineBytes,
                TaskQueue(tasks, workers)};
  switch (plan.problem.dtype) {
    case DType::float16: return run_parallel(workers, work_on_totals<Float16>, &job);
    case DType::bfloat16: return run_parallel(workers, work_on_totals<BFloat16>, &job);
    case DType::float32: return run_parallel(workers, work_on_totals<float>, &job);
    default: return run_parallel(workers, work_on_totals<double>, &job);
  }
}

}  // namespace backops

// The answer of last resort: windows too long for any tile, element by element.
#include <algorithm>

#include "base/task_queue.h"
#include "base/threads.h"
#include "kernels/vectors/scalar.h"
#include "ops/pool/impl.h"

namespace backops {
namespace {

struct PlainJob {
  const PoolPlan::Impl& plan;
  const TensorView& source_view;
  const TensorView& target_view;
  PoolStrides source, target;
  TaskQueue planes;
};

float rounded(float value, Rounding rounding) {
  switch (rounding) {
    case Rounding::none: break;
    case Rounding::float16: {
      Float16 half;
      narrow(value, &half);
      return widen(half);
    }
    case Rounding::hf32_11: round_to_hf32(&value, 1, 11); break;
    case Rounding::hf32_10: round_to_hf32(&value, 1, 10); break;
  }
  return value;
}
double rounded(double value, Rounding) { return value; }

// 1 / divisor of the outputs at these places, as far as they differ.
double weight_at(const PoolPlan::Impl& plan, const bool (&differs)[kAxes],
                 const std::int64_t (&at)[kAxes]) {
  double weight = 1;
  for (int axis = 0; axis < kAxes; ++axis) {
    const AxisWindows& windows = plan.axes[static_cast<std::size_t>(axis)];
    if (differs[axis]) weight /= static_cast<double>(windows.divisor(at[axis]));
  }
  return weight;
}

// Sums in double: a window here may have millions of elements.
template <class E>
double covered_sum(const PlainJob& job, const char* plane, const std::int64_t (&target)[kAxes]) {
  const PoolPlan::Impl& plan = job.plan;
  const bool is_weighted = plan.weighted[kDepth] || plan.weighted[kRows] || plan.weighted[kColumns];
  Cover cover[kAxes];
  double scale = plan.scale * weight_at(plan, plan.finished, target);
  for (int axis = 0; axis < kAxes; ++axis) {
    cover[axis] = plan.axes[static_cast<std::size_t>(axis)].cover(target[axis]);
    scale *= plan.target_scale[axis];
  }
  double sum = 0;
  std::int64_t at[kAxes];
  for (at[kDepth] = cover[kDepth].first; at[kDepth] < cover[kDepth].last; ++at[kDepth]) {
    for (at[kRows] = cover[kRows].first; at[kRows] < cover[kRows].last; ++at[kRows]) {
      const char* const row =
          plane + at[kDepth] * job.source.axis[kDepth] + at[kRows] * job.source.axis[kRows];
      for (at[kColumns] = cover[kColumns].first; at[kColumns] < cover[kColumns].last;
           ++at[kColumns]) {
        const auto value = widen(load_unaligned<E>(row + at[kColumns] * job.source.axis[kColumns]));
        const double weight = is_weighted ? scale * weight_at(plan, plan.weighted, at) : scale;
        sum += weight * static_cast<double>(rounded(value, plan.problem.rounding));
      }
    }
  }
  return sum;
}

template <class E>
void write_plane(const PlainJob& job, const char* source, char* target) {
  const std::vector<AxisWindows>& axes = job.plan.axes;
  std::int64_t at[kAxes];
  for (at[kDepth] = 0; at[kDepth] < axes[kDepth].targets(); ++at[kDepth]) {
    for (at[kRows] = 0; at[kRows] < axes[kRows].targets(); ++at[kRows]) {
      for (at[kColumns] = 0; at[kColumns] < axes[kColumns].targets(); ++at[kColumns]) {
        using Sum = decltype(widen(E{}));
        E result;
        narrow(static_cast<Sum>(covered_sum<E>(job, source, at)), &result);
        char* to = target;
        for (int axis = 0; axis < kAxes; ++axis) to += at[axis] * job.target.axis[axis];
        std::memcpy(to, &result, sizeof result);
      }
    }
  }
}

template <class E>
void work_on_planes(void* context, int worker) {
  PlainJob& job = *static_cast<PlainJob*>(context);
  const std::int64_t channels = job.plan.channels();
  job.planes.work(worker, [&](std::int64_t plane) {
    const std::int64_t batch = plane / channels, channel = plane % channels;
    write_plane<E>(job,
                   job.source_view.data + batch * job.source.batch + channel * job.source.channel,
                   job.target_view.data + batch * job.target.batch + channel * job.target.channel);
  });
}

}  // namespace

void run_pool_plain(const PoolPlan::Impl& plan, const TensorView& source_view,
                    const TensorView& target_view, int threads) noexcept {
  PlainJob job{plan,
               source_view,
               target_view,
               strides_of(plan, source_view),
               strides_of(plan, target_view),
               TaskQueue(plan.batch() * plan.channels(), threads)};
  switch (plan.problem.dtype) {
    case DType::float16: return run_parallel(threads, work_on_planes<Float16>, &job);
    case DType::bfloat16: return run_parallel(threads, work_on_planes<BFloat16>, &job);
    case DType::float32: return run_parallel(threads, work_on_planes<float>, &job);
    default: return run_parallel(threads, work_on_planes<double>, &job);
  }
}

}  // namespace backops

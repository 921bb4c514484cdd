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
  const TensorView& grad_output;
  const TensorView& grad_input;
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

// Sums in double: a window here may have millions of elements.
template <class E>
double covered_sum(const PlainJob& job, const char* plane, const Cover (&cover)[kAxes]) {
  double sum = 0;
  for (std::int64_t d = cover[kDepth].first; d < cover[kDepth].last; ++d) {
    for (std::int64_t r = cover[kRows].first; r < cover[kRows].last; ++r) {
      for (std::int64_t c = cover[kColumns].first; c < cover[kColumns].last; ++c) {
        const std::int64_t at[kAxes] = {d, r, c};
        double weight = job.plan.scale;
        std::int64_t offset = 0;
        for (int axis = 0; axis < kAxes; ++axis) {
          offset += at[axis] * job.source.axis[axis];
          if (job.plan.weighted[axis]) {
            weight /= static_cast<double>(
                job.plan.axes[static_cast<std::size_t>(axis)].divisor(at[axis]));
          }
        }
        const auto value = widen(load_unaligned<E>(plane + offset));
        sum += weight * static_cast<double>(rounded(value, job.plan.problem.rounding));
      }
    }
  }
  return sum;
}

template <class E>
void write_plane(const PlainJob& job, const char* source, char* target) {
  for (std::int64_t d = 0; d < job.plan.axes[kDepth].in(); ++d) {
    for (std::int64_t r = 0; r < job.plan.axes[kRows].in(); ++r) {
      for (std::int64_t c = 0; c < job.plan.axes[kColumns].in(); ++c) {
        const Cover cover[kAxes] = {job.plan.axes[kDepth].cover(d), job.plan.axes[kRows].cover(r),
                                    job.plan.axes[kColumns].cover(c)};
        using Sum = decltype(widen(E{}));
        E result;
        narrow(static_cast<Sum>(covered_sum<E>(job, source, cover)), &result);
        std::memcpy(target + d * job.target.axis[kDepth] + r * job.target.axis[kRows] +
                        c * job.target.axis[kColumns],
                    &result, sizeof result);
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
                   job.grad_output.data + batch * job.source.batch + channel * job.source.channel,
                   job.grad_input.data + batch * job.target.batch + channel * job.target.channel);
  });
}

}  // namespace

void run_pool_plain(const PoolPlan::Impl& plan, const TensorView& grad_output,
                    const TensorView& grad_input, int threads) noexcept {
  PlainJob job{plan,
               grad_output,
               grad_input,
               strides_of(plan, grad_output),
               strides_of(plan, grad_input),
               TaskQueue(plan.batch() * plan.channels(), threads)};
  switch (plan.problem.dtype) {
    case DType::float16: return run_parallel(threads, work_on_planes<Float16>, &job);
    case DType::bfloat16: return run_parallel(threads, work_on_planes<BFloat16>, &job);
    case DType::float32: return run_parallel(threads, work_on_planes<float>, &job);
    default: return run_parallel(threads, work_on_planes<double>, &job);
  }
}

}  // namespace backops

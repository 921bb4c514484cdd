// What a PoolPlan holds. Shared by the files that make it and run it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/pool/pool.h"
#include "ops/pool/geometry.h"
#include "ops/pool/plan.h"
#include "ops/pool/spread_table.h"

namespace backops {

struct PoolPlan::Impl {
  Impl(const LegalPoolProblem& problem, Isa isa);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const LegalPoolProblem legal;
  const PoolProblem& problem = legal.problem();
  const PoolKernels* kernels;
  const ConvertKernels* conversions;
  std::string kernel;

  // The pooled axes in the order the passes take them. Axes of size 1 come first, so that the last
  // pass always has the longest rows there are.
  int dim[kAxes];  // axis of the tensors, or -1 for one added to make three
  // Windows along it have different divisors: sources are weighted before they are added (backward)
  // or sums are finished by a factor each (forward).
  bool weighted[kAxes], finished[kAxes];
  double scale;                // what all sources are multiplied by
  double target_scale[kAxes];  // what of it is taken back where sums are finished

  // The same problem for each kind of memory layout; which one runs is seen from the strides.
  bool is_total = false;                 // each plane becomes one number, where lanes do not serve
  std::optional<PoolGeometry> by_rows;   // columns contiguous, and every layout without a better
  std::optional<PoolGeometry> folded;    // target contiguous under windows that cover it all
  std::optional<PoolGeometry> by_lanes;  // channels contiguous
  int folded_axes = 0;                   // how many of the last axes are folded into one
  SpreadTables tables;                   // for by_rows
  std::vector<AxisWindows> axes;         // in the order of the passes

  void plan_lanes();
  bool is_batched() const { return problem.ndim == problem.rank + 2; }
  std::int64_t batch() const { return is_batched() ? problem.input_shape[0] : 1; }
  std::int64_t channels() const { return problem.input_shape[problem.ndim - problem.rank - 1]; }
  std::size_t element_bytes() const { return size_of(problem.dtype); }
  std::size_t sum_bytes() const {
    return problem.dtype == DType::float64 ? sizeof(double) : sizeof(float);
  }
};

// Runs a plan whose windows fit no tile, element by element and without scratch memory.
void run_pool_plain(const PoolPlan::Impl& plan, const TensorView& source, const TensorView& target,
                    int threads) noexcept;

// Runs a plan whose windows cover all of the input: Impl::is_total.
std::size_t pool_totals_bytes(const PoolPlan::Impl& plan, int threads);
void run_pool_totals(const PoolPlan::Impl& plan, const TensorView& source, const TensorView& target,
                     char* workspace, int threads) noexcept;

// False: nothing was done, for want of room to make these sources dense.
bool run_pool_tiles(const PoolPlan::Impl& plan, const TensorView& source, const TensorView& target,
                    char* workspace, int threads) noexcept;

// Strides of a tensor by the plan's axes.
struct PoolStrides {
  std::int64_t batch, channel, axis[kAxes];
};
PoolStrides strides_of(const PoolPlan::Impl& plan, const TensorView& view);

}  // namespace backops

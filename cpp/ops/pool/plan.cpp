#include "ops/pool/plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/ints.h"
#include "ops/common/checks.h"
#include "ops/pool/binding.h"
#include "ops/pool/impl.h"

namespace backops {
namespace {

AxisWindows windows_of(const PoolProblem& p, const std::int64_t* output_shape, int axis) {
  const int dim = p.ndim - p.rank + axis;
  const std::int64_t in = p.input_shape[dim], out = output_shape[dim];
  const AxisWindows windows = p.adaptive
                                  ? AxisWindows::adaptive(in, out)
                                  : AxisWindows::fixed(in, out, p.kernel_size[axis], p.stride[axis],
                                                       p.padding[axis], p.count_include_pad);
  return p.is_forward() ? windows.transposed() : windows;
}

// Windows in the order of the passes; fills Impl::dim.
std::vector<AxisWindows> order_axes(const PoolProblem& p, const std::int64_t* output_shape,
                                    int dim[kAxes]) {
  std::vector<AxisWindows> axes(static_cast<std::size_t>(kAxes - p.rank), AxisWindows::identity(1));
  std::fill(dim, dim + axes.size(), -1);
  for (const bool trivial : {true, false}) {
    for (int axis = 0; axis < p.rank; ++axis) {
      const int at = p.ndim - p.rank + axis;
      if ((p.input_shape[at] == 1 && output_shape[at] == 1) != trivial) continue;
      dim[axes.size()] = at;
      axes.push_back(windows_of(p, output_shape, axis));
    }
  }
  return axes;
}

Inner inner_of(const AxisWindows& columns) {
  return columns.is_constant() ? Inner::fill : columns.slides() ? Inner::slide : Inner::spread;
}

// A power of two, so that nothing is rounded, that is no less than the number of terms: sums of
// sources divided by it do not overflow. What is left of the division is done to the sums.
double headroom(const AxisWindows& axis) {
  return std::exp2(std::ceil(std::log2(static_cast<double>(axis.longest_cover()))));
}

const char* name_of(Inner inner) {
  switch (inner) {
    case Inner::spread: return "spread";
    case Inner::slide: return "slide";
    case Inner::fill: return "fill";
    default: return "lanes";
  }
}

}  // namespace

PoolPlan::Impl::Impl(const LegalPoolProblem& asked, Isa isa) : legal(asked) {
  kernels = &pool_kernels(isa, problem.dtype);
  conversions = &convert_kernels(isa);
  axes = order_axes(problem, legal.output_shape(), dim);

  const bool overridden = !problem.adaptive && problem.divisor_override != 0;
  scale = overridden ? 1.0 / static_cast<double>(problem.divisor_override) : 1.0;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    const bool differ = !overridden && !axes[axis].has_one_divisor();
    if (!overridden && !differ) scale /= static_cast<double>(axes[axis].divisor(0));
    weighted[axis] = differ && !problem.is_forward();
    finished[axis] = differ && problem.is_forward();
    target_scale[axis] = finished[axis] ? headroom(axes[axis]) : 1.0;
    scale /= target_scale[axis];
  }

  const std::int64_t planes = batch() * channels();
  kernel = kernels->name;
  if (planes == 0) return;  // nothing will run
  is_total = problem.is_forward() && std::all_of(axes.begin(), axes.end(),
                                                 [](const auto& axis) { return axis.is_total(); });
  if (is_total) {
    kernel += " total";
    plan_lanes();
    return;
  }
  by_rows.emplace(axes, inner_of(axes[kColumns]), planes, 1, weighted[kDepth], element_bytes(),
                  sum_bytes());
  if (!by_rows->usable || (by_rows->inner == Inner::spread &&
                           !SpreadTables::are_small(axes[kColumns], by_rows->tile[kColumns]))) {
    by_rows.reset();
    kernel += " plain";
    return;
  }
  kernel += std::string(" ") + name_of(by_rows->inner);
  if (by_rows->inner == Inner::spread) {
    tables = SpreadTables(axes[kColumns], by_rows->tile[kColumns], kernels->width, by_rows->levels);
  }
  if (axes[kColumns].is_constant() && !problem.is_forward()) {
    std::int64_t columns = axes[kColumns].in();
    folded_axes = 1;
    std::vector<AxisWindows> rest = axes;
    for (const std::size_t axis : {kRows, kDepth}) {
      if (!axes[axis].is_constant()) break;
      columns *= axes[axis].in();
      rest[axis] = AxisWindows::identity(1);
      ++folded_axes;
    }
    rest[kColumns] = AxisWindows::adaptive(columns, 1);
    folded.emplace(rest, Inner::fill, planes, 1, weighted[kDepth], element_bytes(), sum_bytes());
    if (!folded->usable) folded.reset();
  }
  plan_lanes();
}

void PoolPlan::Impl::plan_lanes() {
  if (channels() > 1) {
    by_lanes.emplace(axes, Inner::lanes, batch(), channels(), weighted[kDepth], element_bytes(),
                     sum_bytes());
    if (!by_lanes->usable) by_lanes.reset();
  }
  if (by_lanes) kernel += std::string("/") + name_of(Inner::lanes);
}

PoolPlan::PoolPlan(const LegalPoolProblem& problem, Isa isa)
    : impl_(std::make_unique<const Impl>(problem, isa)) {}
PoolPlan::~PoolPlan() = default;

const LegalPoolProblem& PoolPlan::legal() const { return impl_->legal; }
const std::string& PoolPlan::kernel() const { return impl_->kernel; }
std::string PoolPlan::why() const {
  if (impl_->batch() * impl_->channels() == 0) return "nothing is summed";
  if (impl_->is_total) return "totals: chosen, the windows cover all of the input";
  if (impl_->by_rows) return "tiles: chosen\nplain: takes everything, element by element";
  return "tiles: does not take windows along the last axis that fit no tile or no table\nplain: "
         "chosen";
}

std::size_t PoolPlan::workspace_bytes(int threads) const {
  std::size_t most = impl_->is_total ? pool_totals_bytes(*impl_, threads) : 0;
  for (const auto* geometry : {&impl_->by_rows, &impl_->folded, &impl_->by_lanes}) {
    if (!geometry->has_value()) continue;
    const std::int64_t users =
        std::max<std::int64_t>(1, std::min<std::int64_t>(threads, (*geometry)->tasks));
    most = std::max(most, (*geometry)->bytes * static_cast<std::size_t>(users));
  }
  return most == 0 ? 0 : most + kLineBytes;  // run() aligns what it gets
}

std::size_t PoolPlan::table_bytes() const {
  std::size_t bytes = impl_->tables.bytes();
  for (const AxisWindows& axis : impl_->axes) bytes += axis.table_bytes();
  return bytes;
}

void PoolPlan::check_memory(const TensorView& source, const TensorView& target,
                            const void* workspace, std::size_t bytes) const {
  const RunTensor tensors[] = {{problem().source_name(), &source, false},
                               {problem().target_name(), &target, true}};
  backops::check_memory(tensors, std::size(tensors), workspace, bytes);
}

PoolStrides strides_of(const PoolPlan::Impl& plan, const TensorView& view) {
  PoolStrides strides{};
  const int channel_dim = plan.problem.ndim - plan.problem.rank - 1;
  strides.channel = view.stride_bytes[channel_dim];
  strides.batch = plan.is_batched() ? view.stride_bytes[0] : 0;
  for (int axis = 0; axis < kAxes; ++axis) {
    strides.axis[axis] = plan.dim[axis] < 0 ? 0 : view.stride_bytes[plan.dim[axis]];
  }
  return strides;
}

void PoolPlan::run(const TensorView& source, const TensorView& target, void* workspace,
                   int threads) const noexcept {
  if (impl_->batch() == 0) return;
  char* const memory = static_cast<char*>(workspace);
  if (impl_->is_total && !uses_lanes(*impl_, source, target)) {
    return run_pool_totals(*impl_, source, target, memory, threads);
  }
  const bool has_tiles = impl_->is_total || impl_->by_rows;
  if (has_tiles && run_pool_tiles(*impl_, source, target, memory, threads)) return;
  run_pool_plain(*impl_, source, target, threads);
}

}  // namespace backops

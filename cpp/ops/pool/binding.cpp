#include "ops/pool/binding.h"

#include <algorithm>

#include "base/cpu.h"

namespace backops {
namespace {

// Shorter pieces are not worth their unaligned ends.
constexpr std::int64_t kShortestStream = 1024;

// Whether the target's folded axes lie one after the other.
bool is_foldable(const PoolPlan::Impl& plan, const PoolStrides& target) {
  std::int64_t expected = static_cast<std::int64_t>(plan.element_bytes());
  for (int axis = kColumns; axis > kColumns - plan.folded_axes; --axis) {
    const std::int64_t size = plan.axes[static_cast<std::size_t>(axis)].targets();
    if (!has_stride(size, target.axis[axis], expected)) return false;
    expected *= size;
  }
  return true;
}

// The tensor of the forward input's shape, which is mostly the larger one, decides.
bool suits_lanes(const PoolPlan::Impl& plan, const PoolStrides& source, const PoolStrides& target) {
  const std::int64_t element_bytes = static_cast<std::int64_t>(plan.element_bytes());
  const PoolStrides& input = plan.problem.is_forward() ? source : target;
  return plan.by_lanes && input.channel == element_bytes &&
         !has_stride(plan.axes[kColumns].in(), input.axis[kColumns], element_bytes);
}

const PoolGeometry& choose_geometry(const PoolPlan::Impl& plan, const PoolStrides& source,
                                    const PoolStrides& target) {
  if (plan.folded && is_foldable(plan, target)) return *plan.folded;
  return suits_lanes(plan, source, target) ? *plan.by_lanes : *plan.by_rows;
}

bool needs_packing(const PoolPlan::Impl& plan, const PoolGeometry& g, const PoolStrides& source) {
  if (plan.problem.rounding != Rounding::none) return true;
  const std::int64_t element_bytes = static_cast<std::int64_t>(plan.element_bytes());
  const std::int64_t columns = g.axes[kColumns].sources();
  if (g.inner != Inner::lanes) return !has_stride(columns, source.axis[kColumns], element_bytes);
  return source.channel != element_bytes || g.tile_lanes != g.lanes ||
         !has_stride(columns, source.axis[kColumns], element_bytes * g.lanes);
}

// Whether a tile's rows of targets are contiguous pieces long enough to stream.
bool can_stream(const PoolGeometry& g, const PoolStrides& target, std::int64_t element_bytes) {
  const bool lanes = g.inner == Inner::lanes;
  const std::int64_t column_bytes = element_bytes * g.lanes;
  if (lanes && (g.tile_lanes != g.lanes || target.channel != element_bytes)) return false;
  if (!has_stride(g.axes[kColumns].targets(), target.axis[kColumns], column_bytes)) return false;
  const std::int64_t row_bytes = g.tile[kColumns] * column_bytes;
  const bool rows_join = g.tile[kColumns] == g.axes[kColumns].targets() &&
                         has_stride(g.axes[kRows].targets(), target.axis[kRows], row_bytes);
  return (rows_join ? row_bytes * g.tile[kRows] : row_bytes) >= kShortestStream;
}

}  // namespace

bool uses_lanes(const PoolPlan::Impl& plan, const TensorView& source, const TensorView& target) {
  const PoolStrides strides = strides_of(plan, source);
  if (!suits_lanes(plan, strides, strides_of(plan, target))) return false;
  return plan.by_lanes->can_pack || !needs_packing(plan, *plan.by_lanes, strides);
}

PoolBinding bind(const PoolPlan::Impl& plan, const TensorView& source_view,
                 const TensorView& target_view) {
  const PoolStrides source = strides_of(plan, source_view), target = strides_of(plan, target_view);
  const PoolGeometry& geometry = choose_geometry(plan, source, target);
  const std::int64_t element_bytes = static_cast<std::int64_t>(plan.element_bytes());
  const bool lanes = geometry.inner == Inner::lanes;
  const std::int64_t inner_stride = lanes ? target.channel : target.axis[kColumns];
  const std::int64_t inner_size = lanes ? geometry.lanes : geometry.axes[kColumns].targets();
  const Cpu& cpu = active_cpu();
  // Rows of channels are summed and written in bursts too long for any CPU to absorb.
  const bool helps = lanes || !cpu.absorbs_stores;
  const bool stream = helps && cpu.can_stream() &&
                      dense_bytes(plan.legal.target_shape(), plan.problem.ndim,
                                  plan.problem.dtype) >= cpu.stream_bytes() &&
                      can_stream(geometry, target, element_bytes);
  const bool direct = !stream && has_stride(inner_size, inner_stride, element_bytes);
  return {plan,
          geometry,
          source_view,
          target_view,
          source,
          target,
          element_bytes,
          needs_packing(plan, geometry, source),
          direct,
          stream,
          direct && helps ? cpu.announce_bytes() : 0};
}

}  // namespace backops

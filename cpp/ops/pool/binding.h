// Which way a plan goes through two tensors of given strides.
#pragma once

#include <cstdint>

#include "ops/pool/impl.h"

namespace backops {

// A plan's geometry bound to two tensors: everything that their strides decide.
struct PoolBinding {
  const PoolPlan::Impl& plan;
  const PoolGeometry& geometry;
  const TensorView& source_view;
  const TensorView& target_view;
  PoolStrides source, target;
  std::int64_t element_bytes;
  bool pack;                    // the source goes through a dense copy
  bool direct;                  // passes write to the target; otherwise to an image that is copied
  bool stream;                  // the image is copied past the caches
  std::int64_t announce_bytes;  // see CombineArgs

  bool is_lanes() const { return geometry.inner == Inner::lanes; }
};

PoolBinding bind(const PoolPlan::Impl& plan, const TensorView& source_view,
                 const TensorView& target_view);

// Whether the plan goes through these tensors by rows of channels.
bool uses_lanes(const PoolPlan::Impl& plan, const TensorView& source, const TensorView& target);

// A size of 1 has no stride that could matter.
inline bool has_stride(std::int64_t size, std::int64_t stride, std::int64_t expected) {
  return size == 1 || stride == expected;
}

}  // namespace backops

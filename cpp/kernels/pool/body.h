// The pooling passes as a table of functions. Included by one file per instruction set.
#pragma once

#include "kernels/pool/combine.h"
#include "kernels/pool/spread.h"

namespace backops {
namespace {

template <class V>
void round_to_float16(float* values, std::int64_t count) {
  if constexpr (sizeof(typename V::Sum) == sizeof(float)) {
    for_vectors<V>(count, [&](auto kind, std::int64_t j, int some) {
      Float16 rounded[V::lanes];
      load<V>(kind, values + j, some).store(rounded);
      store(kind, V::load(rounded), values + j, some);
    });
  }
}

template <class V, class E>
void put_every_second(void* target, const void* source, std::int64_t count) {
  constexpr std::int64_t kStep = 2 * sizeof(E);
  char* const to = static_cast<char*>(target);
  const E* const from = static_cast<const E*>(source);
  std::int64_t i = 0;
  if constexpr (V::has_masked_stores) {
    for (; i + V::lanes <= count; i += V::lanes) {
      announce_writing(to + i * kStep);
      V::put_every_second(to + i * kStep, from + i);
    }
  }
  for (; i < count; ++i) std::memcpy(to + i * kStep, from + i, sizeof(E));
}

template <class V, class E>
constexpr PoolKernels make_pool_kernels(const char* name, Isa isa, DType dtype) {
  return {name,
          isa,
          dtype,
          V::lanes,
          combine_to_sums<V, E>,
          combine_to_sums<V, typename V::Sum>,
          combine_to_elements<V, E>,
          spread<V, E>,
          slide<V, E>,
          fill<V, E>,
          V::stream,
          V::stream_fence,
          put_every_second<V, E>,
          round_to_float16<V>};
}

}  // namespace
}  // namespace backops

#define BACKOPS_DEFINE_POOL_KERNELS(isa, dtype, element, vector) \
  extern const PoolKernels pool_##dtype##_##isa;                 \
  const PoolKernels pool_##dtype##_##isa =                       \
      make_pool_kernels<vector, element>("pool_" #dtype "_" #isa, Isa::isa, DType::dtype);

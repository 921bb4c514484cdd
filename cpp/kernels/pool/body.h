// The pooling passes as a table of functions. Included by one file per instruction set.
#pragma once

#include "kernels/pool/combine.h"
#include "kernels/pool/spread.h"
#include "kernels/pool/total.h"

namespace backops {
namespace {

template <class V, class E>
constexpr PoolKernels make_pool_kernels(const char* name, Isa isa, DType dtype) {
  return {name,
          isa,
          dtype,
          V::width,
          combine_to_sums<V, E>,
          combine_to_sums<V, typename V::Sum>,
          combine_to_elements<V, E>,
          spread<V, E>,
          slide<V, E>,
          fill<V, E>,
          total<V, E>};
}

}  // namespace
}  // namespace backops

#define BACKOPS_DEFINE_POOL_KERNELS(isa, dtype, element, vector) \
  extern const PoolKernels pool_##dtype##_##isa;                 \
  const PoolKernels pool_##dtype##_##isa =                       \
      make_pool_kernels<vector, element>("pool_" #dtype "_" #isa, Isa::isa, DType::dtype);

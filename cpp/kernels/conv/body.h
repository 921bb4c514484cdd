// The convolution kernels as a table of functions. Included by one file per instruction set.
#pragma once

#include "kernels/conv/correlate.h"
#include "kernels/conv/folds.h"
#include "kernels/conv/gather.h"
#include "kernels/conv/gather_elements.h"
#include "kernels/conv/lanes.h"
#include "kernels/conv/products.h"

namespace backops {
namespace {

template <class V, class E>
constexpr ConvKernels make_conv_kernels(const char* name, Isa isa, VectorSize size, DType dtype) {
  return {name,
          isa,
          size,
          dtype,
          V::width,
          V::width,
          kSumRows<V> / 2,
          sizeof(typename V::Sum),
          kHasGroups<V>,
          to_lanes<V, E>,
          from_lanes<V, E>,
          gather_taps<V>,
          gather_elements<V, E>,
          correlate_taps<V>,
          sum_lanes<V>,
          multiply_positions<V>,
          multiply_twins<V>,
          multiply_apart<V>,
          multiply_channels<V>,
          add_folds<V>,
          interleave<V>};
}

}  // namespace
}  // namespace backops

#define BACKOPS_DEFINE_CONV_KERNELS(isa, size, dtype, element, vector)                  \
  extern const ConvKernels conv_##dtype##_##isa##_##size;                               \
  const ConvKernels conv_##dtype##_##isa##_##size = make_conv_kernels<vector, element>( \
      "conv_" #dtype "_" #isa "_" #size, Isa::isa, VectorSize::size, DType::dtype);

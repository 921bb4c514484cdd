// The conversions as a table of functions. Included by one file per instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/announce.h"
#include "kernels/convert/convert.h"
#include "kernels/vectors/loops.h"
#include "kernels/vectors/scalar.h"

namespace backops {
namespace {

template <class V>
void round_to_float16(float* values, std::int64_t count) {
  for_vectors<V>(count, [&](auto kind, std::int64_t j, int some) {
    Float16 rounded[V::width];
    load<V>(kind, values + j, some).store(rounded);
    store(kind, V::load(rounded), values + j, some);
  });
}

template <class V, class E>
void put_elements(void* target, const void* source, std::int64_t count) {
  constexpr std::int64_t kStep = 2 * sizeof(E);
  char* const to = static_cast<char*>(target);
  const E* const from = static_cast<const E*>(source);
  std::int64_t i = 0;
  if constexpr (V::has_masked_stores) {
    for (; i + V::width <= count; i += V::width) {
      announce_writing(to + i * kStep);
      V::put_every_second(to + i * kStep, from + i);
    }
  }
  for (; i < count; ++i) std::memcpy(to + i * kStep, from + i, sizeof(E));
}

template <class V, class Doubles>
void put_every_second(void* target, const void* source, std::int64_t count,
                      std::size_t element_bytes) {
  switch (element_bytes) {
    case sizeof(double): return put_elements<Doubles, double>(target, source, count);
    case sizeof(float): return put_elements<V, float>(target, source, count);
    default: return put_elements<V, Float16>(target, source, count);
  }
}

// V: vectors of float32.
template <class V, class Doubles>
constexpr ConvertKernels make_convert_kernels(const char* name, Isa isa) {
  return {name, isa, round_to_float16<V>, V::stream, V::stream_fence, put_every_second<V, Doubles>};
}

}  // namespace
}  // namespace backops

#define BACKOPS_DEFINE_CONVERT_KERNELS(isa, vector, doubles) \
  extern const ConvertKernels convert_##isa;                 \
  const ConvertKernels convert_##isa =                       \
      make_convert_kernels<vector, doubles>("convert_" #isa, Isa::isa);

// Loops over vectors. Everything here and in the kernels that include it has internal linkage, and
// nothing of the standard library's templates is used, so that no code compiled for a better CPU
// can be picked by the linker for a lesser one.
#pragma once

#include <cstdint>

namespace backops {
namespace {

// Rows are often two or three vectors long: a call per row would cost as much as the row.
// Sanitizers check every access, and take minutes to compile what is inlined into one function;
// what is to be small has a quarter less code without.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__OPTIMIZE_SIZE__)
#define BACKOPS_INLINE inline
#define BACKOPS_FLATTEN
#else
#define BACKOPS_INLINE inline __attribute__((always_inline))
#define BACKOPS_FLATTEN __attribute__((flatten))
#endif

// Whether a vector is the portable one, in pieces (array_vector.h): its sums fill the registers,
// and code that would save a little time is not worth its size.
template <class V>
constexpr bool kIsPortable = false;
// Whether there are vectors of twice the width beside it.
template <class V>
constexpr bool kIsHalf = false;

// How many vectors of sums, as they lie in memory, it is.
template <class V>
constexpr int kBlocks = 1;
// What holds the sums of two vectors of elements at less cost, if there is such a type.
template <class V, class E>
struct WideFor {
  using Type = void;
};

// Vector stores may alias anything, arguments included: loops work on local copies of theirs, or
// the compiler would load them again after every store. Copied word by word: loading a vector of
// what was written in words just before waits until these have left for the cache.
template <class Args>
BACKOPS_INLINE Args copied(const Args& args) {
  using Word = std::uint64_t;
  static_assert(sizeof(Args) % sizeof(Word) == 0, "arguments are words");
  Args own;
#pragma GCC unroll 32
  for (unsigned i = 0; i < sizeof(Args); i += sizeof(Word)) {
    Word word;
    __builtin_memcpy(&word, reinterpret_cast<const char*>(&args) + i, sizeof word);
#if defined(__GNUC__)
    asm("" : "+r"(word));
#endif
    __builtin_memcpy(reinterpret_cast<char*>(&own) + i, &word, sizeof word);
  }
  return own;
}

// Calls body(Whole, j, lanes) for whole vectors, then body(Part, j, rest) for what remains.
struct Whole {};
struct Part {};

template <class V, class Body>
BACKOPS_INLINE void for_vectors(std::int64_t columns, const Body& body) {
  std::int64_t j = 0;
  for (; j + V::width <= columns; j += V::width) body(Whole{}, j, V::width);
  if (j < columns) body(Part{}, j, static_cast<int>(columns - j));
}

// The same for bodies that may write an element twice: the last vector then overlaps the one before
// it, because loads and stores of a part of a vector are slow where there are no masks, and on some
// CPUs that have them. Only rows shorter than a vector are a part of one.
template <class V, class Body>
BACKOPS_INLINE void for_overlapping_vectors(std::int64_t columns, const Body& body) {
  if (columns < V::width) {
    if (columns > 0) body(Part{}, 0, static_cast<int>(columns));
    return;
  }
  const std::int64_t last = columns - V::width;
  for (std::int64_t next = 0; next < columns; next += V::width) {
    body(Whole{}, next < last ? next : last, V::width);
  }
}

// Calls body(first, count) for parts of nearly the same size, none of more than `most`: short ones
// would wait for their own sums.
template <class Body>
BACKOPS_INLINE void for_even_parts(std::int64_t total, std::int64_t most, const Body& body) {
  if (total <= 0) return;
  const std::int64_t parts = (total + most - 1) / most;
  const std::int64_t least = total / parts, larger = total % parts;
  for (std::int64_t part = 0, first = 0; part < parts; ++part) {
    const std::int64_t count = part < larger ? least + 1 : least;
    body(first, count);
    first += count;
  }
}

// `from + step`, added when it is needed. Compilers would work the places of an unrolled loop out
// before it, and keep them in memory where registers are too few.
template <class E>
BACKOPS_INLINE E* advanced(E* from, std::int64_t step) {
  from += step;
#if defined(__GNUC__)
  asm("" : "+r"(from));
#endif
  return from;
}

// A vector that is used several times: compilers would load it again for each.
template <class V>
BACKOPS_INLINE V in_register(V vector) {
#if defined(__GNUC__) && defined(__x86_64__)
  if constexpr (!kIsPortable<V> && kBlocks<V> == 1) asm("" : "+v"(vector.value));
#elif defined(__GNUC__) && defined(__aarch64__)
  if constexpr (!kIsPortable<V>) asm("" : "+w"(vector.value));
#endif
  return vector;
}

// Sums in memory; those of the next block lie `pitch` behind them.
template <class V>
BACKOPS_INLINE V load_sums(const typename V::Sum* from, std::int64_t pitch) {
  if constexpr (kBlocks<V> == 2) {
    return V::load_blocks(from, from + pitch);
  } else {
    return V::load(from);
  }
}

template <class V, class E>
BACKOPS_INLINE V load(Whole, const E* from, int) {
  return V::load(from);
}
template <class V, class E>
BACKOPS_INLINE V load(Part, const E* from, int count) {
  return V::load_some(from, count);
}
template <class V, class E>
BACKOPS_INLINE void store(Whole, const V& value, E* to, int) {
  value.store(to);
}
template <class V, class E>
BACKOPS_INLINE void store(Part, const V& value, E* to, int count) {
  value.store_some(to, count);
}

}  // namespace
}  // namespace backops

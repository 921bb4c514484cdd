// Loops over vectors and where rows go: what all passes share. Everything here and in the files
// that include it has internal linkage, and nothing of the standard library's templates is used, so
// that no code compiled for a better CPU can be picked by the linker for a lesser one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/pool/pool.h"

namespace backops {
namespace {

// Rows are often two or three vectors long: a call per row would cost as much as the row.
// Sanitizers check every access, and take minutes to compile what is inlined into one function.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BACKOPS_INLINE inline
#define BACKOPS_FLATTEN
#else
#define BACKOPS_INLINE inline __attribute__((always_inline))
#define BACKOPS_FLATTEN __attribute__((flatten))
#endif

// Vector stores may alias anything, arguments included: loops work on local copies of theirs, or
// the compiler would load them again after every store.

// Calls body(Whole, j, lanes) for whole vectors, then body(Part, j, rest) for what remains.
struct Whole {};
struct Part {};

template <class V, class Body>
BACKOPS_INLINE void for_vectors(std::int64_t columns, const Body& body) {
  std::int64_t j = 0;
  for (; j + V::lanes <= columns; j += V::lanes) body(Whole{}, j, V::lanes);
  if (j < columns) body(Part{}, j, static_cast<int>(columns - j));
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

// Where a finished row goes: one row, or `repeat` rows, `pitch` bytes apart.
template <class T>
struct OneRow {
  T* row;

  template <class V, class Kind>
  BACKOPS_INLINE void put(Kind kind, const V& value, std::int64_t j, int count) const {
    store(kind, value, row + j, count);
  }
  BACKOPS_INLINE void move(std::int64_t bytes) {
    row = reinterpret_cast<T*>(reinterpret_cast<char*>(row) + bytes);
  }
};

template <class T>
struct Repeated {
  char* first;
  std::int64_t pitch, repeat;

  template <class V, class Kind>
  BACKOPS_INLINE void put(Kind kind, const V& value, std::int64_t j, int count) const {
    char* row = first;
    for (std::int64_t q = 0; q < repeat; ++q, row += pitch) {
      store(kind, value, reinterpret_cast<T*>(row) + j, count);
    }
  }
  BACKOPS_INLINE void move(std::int64_t bytes) { first += bytes; }
};

// Calls body(OneRow or Repeated).
template <class T, class Body>
BACKOPS_INLINE void with_target(char* first, std::int64_t pitch, std::int64_t repeat,
                                const Body& body) {
  if (repeat == 1) return body(OneRow<T>{reinterpret_cast<T*>(first)});
  body(Repeated<T>{first, pitch, repeat});
}

}  // namespace
}  // namespace backops

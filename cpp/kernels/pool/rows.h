// Where rows go: what all passes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/announce.h"
#include "kernels/pool/pool.h"
#include "kernels/vectors/loops.h"

namespace backops {
namespace {

// A row of sums in scratch memory, which is in a cache.
template <class T>
struct SumRow {
  T* row;

  template <class V, class Kind>
  BACKOPS_INLINE void put(Kind kind, const V& value, std::int64_t j, int count) const {
    store(kind, value, row + j, count);
  }
  BACKOPS_INLINE void move(std::int64_t bytes) {
    row = reinterpret_cast<T*>(reinterpret_cast<char*>(row) + bytes);
  }
};

// Where a finished row goes: one row, or `repeat` rows, `pitch` bytes apart.
template <class T>
struct OneRow {
  T* row;

  template <class V, class Kind>
  BACKOPS_INLINE void put(Kind kind, const V& value, std::int64_t j, int count) const {
    announce_writing(row + j);
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
      T* const place = reinterpret_cast<T*>(row) + j;
      announce_writing(place);
      store(kind, value, place, count);
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

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

// A row of sums in scratch memory, or of elements.
template <class T>
struct Row {
  T* row;

  template <class V, class Kind>
  BACKOPS_INLINE void put(Kind kind, const V& value, std::int64_t j, int count) const {
    store(kind, value, row + j, count);
  }
  BACKOPS_INLINE void move(std::int64_t bytes, std::int64_t times = 1) {
    row = reinterpret_cast<T*>(reinterpret_cast<char*>(row) + bytes * times);
  }
};

// A row of elements whose sums are multiplied before they are stored: by the row's factor and, if
// there are any, by one for each column.
template <class T, class Sum>
struct FinishedRow {
  T* row;
  const Sum* column_factors;
  Sum factor;

  template <class V, class Kind>
  BACKOPS_INLINE void put(Kind kind, const V& value, std::int64_t j, int count) const {
    V own = V::fill(factor);
    if (column_factors) own = load<V>(kind, column_factors + j, count) * own;
    store(kind, value * own, row + j, count);
  }
};

// The same for rows that are visited in turn, each with a factor of its own.
template <class T, class Sum>
struct FinishedRows {
  T* row;
  const Sum* factors;  // of this row; null: one for all
  std::int64_t step;   // to the next row's
  Sum factor;

  template <class V, class Kind>
  BACKOPS_INLINE void put(Kind kind, const V& value, std::int64_t j, int count) const {
    store(kind, value * V::fill(factors ? *factors * factor : factor), row + j, count);
  }
  BACKOPS_INLINE void move(std::int64_t bytes, std::int64_t times = 1) {
    row = reinterpret_cast<T*>(reinterpret_cast<char*>(row) + bytes * times);
    if (factors) factors += step * times;
  }
};

// The first bytes of one row to another, both in a cache. Overlapping copies of a size the compiler
// knows: rows are too short for calls.
inline void copy_row(char* to, const char* from, std::int64_t bytes) {
  constexpr std::int64_t kPiece = 32;
  if (bytes < kPiece) {
    // Compilers that do not know it is not negative warn of a copy of 2^63 bytes.
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  const std::int64_t last = bytes - kPiece;
  for (std::int64_t at = 0; at < last; at += kPiece) std::memcpy(to + at, from + at, kPiece);
  std::memcpy(to + last, from + last, kPiece);
}

// Calls body(Row) for the first of `repeat` rows, `pitch` bytes apart, and copies it to the
// others, after asking for rows that will come `ahead` bytes later.
template <class T, class Body>
BACKOPS_INLINE void write_rows(char* first, std::int64_t pitch, std::int64_t repeat,
                               std::int64_t columns, std::int64_t ahead, const Body& body) {
  const std::int64_t bytes = columns * static_cast<std::int64_t>(sizeof(T));
  announce_row(first, bytes, ahead);
  body(Row<T>{reinterpret_cast<T*>(first)});
  for (std::int64_t q = 1; q < repeat; ++q) {
    announce_row(first + q * pitch, bytes, ahead);
    copy_row(first + q * pitch, first, bytes);
  }
}

}  // namespace
}  // namespace backops

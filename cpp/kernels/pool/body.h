// The pooling passes, written once over a vector type (see array_vector.h for what it offers).
// Included by one file per instruction set: everything here has internal linkage, and nothing of
// the standard library's templates is used, so that no code compiled for a better CPU can be picked
// by the linker for a lesser one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/pool/pool.h"

namespace backops {
namespace {

// Calls body(j, lanes) for whole vectors and body(j, rest) once for what remains of `columns`.
// `whole` tells the two apart at compile time.
struct Whole {
  static constexpr bool value = true;
};
struct Part {
  static constexpr bool value = false;
};

template <class V, class Body>
inline void for_vectors(std::int64_t columns, const Body& body) {
  std::int64_t j = 0;
  for (; j + V::lanes <= columns; j += V::lanes) body(Whole{}, j, V::lanes);
  if (j < columns) body(Part{}, j, static_cast<int>(columns - j));
}

template <class V, class Kind, class E>
inline V load(Kind, const E* from, int count) {
  if constexpr (Kind::value) return V::load(from);
  return V::load_some(from, count);
}

template <class V, class Kind, class E>
inline void store(Kind, const V& value, E* to, int count) {
  if constexpr (Kind::value) {
    value.store(to);
  } else {
    value.store_some(to, count);
  }
}

// ---- combine -----------------------------------------------------------------------------------

template <class V, class S, class T>
struct Combine {
  using Sum = typename V::Sum;
  const CombineArgs& a;
  const char* source;  // of the current plane
  char* target;

  const S* row(std::int64_t r) const {
    return reinterpret_cast<const S*>(source + r * a.source_pitch_bytes);
  }
  Sum weight(std::int64_t r) const {
    return a.weights ? static_cast<const Sum*>(a.weights)[r] : static_cast<Sum>(a.scale);
  }

  template <class Kind>
  void finish(Kind kind, V sum, std::int64_t j, int count, char* to, std::int64_t repeat) const {
    if (a.column_weights) {
      sum = sum * load<V>(kind, static_cast<const Sum*>(a.column_weights) + j, count);
    }
    for (std::int64_t q = 0; q < repeat; ++q, to += a.target_pitch_bytes) {
      store(kind, sum, reinterpret_cast<T*>(to) + j, count);
    }
  }

  template <int kRows>
  void direct(const Run& run, char* to, std::int64_t repeat) const {
    const S* rows[kRows > 0 ? kRows : 1];
    V weights[kRows > 0 ? kRows : 1];
    for (int i = 0; i < kRows; ++i) {
      rows[i] = row(run.first + i);
      weights[i] = V::fill(weight(run.first + i));
    }
    for_vectors<V>(a.columns, [&](auto kind, std::int64_t j, int count) {
      V sum = V::fill(0);
      if constexpr (kRows > 0) sum = load<V>(kind, rows[0] + j, count) * weights[0];
      for (int i = 1; i < kRows; ++i) sum = sum + load<V>(kind, rows[i] + j, count) * weights[i];
      finish(kind, sum, j, count, to, repeat);
    });
  }

  void any_length(const Run& run, char* to, std::int64_t repeat) const {
    for_vectors<V>(a.columns, [&](auto kind, std::int64_t j, int count) {
      V sum = load<V>(kind, row(run.first) + j, count) * V::fill(weight(run.first));
      for (std::int64_t r = run.first + 1; r < run.first + run.count; ++r) {
        sum = sum + load<V>(kind, row(r) + j, count) * V::fill(weight(r));
      }
      finish(kind, sum, j, count, to, repeat);
    });
  }

  void short_run(const Run& run, char* to, std::int64_t repeat) const {
    switch (run.count) {
      case 0: return direct<0>(run, to, repeat);
      case 1: return direct<1>(run, to, repeat);
      case 2: return direct<2>(run, to, repeat);
      case 3: return direct<3>(run, to, repeat);
      case 4: return direct<4>(run, to, repeat);
      case 5: return direct<5>(run, to, repeat);
      case 6: return direct<6>(run, to, repeat);
      default: return any_length(run, to, repeat);
    }
  }
};

// Long runs, as the sum of a block's tail and the next block's head (van Herk's idea): subtracting
// what leaves a running sum would be cheaper still, but lets one NaN or infinity reach everything
// behind it.
template <class V, class S, class T>
struct CombineBlocks : Combine<V, S, T> {
  using Base = Combine<V, S, T>;
  using Sum = typename V::Sum;
  using Base::a;

  Sum* tails;  // row r of the current block: sum of rows r .. end of the block
  Sum* head;   // sum of rows from the start of head_block up to head_end
  std::int64_t tail_block = -1, tail_from = 0, head_block = -1, head_end = 0;

  CombineBlocks(const CombineArgs& args, const char* source, char* target)
      : Base{args, source, target},
        tails(static_cast<Sum*>(args.scratch)),
        head(static_cast<Sum*>(args.scratch) + args.block * args.columns) {}

  // *to = weight * row r (+ *from)
  void add_row(std::int64_t r, const Sum* from, Sum* to) const {
    const S* source_row = this->row(r);
    const V weight = V::fill(this->weight(r));
    for_vectors<V>(a.columns, [&](auto kind, std::int64_t j, int count) {
      V sum = load<V>(kind, source_row + j, count) * weight;
      if (from) sum = load<V>(kind, from + j, count) + sum;
      store(kind, sum, to + j, count);
    });
  }

  const Sum* tail(std::int64_t block, std::int64_t absolute_row, std::int64_t block_end) {
    if (block != tail_block) {
      const Sum* from = nullptr;
      for (std::int64_t r = block_end - 1; r >= absolute_row; --r) {
        Sum* const to = tails + (r - block * a.block) * a.columns;
        add_row(r - a.first_row, from, to);
        from = to;
      }
      tail_block = block;
    }
    return tails + (absolute_row - block * a.block) * a.columns;
  }

  const Sum* head_up_to(std::int64_t block, std::int64_t absolute_end) {
    if (block != head_block) {
      head_block = block;
      head_end = block * a.block;
    }
    for (; head_end < absolute_end; ++head_end) {
      add_row(head_end - a.first_row, head_end == block * a.block ? nullptr : head, head);
    }
    return head;
  }

  void sum_of(const Sum* left, const Sum* right, char* to, std::int64_t repeat) const {
    for_vectors<V>(a.columns, [&](auto kind, std::int64_t j, int count) {
      V sum = load<V>(kind, left + j, count);
      if (right) sum = sum + load<V>(kind, right + j, count);
      this->finish(kind, sum, j, count, to, repeat);
    });
  }

  void run(const Run& run, char* to, std::int64_t repeat) {
    if (run.count <= kLongestDirectRun) return this->short_run(run, to, repeat);
    const std::int64_t begin = run.first + a.first_row, end = begin + run.count;
    const std::int64_t block = begin / a.block;
    std::int64_t block_end = (block + 1) * a.block;
    if (block_end > a.axis_rows) block_end = a.axis_rows;
    if (end == block_end) {
      sum_of(tail(block, begin, block_end), nullptr, to, repeat);
    } else if (end > block_end) {
      sum_of(tail(block, begin, block_end), head_up_to(block + 1, end), to, repeat);
    } else if (begin == block * a.block) {
      sum_of(head_up_to(block, end), nullptr, to, repeat);
    } else {
      this->any_length(run, to, repeat);
    }
  }
};

template <class V, class S, class T>
void combine(const CombineArgs& a) {
  const bool blocks = a.block > kLongestDirectRun;
  for (std::int64_t plane = 0; plane < a.planes; ++plane) {
    const char* const source = a.source + a.source_offsets[plane];
    char* const target = a.target + a.target_offsets[plane];
    const Combine<V, S, T> direct{a, source, target};
    CombineBlocks<V, S, T> long_runs(a, source, target);
    for (std::int64_t r = 0; r < a.run_count; ++r) {
      const Run& run = a.runs[r];
      char* const to = target + (a.compact ? r : run.target) * a.target_pitch_bytes;
      const std::int64_t repeat = a.compact ? 1 : run.repeat;
      if (blocks) {
        long_runs.run(run, to, repeat);
      } else {
        direct.short_run(run, to, repeat);
      }
    }
  }
}

// ---- spread, slide, fill -----------------------------------------------------------------------

// Calls body(source row, level rows, first target row, repeat) for each row of each plane.
template <class Sum, class Body>
inline void for_rows(const SpreadArgs& a, const Body& body) {
  const char* source = a.source;
  for (std::int64_t plane = 0; plane < a.planes; ++plane) {
    char* const target = a.target + a.target_offsets[plane];
    for (std::int64_t r = 0; r < a.run_count; ++r, source += a.source_pitch_bytes) {
      const Run& run = a.runs[r];
      body(reinterpret_cast<const Sum*>(source), target + run.target * a.target_pitch_bytes,
           run.repeat);
    }
  }
}

template <class V, class T, class Kind>
inline void store_repeated(Kind kind, const SpreadArgs& a, const V& value, char* target,
                           std::int64_t repeat, std::int64_t j, int count) {
  for (std::int64_t q = 0; q < repeat; ++q, target += a.target_pitch_bytes) {
    store(kind, value, reinterpret_cast<T*>(target) + j, count);
  }
}

// levels[l][j] = source[j] + ... + source[j + 2^l - 1], level 0 being the source itself.
constexpr int kMaxLevels = 32;

template <class V>
inline void make_levels(const SpreadArgs& a, const typename V::Sum* source,
                        const typename V::Sum** levels) {
  using Sum = typename V::Sum;
  levels[0] = source;
  for (int l = 1; l < a.levels; ++l) {
    const Sum* const from = levels[l - 1];
    Sum* const to = static_cast<Sum*>(a.scratch) + (l - 1) * a.source_columns;
    const std::int64_t half = std::int64_t{1} << (l - 1);
    for_vectors<V>(a.source_columns - 2 * half + 1, [&](auto kind, std::int64_t j, int count) {
      store(kind, load<V>(kind, from + j, count) + load<V>(kind, from + j + half, count), to + j,
            count);
    });
    levels[l] = to;
  }
}

template <class V, Reach kReach>
inline V moved(const typename V::Sum* from, const std::int32_t* pattern) {
  if constexpr (kReach == Reach::one_vector) return V::permute_one(from, pattern);
  if constexpr (kReach == Reach::two_vectors) return V::permute_two(from, pattern);
  return V::gather(from, pattern);
}

// kTerms 0: any number of terms, at any level.
template <class V, class T, Reach kReach, int kTerms>
void spread_rows(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  const std::int64_t terms = kTerms > 0 ? kTerms : a.table->terms_per_vector;
  const std::int32_t* const patterns = a.table->patterns;
  for_rows<Sum>(a, [&](const Sum* source, char* target, std::int64_t repeat) {
    const Sum* levels[kMaxLevels];
    levels[0] = source;
    if constexpr (kTerms == 0) make_levels<V>(a, source, levels);
    const SpreadTerm* term = a.table->terms;
    for_vectors<V>(a.columns, [&](auto kind, std::int64_t j, int count) {
      V sum = V::fill(0);
      for (std::int64_t t = 0; t < terms; ++t, ++term) {
        const Sum* const from = levels[kTerms == 0 ? term->level : 0] + term->offset;
        sum = sum.add_masked(moved<V, kReach>(from, patterns + term->pattern * V::lanes),
                             term->mask);
      }
      store_repeated<V, T>(kind, a, sum, target, repeat, j, count);
    });
  });
}

template <class V, class T, Reach kReach>
void spread_reach(const SpreadArgs& a) {
  if (a.levels > 1) return spread_rows<V, T, kReach, 0>(a);
  switch (a.table->terms_per_vector) {
    case 1: return spread_rows<V, T, kReach, 1>(a);
    case 2: return spread_rows<V, T, kReach, 2>(a);
    default: return spread_rows<V, T, kReach, 0>(a);
  }
}

template <class V, class T>
void spread(const SpreadArgs& a) {
  switch (a.table->reach) {
    case Reach::one_vector: return spread_reach<V, T, Reach::one_vector>(a);
    case Reach::two_vectors: return spread_reach<V, T, Reach::two_vectors>(a);
    default: return spread_rows<V, T, Reach::anywhere, 0>(a);
  }
}

template <class V, class T, int kKernel>
void slide_direct(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  for_rows<Sum>(a, [&](const Sum* source, char* target, std::int64_t repeat) {
    for_vectors<V>(a.columns, [&](auto kind, std::int64_t j, int count) {
      V sum = load<V>(kind, source + j, count);
      for (int i = 1; i < kKernel; ++i) sum = sum + load<V>(kind, source + j + i, count);
      store_repeated<V, T>(kind, a, sum, target, repeat, j, count);
    });
  });
}

template <class V, class T>
void slide_levels(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  for_rows<Sum>(a, [&](const Sum* source, char* target, std::int64_t repeat) {
    const Sum* levels[kMaxLevels];
    make_levels<V>(a, source, levels);
    // The kernel's binary digits, highest first, each a level read where the one before ended.
    const Sum* parts[kMaxLevels];
    int part_count = 0;
    std::int64_t at = 0;
    for (int l = a.levels - 1; l >= 0; --l) {
      if ((a.kernel >> l & 1) == 0) continue;
      parts[part_count++] = levels[l] + at;
      at += std::int64_t{1} << l;
    }
    for_vectors<V>(a.columns, [&](auto kind, std::int64_t j, int count) {
      V sum = load<V>(kind, parts[0] + j, count);
      for (int i = 1; i < part_count; ++i) sum = sum + load<V>(kind, parts[i] + j, count);
      store_repeated<V, T>(kind, a, sum, target, repeat, j, count);
    });
  });
}

template <class V, class T>
void slide(const SpreadArgs& a) {
  switch (a.kernel) {
    case 1: return slide_direct<V, T, 1>(a);
    case 2: return slide_direct<V, T, 2>(a);
    case 3: return slide_direct<V, T, 3>(a);
    case 4: return slide_direct<V, T, 4>(a);
    case 5: return slide_direct<V, T, 5>(a);
    case 6: return slide_direct<V, T, 6>(a);
    case 7: return slide_direct<V, T, 7>(a);
    case 8: return slide_direct<V, T, 8>(a);
    default: return slide_levels<V, T>(a);
  }
}

template <class V, class T>
void fill(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  for_rows<Sum>(a, [&](const Sum* source, char* target, std::int64_t repeat) {
    const V value = V::fill(*source);
    for_vectors<V>(a.columns, [&](auto kind, std::int64_t j, int count) {
      store_repeated<V, T>(kind, a, value, target, repeat, j, count);
    });
  });
}

// ---- the table's entries -----------------------------------------------------------------------

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
constexpr PoolKernels make_pool_kernels(const char* name, Isa isa, DType dtype) {
  using Sum = typename V::Sum;
  return {name,
          isa,
          dtype,
          V::lanes,
          combine<V, E, Sum>,
          combine<V, Sum, Sum>,
          combine<V, Sum, E>,
          spread<V, E>,
          slide<V, E>,
          fill<V, E>,
          V::stream,
          V::stream_fence,
          round_to_float16<V>};
}

}  // namespace
}  // namespace backops

#define BACKOPS_DEFINE_POOL_KERNELS(isa, dtype, element, vector)        \
  extern const PoolKernels pool_##dtype##_##isa;                        \
  const PoolKernels pool_##dtype##_##isa = make_pool_kernels<vector, element>( \
      "pool_" #dtype "_" #isa, Isa::isa, DType::dtype);

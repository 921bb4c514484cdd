// Rows of sums spread along columns, written once over a vector type (see array_vector.h for what
// it offers).
#pragma once

#include "kernels/pool/rows.h"

namespace backops {
namespace {

// Calls body(source row, target) for each row of each plane.
template <class Sum, class T, class Body>
BACKOPS_INLINE void for_rows(const SpreadArgs& a, const Body& body) {
  const char* source = a.source;
  const std::int64_t planes = a.planes, run_count = a.run_count;
  const std::int64_t source_pitch = a.source_pitch_bytes, target_pitch = a.target_pitch_bytes;
  const std::int64_t columns = a.columns, ahead = a.announce_bytes;
  const Run* const runs = a.runs;
  const auto* const row_factors = static_cast<const Sum*>(a.row_factors);
  const auto* const column_factors = static_cast<const Sum*>(a.column_factors);
  const bool finishes = row_factors || column_factors;
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    char* const target = a.target + a.target_offsets[plane];
    for (std::int64_t r = 0; r < run_count; ++r, source += source_pitch) {
      write_rows<T>(target + runs[r].target * target_pitch, target_pitch, runs[r].repeat, columns,
                    ahead, [&](auto to) {
                      const Sum* const sums = reinterpret_cast<const Sum*>(source);
                      if (!finishes) return body(sums, to);
                      const Sum factor = row_factors ? row_factors[runs[r].target] : Sum{1};
                      body(sums, FinishedRow<T, Sum>{to.row, column_factors, factor});
                    });
    }
  }
}

// Elements from `row + offset` on, read from the whole vectors around them. Rows of sums mostly
// start on whole vectors, and a load across two cache lines costs more than two loads and a
// permutation. May read beyond the row, by less than two vectors.
template <class V>
struct Place {
  const typename V::Sum* base;
  typename V::Shift shift;

  BACKOPS_INLINE Place() = default;
  BACKOPS_INLINE Place(const typename V::Sum* row, std::int64_t offset)
      : base(row + offset / V::width * V::width), shift(V::shift(offset % V::width)) {}
  BACKOPS_INLINE V at(std::int64_t j) const { return V::load_shifted(base + j, shift); }
};

// Sums of base^l neighbours, for a.level_rows rows at a time: level 0 is the rows themselves.
// Neighbours across a row's end are summed too and never used. One row at a time would read each
// level before its stores have left the core.
constexpr int kMaxLevels = 32;

template <class V>
class Levels {
 public:
  using Sum = typename V::Sum;

  explicit Levels(const SpreadArgs& a)
      : args_(a), rows_left_(a.planes * a.run_count), row_(a.level_rows) {}

  // To be called for each row in turn.
  void next(const Sum* source) {
    if (++row_ >= args_.level_rows) {
      make(source);
      row_ = 0;
    }
    --rows_left_;
  }

  const Sum* row(int level) const { return levels_[level] + row_ * args_.source_columns; }

 private:
  void make(const Sum* source) {
    const std::int64_t rows = rows_left_ < args_.level_rows ? rows_left_ : args_.level_rows;
    levels_[0] = source;
    std::int64_t step = 1;
    for (int l = 1; l < args_.levels; ++l, step *= args_.base) {
      Sum* const to = static_cast<Sum*>(args_.scratch) + (l - 1) * args_.level_pitch;
      const std::int64_t columns = rows * args_.source_columns - args_.base * step + 1;
      switch (args_.base) {
        case 3: add<3>(levels_[l - 1], step, columns, to); break;
        case 4: add<4>(levels_[l - 1], step, columns, to); break;
        case 5: add<5>(levels_[l - 1], step, columns, to); break;
        default: add<6>(levels_[l - 1], step, columns, to); break;
      }
      levels_[l] = to;
    }
  }

  template <int kBase>
  static void add(const Sum* from, std::int64_t step, std::int64_t columns, Sum* to) {
    Place<V> places[kBase];
    for (int i = 1; i < kBase; ++i) places[i] = Place<V>(from, i * step);
    for_overlapping_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      V sum = V::load(from + j);
      for (int i = 1; i < kBase; ++i) sum = sum + places[i].at(j);
      store(kind, sum, to + j, count);
    });
  }

  const SpreadArgs& args_;
  std::int64_t rows_left_, row_;
  const Sum* levels_[kMaxLevels];
};

template <class V, Reach kReach>
BACKOPS_INLINE V moved(const typename V::Sum* from, typename V::Pattern pattern) {
  if constexpr (kReach == Reach::one_vector) return V::permute_one(from, pattern);
  if constexpr (kReach == Reach::two_vectors) return V::permute_two(from, pattern);
  return V::gather(from, pattern);
}

// The first entry of a sum. Lanes that it leaves out are 0; those that another entry will begin are
// -0, for 0 plus -0 is not.
template <class V>
BACKOPS_INLINE V begin_sum(const V& term, typename V::Mask mask, bool splits_terms) {
  return splits_terms ? V::fill(-0.0f).add_masked(term, mask) : term.only(mask);
}

// Any number of terms, at any level.
template <class V, class T, Reach kReach>
BACKOPS_FLATTEN void spread_rows(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  const std::int64_t terms = a.table->terms_per_vector;
  const std::int32_t* const patterns = a.table->patterns;
  const SpreadTerm* const first_term = a.table->terms;
  const bool splits_terms = a.table->splits_terms;
  const std::int64_t columns = a.columns;
  Levels<V> levels(a);
  for_rows<Sum, T>(a, [&](const Sum* source, auto target) {
    levels.next(source);
    const SpreadTerm* term = first_term;
    for_overlapping_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      const auto moved_term = [&] {
        const auto pattern = V::load_pattern(patterns + term->pattern * V::width);
        return moved<V, kReach>(levels.row(term->level) + term->offset, pattern);
      };
      V sum = begin_sum(moved_term(), V::mask(term->mask), splits_terms);
      ++term;
      for (std::int64_t t = 1; t < terms; ++t, ++term) {
        sum = sum.add_masked(moved_term(), V::mask(term->mask));
      }
      target.put(kind, sum, j, count);
    });
  });
}

// Few terms, none of them at a level. Steady vectors keep their patterns in registers.
template <class V, class T, Reach kReach, int kTerms>
BACKOPS_FLATTEN void spread_few(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  const SpreadTable table = *a.table;
  const std::int64_t columns = a.columns;
  const std::int64_t vectors = (columns + V::width - 1) / V::width;
  const std::int64_t steady_begin = table.steady_begin, steady_end = table.steady_end;
  const SpreadTerm* const steady = table.terms + steady_begin * kTerms;
  typename V::Pattern pattern[kTerms];
  typename V::Mask mask[kTerms];
  std::int64_t offset[kTerms];
  for (int t = 0; t < kTerms; ++t) {
    pattern[t] = V::load_pattern(table.patterns + steady[t].pattern * V::width);
    mask[t] = V::mask(steady[t].mask);
    offset[t] = steady[t].offset;
  }
  for_rows<Sum, T>(a, [&](const Sum* source, auto target) {
    const auto vector = [&](auto kind, std::int64_t v, int count) {
      const SpreadTerm* const terms = table.terms + v * kTerms;
      V sum;
      for (int t = 0; t < kTerms; ++t) {
        const auto own = V::load_pattern(table.patterns + terms[t].pattern * V::width);
        const V term = moved<V, kReach>(source + terms[t].offset, own);
        const auto chosen = V::mask(terms[t].mask);
        sum = t == 0 ? begin_sum(term, chosen, table.splits_terms) : sum.add_masked(term, chosen);
      }
      target.put(kind, sum, vector_begin(v, columns, V::width), count);
    };
    if (columns < V::width) return vector(Part{}, 0, static_cast<int>(columns));
    for (std::int64_t v = 0; v < vectors; ++v) {
      const Sum* from = source;
      for (; steady_begin <= v && v < steady_end; ++v, from += table.steady_step) {
        V sum;
        for (int t = 0; t < kTerms; ++t) {
          const V term = moved<V, kReach>(from + offset[t], pattern[t]);
          sum =
              t == 0 ? begin_sum(term, mask[t], table.splits_terms) : sum.add_masked(term, mask[t]);
        }
        target.put(Whole{}, sum, v * V::width, V::width);
      }
      if (v < vectors) vector(Whole{}, v, V::width);
    }
  });
}

template <class V, class T, Reach kReach>
void spread_reach(const SpreadArgs& a) {
  if (a.levels > 1) return spread_rows<V, T, kReach>(a);
  switch (a.table->terms_per_vector) {
    case 1: return spread_few<V, T, kReach, 1>(a);
    case 2: return spread_few<V, T, kReach, 2>(a);
    case 3: return spread_few<V, T, kReach, 3>(a);
    case 4: return spread_few<V, T, kReach, 4>(a);
    default: return spread_rows<V, T, kReach>(a);
  }
}

template <class V, class T>
void spread(const SpreadArgs& a) {
  if constexpr (V::only_gathers) {
    spread_reach<V, T, Reach::anywhere>(a);
  } else {
    switch (a.table->reach) {
      case Reach::one_vector: return spread_reach<V, T, Reach::one_vector>(a);
      case Reach::two_vectors: return spread_reach<V, T, Reach::two_vectors>(a);
      default: return spread_rows<V, T, Reach::anywhere>(a);
    }
  }
}

template <class V, class T, int kKernel>
BACKOPS_FLATTEN void slide_direct(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  const std::int64_t columns = a.columns;
  for_rows<Sum, T>(a, [&](const Sum* source, auto target) {
    for_overlapping_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      V sum = V::load(source + j);
      for (int i = 1; i < kKernel; ++i) sum = sum + Place<V>(source, i).at(j);
      target.put(kind, sum, j, count);
    });
  });
}

constexpr int kMostParts = 5 * kMaxLevels;  // the largest digit, of base 6, on every level

// One element of a level: where in its row, and how far beyond a whole vector.
template <class V>
struct SlidePart {
  int level;
  std::int64_t offset;
  typename V::Shift shift;
};

// The kernel's digits, highest first, each so many elements of its level, read where the ones
// before ended.
template <class V>
int slide_parts(const SpreadArgs& a, SlidePart<V>* parts) {
  std::int64_t size = 1;
  for (int l = 1; l < a.levels; ++l) size *= a.base;
  int count = 0;
  std::int64_t at = 0;
  for (int l = a.levels - 1; l >= 0; --l, size /= a.base) {
    for (; at + size <= a.kernel; at += size) {
      parts[count++] = {l, at / V::width * V::width, V::shift(at % V::width)};
    }
  }
  return count;
}

// kParts 0: any number.
template <class V, class T, int kParts>
BACKOPS_FLATTEN void slide_levels(const SpreadArgs& a, const SlidePart<V>* all_parts,
                                  int part_count) {
  using Sum = typename V::Sum;
  const std::int64_t columns = a.columns;
  const int parts_used = kParts > 0 ? kParts : part_count;
  SlidePart<V> parts[kParts > 0 ? kParts : kMostParts];
  parts[0] = all_parts[0];
  for (int i = 1; i < parts_used; ++i) parts[i] = all_parts[i];
  Levels<V> levels(a);
  for_rows<Sum, T>(a, [&](const Sum* source, auto target) {
    levels.next(source);
    const Sum* from[kParts > 0 ? kParts : kMostParts];
    from[0] = levels.row(parts[0].level) + parts[0].offset;
    for (int i = 1; i < parts_used; ++i) from[i] = levels.row(parts[i].level) + parts[i].offset;
    for_overlapping_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      V sum = V::load(from[0] + j);
      for (int i = 1; i < parts_used; ++i) {
        sum = sum + V::load_shifted(from[i] + j, parts[i].shift);
      }
      target.put(kind, sum, j, count);
    });
  });
}

template <class V, class T>
void slide_far(const SpreadArgs& a) {
  SlidePart<V> parts[kMostParts];
  parts[0] = {0, 0, V::shift(0)};  // there is one, which the compiler cannot see
  const int count = slide_parts<V>(a, parts);
  switch (count) {
    case 1: return slide_levels<V, T, 1>(a, parts, count);
    case 2: return slide_levels<V, T, 2>(a, parts, count);
    case 3: return slide_levels<V, T, 3>(a, parts, count);
    case 4: return slide_levels<V, T, 4>(a, parts, count);
    case 5: return slide_levels<V, T, 5>(a, parts, count);
    case 6: return slide_levels<V, T, 6>(a, parts, count);
    default: return slide_levels<V, T, 0>(a, parts, count);
  }
}

// Three sums of kBase neighbours and a few more elements, as slide_levels() adds them, but no level
// goes through memory. Here loads across lines are the cheaper ones: permutations would wait for
// the ports that add.
template <class V, class T, int kBase>
BACKOPS_FLATTEN void slide_thrice(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  const std::int64_t columns = a.columns, rest = a.kernel - 3 * kBase;
  const typename V::Shift second = V::shift(kBase), third = V::shift(2 * kBase);
  for_rows<Sum, T>(a, [&](const Sum* source, auto target) {
    const auto level = [&](std::int64_t j) {
      V sum = V::load(source + j);
      for (int i = 1; i < kBase; ++i) sum = sum + V::load(source + j + i);
      return sum;
    };
    V low = level(0);
    for_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      const V high = level(j + V::width);
      V sum = low + V::shifted(low, high, second) + V::shifted(low, high, third);
      for (std::int64_t i = 0; i < rest; ++i) sum = sum + V::load(source + j + 3 * kBase + i);
      target.put(kind, sum, j, count);
      low = high;
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
    default: break;
  }
  if constexpr (V::shifts_in_registers) {
    const bool is_in_reach = a.kernel / a.base == 3 && 2 * a.base <= V::width;
    switch (is_in_reach ? a.base : 0) {
      case 3: return slide_thrice<V, T, 3>(a);
      case 4: return slide_thrice<V, T, 4>(a);
      case 5: return slide_thrice<V, T, 5>(a);
      case 6: return slide_thrice<V, T, 6>(a);
      default: break;
    }
  }
  slide_far<V, T>(a);
}

// Whether there is one row per plane and they follow each other without a gap.
template <class T>
bool rows_are_joined(const SpreadArgs& a) {
  if (a.run_count > 1 || a.runs[0].repeat > 1) return false;
  const std::int64_t row = a.columns * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t plane = 1; plane < a.planes; ++plane) {
    if (a.target_offsets[plane] - a.target_offsets[plane - 1] != row) return false;
  }
  return true;
}

// One element many times, in a register: two halves fill the place of one sum.
template <class V, class T>
BACKOPS_INLINE V repeated(T element) {
  T elements[sizeof(typename V::Sum) / sizeof(T)];
  for (T& copy : elements) copy = element;
  typename V::Sum bits;
  std::memcpy(&bits, elements, sizeof bits);
  return V::fill(bits);
}

// Stores may run over a row's end, for the next row is written after it. The last rows, where that
// would leave the target, are left: how many rows were filled is returned.
template <class V, class T>
BACKOPS_INLINE std::int64_t fill_joined(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  constexpr std::int64_t kStored = V::width * static_cast<std::int64_t>(sizeof(Sum) / sizeof(T));
  const std::int64_t columns = a.columns, ahead = a.announce_bytes;
  const std::int64_t overrun = (columns + kStored - 1) / kStored * kStored - columns;
  const std::int64_t last_rows = (overrun + columns - 1) / columns;  // within reach of the end
  const std::int64_t rows = a.planes > last_rows ? a.planes - last_rows : 0;
  const auto* const source = reinterpret_cast<const Sum*>(a.source);
  T* to = reinterpret_cast<T*>(a.target + a.target_offsets[0] +
                               a.runs[0].target * a.target_pitch_bytes);
  for_vectors<V>(rows, [&](auto kind, std::int64_t row, int count) {
    T elements[V::width];
    store(Whole{}, load<V>(kind, source + row, count), elements, count);
    for (int i = 0; i < count; ++i, to += columns) {
      const V value = repeated<V>(elements[i]);
      announce_row(to, columns * static_cast<std::int64_t>(sizeof(T)), ahead);
      for (std::int64_t j = 0; j < columns; j += kStored) {
        value.store(reinterpret_cast<Sum*>(to + j));
      }
    }
  });
  return rows;
}

// Windows over all columns leave these no factors of their own.
template <class V, class T>
BACKOPS_INLINE V finished(const Row<T>&, V sum) {
  return sum;
}
template <class V, class T, class Sum>
BACKOPS_INLINE V finished(const FinishedRow<T, Sum>& row, V sum) {
  return sum * V::fill(row.factor);
}

template <class V, class T>
BACKOPS_FLATTEN void fill(const SpreadArgs& a) {
  using Sum = typename V::Sum;
  SpreadArgs rest = a;
  if (a.source_pitch_bytes == sizeof(Sum) && !a.row_factors && rows_are_joined<T>(a)) {
    const std::int64_t filled = fill_joined<V, T>(a);
    rest.source += filled * a.source_pitch_bytes;
    rest.target_offsets += filled;
    rest.planes -= filled;
  }
  constexpr std::int64_t kStored = V::width * static_cast<std::int64_t>(sizeof(Sum) / sizeof(T));
  const std::int64_t columns = a.columns, last = columns - kStored;
  for_rows<Sum, T>(rest, [&](const Sum* source, auto target) {
    if (columns < kStored) {
      for_overlapping_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
        target.put(kind, V::fill(*source), j, count);
      });
      return;
    }
    T elements[V::width];
    finished(target, V::fill(*source)).store(elements);
    const V value = repeated<V>(elements[0]);
    for (std::int64_t next = 0; next < columns; next += kStored) {
      value.store(reinterpret_cast<Sum*>(target.row + (next < last ? next : last)));
    }
  });
}

}  // namespace
}  // namespace backops

// What the tests of pooling kernels share: the table, rows in memory with gaps around them, and the
// rule that the rest of the memory stays as it was.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/isa.h"
#include "kernels/pool/pool.h"
#include "tests/check.h"
#include "tests/elements.h"
#include "tests/memory.h"

namespace backops {

#define BACKOPS_POOL_KERNELS(isa, dtype) extern const PoolKernels pool_##dtype##_##isa;
#include "kernels/pool/kernels.inc"
#undef BACKOPS_POOL_KERNELS

namespace test {

// What passes over sums may read behind the last row.
constexpr std::int64_t kSlackBytes = 256;

struct TableRow {
  const PoolKernels* kernels;
  const char* isa;
  const char* dtype;
};

constexpr TableRow kTable[] = {
#define BACKOPS_POOL_KERNELS(isa, dtype) {&pool_##dtype##_##isa, #isa, #dtype},
#include "kernels/pool/kernels.inc"
#undef BACKOPS_POOL_KERNELS
};

inline bool runs_here(const PoolKernels& kernels) { return kernels.isa <= detected_isa(); }

// The rows of one dtype that this CPU runs, the generic one included.
inline std::vector<const PoolKernels*> kernels_of(DType dtype) {
  std::vector<const PoolKernels*> result;
  for (const TableRow& row : kTable) {
    if (row.kernels->dtype == dtype && runs_here(*row.kernels)) result.push_back(row.kernels);
  }
  return result;
}

inline const PoolKernels& generic_of(DType dtype) {
  for (const TableRow& row : kTable) {
    if (row.kernels->dtype == dtype && row.kernels->isa == Isa::generic) return *row.kernels;
  }
  std::abort();
}

// Rows of several planes in one memory: gaps between rows, planes from last to first, and rows
// upside down where asked.
struct Layout {
  DType dtype;
  std::int64_t planes, rows, columns;
  std::int64_t gap_bytes;
  bool flipped;
  std::int64_t slack_bytes;

  std::int64_t row_bytes() const { return columns * bytes_of(dtype); }
  std::int64_t distance() const { return row_bytes() + gap_bytes; }
  std::int64_t pitch() const { return flipped ? -distance() : distance(); }
  std::int64_t origin() const { return flipped ? (rows - 1) * distance() : 0; }
  std::int64_t bytes() const { return planes * rows * distance() - gap_bytes + slack_bytes; }
  std::int64_t at(std::int64_t plane, std::int64_t row) const {
    return (planes - 1 - plane) * rows * distance() + origin() + row * pitch();
  }
  std::vector<std::int64_t> offsets() const {
    std::vector<std::int64_t> result;
    for (std::int64_t p = 0; p < planes; ++p) result.push_back(at(p, 0) - origin());
    return result;
  }
};

inline std::vector<double> random_values(Random& random, DType dtype, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(rounded_to(dtype, random.real()));
  return values;
}

// One element after another from `values`, a row at a time; gaps and slack become NaN.
inline void fill_layout(const Memory& memory, const Layout& layout,
                        const std::vector<double>& values) {
  std::memset(memory.data(), 0xff, memory.size());
  std::size_t next = 0;
  for (std::int64_t p = 0; p < layout.planes; ++p) {
    for (std::int64_t r = 0; r < layout.rows; ++r) {
      for (std::int64_t j = 0; j < layout.columns; ++j) {
        write_element(layout.dtype, values[next++],
                      memory.data() + layout.at(p, r) + j * bytes_of(layout.dtype));
      }
    }
  }
}

// Numbers in the sum type, for weights.
inline Memory packed_sums(DType dtype, const std::vector<double>& values,
                          std::int64_t misalignment) {
  const DType sum = sum_dtype(dtype);
  Memory memory(static_cast<std::int64_t>(values.size()) * bytes_of(sum), misalignment);
  for (std::size_t i = 0; i < values.size(); ++i) {
    write_element(sum, values[i], memory.data() + i * size_of(sum));
  }
  return memory;
}

// A row of results as it should be; rows the pass must not touch have none.
struct ExpectedRow {
  bool written = false;
  std::vector<double> values, tolerances;
};

// Checks all written rows, and that the rest of the memory is as it was.
inline void check_target(const Memory& memory, const Layout& layout,
                         const std::vector<ExpectedRow>& expected) {
  std::vector<bool> may_change(memory.size(), false);
  for (std::int64_t p = 0; p < layout.planes; ++p) {
    for (std::int64_t r = 0; r < layout.rows; ++r) {
      const ExpectedRow& row = expected[static_cast<std::size_t>(p * layout.rows + r)];
      if (!row.written) continue;
      const auto begin = may_change.begin() + layout.at(p, r);
      std::fill(begin, begin + layout.row_bytes(), true);
      for (std::size_t j = 0; j < row.values.size(); ++j) {
        const double got =
            read_element(layout.dtype, memory.data() + layout.at(p, r) +
                                           static_cast<std::int64_t>(j) * bytes_of(layout.dtype));
        if (is_close(got, row.values[j], row.tolerances[j])) continue;
        CHECK_EQUAL(got, row.values[j]);
        return;
      }
    }
  }
  bool untouched = true;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    untouched &= may_change[i] || static_cast<unsigned char>(memory.data()[i]) == kUntouched;
  }
  CHECK(untouched);
}

// One file each.
void test_combine(DType dtype);
void test_moves(DType dtype);
void test_total(DType dtype);
void test_conversions(DType dtype);

}  // namespace test
}  // namespace backops

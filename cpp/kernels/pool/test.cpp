// Every row of kernels.inc: the generic row against sums taken in long double, every other row
// against the generic one, byte for byte. Whole buffers are compared, gaps between rows included:
// a byte written outside a row is a difference too.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
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

namespace {

using namespace test;

constexpr DType kDTypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};
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

bool runs_here(const PoolKernels& kernels) { return kernels.isa <= detected_isa(); }

// The rows of one dtype that this CPU runs, the generic one included.
std::vector<const PoolKernels*> kernels_of(DType dtype) {
  std::vector<const PoolKernels*> result;
  for (const TableRow& row : kTable) {
    if (row.kernels->dtype == dtype && runs_here(*row.kernels)) result.push_back(row.kernels);
  }
  return result;
}

const PoolKernels& generic_of(DType dtype) {
  for (const TableRow& row : kTable) {
    if (row.kernels->dtype == dtype && row.kernels->isa == Isa::generic) return *row.kernels;
  }
  std::abort();
}

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

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

std::vector<double> random_values(Random& random, DType dtype, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(rounded_to(dtype, random.real()));
  return values;
}

// One element after another from `values`, a row at a time; gaps and slack become NaN.
void fill_layout(const Memory& memory, const Layout& layout, const std::vector<double>& values) {
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
Memory packed_sums(DType dtype, const std::vector<double>& values, std::int64_t misalignment) {
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
void check_target(const Memory& memory, const Layout& layout,
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

// ---- combine -----------------------------------------------------------------------------------

enum class Pass { source, sums, target };
constexpr const char* kPassNames[] = {"combine_source", "combine_sums", "combine_target"};

struct CombineCase {
  DType dtype;
  Pass pass;
  std::int64_t columns, planes;
  std::vector<Run> runs;  // rows counted on the whole axis
  std::int64_t axis_rows;
  bool own_weights, column_weights, flipped;
  std::int64_t gap;           // elements between rows of sums, bytes between rows of the tensors
  std::int64_t misalignment;  // likewise

  std::vector<double> source, weights, column_factors;
  double scale;

  bool compact() const { return pass != Pass::target; }
  bool is_tensor(bool target) const { return pass == (target ? Pass::target : Pass::source); }
  DType side_dtype(bool target) const { return is_tensor(target) ? dtype : sum_dtype(dtype); }
  // Tensors may start at any byte; sums are at least aligned to themselves.
  std::int64_t any_bytes(bool target, std::int64_t count) const {
    return is_tensor(target) ? count : count * bytes_of(sum_dtype(dtype));
  }
  Layout source_layout() const {
    return {side_dtype(false), planes, axis_rows, columns, any_bytes(false, gap), flipped, 0};
  }
  Layout target_layout() const {
    const std::int64_t last = static_cast<std::int64_t>(runs.size());
    const std::int64_t rows = compact() ? last : runs.back().target + runs.back().repeat;
    // A row behind the last one, to be left alone.
    return {side_dtype(true), planes, rows + 1, columns, any_bytes(true, gap), flipped, 0};
  }
  std::int64_t longest() const {
    std::int64_t result = 0;
    for (const Run& run : runs) result = std::max(result, run.count);
    return result;
  }
};

// Runs as covers of windows give them: neither end ever falls.
std::vector<Run> steady_runs(std::int64_t axis_rows, std::int64_t longest, std::int64_t step) {
  std::vector<Run> runs;
  for (std::int64_t last = 0, target = 0; last < axis_rows + longest; last += step) {
    const std::int64_t first = std::min(axis_rows, std::max<std::int64_t>(0, last - longest));
    const std::int64_t repeat = last % 5 == 1 ? 3 : 1;
    runs.push_back({first, std::min(axis_rows, last) - first, target, repeat});
    target += repeat;
  }
  return runs;
}

std::vector<Run> irregular_runs(Random& random, std::int64_t axis_rows, std::int64_t longest) {
  std::vector<Run> runs;
  std::int64_t first = 0, last = 0, target = 0;
  while (first < axis_rows) {
    last = std::min(axis_rows, std::max(last, first + random.integer(0, longest)));
    first = std::max(first, last - longest);
    const std::int64_t repeat = random.chance(0.2) ? random.integer(2, 4) : 1;
    runs.push_back({first, last - first, target, repeat});
    target += repeat + random.integer(0, 1);  // some rows belong to nobody
    first += random.integer(0, std::max<std::int64_t>(1, longest / 3));
    last = std::max(last, first);
  }
  return runs;
}

void fill_case(Random& random, CombineCase& c) {
  const DType sum = sum_dtype(c.dtype);
  c.source = random_values(random, c.side_dtype(false), c.planes * c.axis_rows * c.columns);
  c.weights = random_values(random, sum, c.axis_rows);
  c.column_factors = random_values(random, sum, c.columns);
  // What becomes elements has been scaled before.
  c.scale = c.pass == Pass::target ? 1.0 : rounded_to(sum, random.real());
  if (c.pass == Pass::target) c.column_weights = false;
}

// One call for the runs from `parts[i]` to before `parts[i + 1]`. A part sees its own rows only,
// as a tile does.
Memory run_combine(const CombineCase& c, const PoolKernels& kernels,
                   const std::vector<std::size_t>& parts) {
  const Layout from = c.source_layout(), to = c.target_layout();
  const std::vector<std::int64_t> source_offsets = from.offsets(), target_offsets = to.offsets();
  const Memory source(from.bytes(), c.any_bytes(false, c.misalignment));
  fill_layout(source, from, c.source);
  Memory target(to.bytes(), c.any_bytes(true, c.misalignment));
  const std::int64_t sum_bytes = bytes_of(sum_dtype(c.dtype));
  const Memory weights = packed_sums(c.dtype, c.weights, c.misalignment * sum_bytes);
  const Memory column_factors = packed_sums(c.dtype, c.column_factors, c.misalignment * sum_bytes);
  const Memory scratch(c.longest() * block_columns(c.longest()) * sum_bytes, sum_bytes);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i] == parts[i + 1]) continue;
    std::vector<Run> runs(c.runs.begin() + static_cast<std::ptrdiff_t>(parts[i]),
                          c.runs.begin() + static_cast<std::ptrdiff_t>(parts[i + 1]));
    const std::int64_t first_row = runs[0].first;
    for (Run& run : runs) run.first -= first_row;
    CombineArgs args{};
    args.planes = c.planes;
    args.source_offsets = source_offsets.data();
    args.target_offsets = target_offsets.data();
    args.source = source.data() + from.origin() + first_row * from.pitch();
    args.target = target.data() + to.origin() +
                  (c.compact() ? static_cast<std::int64_t>(parts[i]) * to.pitch() : 0);
    args.source_pitch_bytes = from.pitch();
    args.target_pitch_bytes = to.pitch();
    args.runs = runs.data();
    args.run_count = static_cast<std::int64_t>(runs.size());
    args.scale = c.scale;
    args.weights = c.own_weights ? weights.data() + first_row * sum_bytes : nullptr;
    args.column_weights = c.column_weights ? column_factors.data() : nullptr;
    args.columns = c.columns;
    args.block = c.longest();
    args.first_row = first_row;
    args.axis_rows = c.axis_rows;
    args.scratch = scratch.data();
    const auto pass = c.pass == Pass::source ? kernels.combine_source
                      : c.pass == Pass::sums ? kernels.combine_sums
                                             : kernels.combine_target;
    pass(args);
  }
  return target;
}

ExpectedRow expected_sum(const CombineCase& c, std::int64_t plane, const Run& run) {
  ExpectedRow row;
  row.written = true;
  for (std::int64_t j = 0; j < c.columns; ++j) {
    long double sum = 0;
    double magnitude = 0;
    for (std::int64_t r = run.first; r < run.first + run.count; ++r) {
      const double weight = c.own_weights ? c.weights[static_cast<std::size_t>(r)] : c.scale;
      const double factor = c.column_weights ? c.column_factors[static_cast<std::size_t>(j)] : 1;
      const std::int64_t at = (plane * c.axis_rows + r) * c.columns + j;
      const long double term =
          static_cast<long double>(weight) * factor * c.source[static_cast<std::size_t>(at)];
      sum += term;
      magnitude += std::fabs(static_cast<double>(term));
    }
    row.values.push_back(static_cast<double>(sum));
    row.tolerances.push_back(sum_tolerance(c.side_dtype(true), run.count, magnitude));
  }
  return row;
}

std::vector<ExpectedRow> expected_combine(const CombineCase& c) {
  const Layout layout = c.target_layout();
  std::vector<ExpectedRow> expected(static_cast<std::size_t>(layout.planes * layout.rows));
  for (std::int64_t p = 0; p < c.planes; ++p) {
    for (std::size_t r = 0; r < c.runs.size(); ++r) {
      const ExpectedRow row = expected_sum(c, p, c.runs[r]);
      const std::int64_t first = c.compact() ? static_cast<std::int64_t>(r) : c.runs[r].target;
      const std::int64_t repeat = c.compact() ? 1 : c.runs[r].repeat;
      for (std::int64_t q = 0; q < repeat; ++q) {
        expected[static_cast<std::size_t>(p * layout.rows + first + q)] = row;
      }
    }
  }
  return expected;
}

void check_combine(Random& random, const CombineCase& c) {
  const std::size_t count = c.runs.size();
  const Memory generic = run_combine(c, generic_of(c.dtype), {0, count});
  const std::size_t cut =
      static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(count)));
  const auto situation = [&](const char* name) {
    std::string text = std::string(name) + " " + kPassNames[static_cast<int>(c.pass)];
    text += " columns=" + std::to_string(c.columns) + " planes=" + std::to_string(c.planes);
    text += " runs=" + std::to_string(count) + " longest=" + std::to_string(c.longest());
    text += " axis_rows=" + std::to_string(c.axis_rows) + " cut=" + std::to_string(cut);
    text += std::string(c.own_weights ? " own_weights" : "") + (c.compact() ? " compact" : "");
    text += std::string(c.column_weights ? " column_weights" : "") + (c.flipped ? " flipped" : "");
    return text + " misalignment=" + std::to_string(c.misalignment);
  };
  {
    const Situation here("%s", situation(generic_of(c.dtype).name).c_str());
    check_target(generic, c.target_layout(), expected_combine(c));
  }
  for (const PoolKernels* kernels : kernels_of(c.dtype)) {
    const Situation here("%s", situation(kernels->name).c_str());
    CHECK(equal_bytes(run_combine(c, *kernels, {0, count}), generic));
    // A sum must not depend on the tile it is taken in.
    CHECK(equal_bytes(run_combine(c, *kernels, {0, cut, count}), generic));
  }
}

CombineCase random_combine(Random& random, DType dtype, Pass pass, std::int64_t columns) {
  CombineCase c{};
  c.dtype = dtype;
  c.pass = pass;
  c.columns = columns;
  c.planes = random.integer(1, 3);
  c.own_weights = random.chance(0.5);
  c.column_weights = random.chance(0.5);
  c.flipped = random.chance(0.3);
  c.gap = random.integer(0, 5);
  c.misalignment = random.integer(0, 7);
  return c;
}

void test_combine_sums_each_number_of_rows(DType dtype, Pass pass) {
  Random random(11);
  for (std::int64_t columns = 1; columns <= 49; ++columns) {
    for (std::int64_t longest = 0; longest <= kLongestDirectRun; ++longest) {
      CombineCase c = random_combine(random, dtype, pass, columns);
      c.axis_rows = longest + 2;
      c.runs = steady_runs(c.axis_rows, longest, 1);
      fill_case(random, c);
      check_combine(random, c);
    }
  }
}

void test_combine_takes_every_option(DType dtype, Pass pass) {
  Random random(12);
  for (int options = 0; options < 8; ++options) {
    for (const std::int64_t columns : {7, 16, 33}) {
      for (const std::int64_t longest : {3, 9}) {
        CombineCase c = random_combine(random, dtype, pass, columns);
        c.own_weights = (options & 1) != 0;
        c.column_weights = (options & 2) != 0;
        c.flipped = (options & 4) != 0;
        c.axis_rows = 2 * longest + 1;
        c.runs = irregular_runs(random, c.axis_rows, longest);
        fill_case(random, c);
        check_combine(random, c);
      }
    }
  }
}

void test_combine_sums_long_runs_by_blocks(DType dtype, Pass pass) {
  Random random(13);
  for (const std::int64_t longest : {7, 8, 13, 16, 40}) {
    for (const std::int64_t axis_rows : {longest, longest + 1, 2 * longest, 3 * longest + 5}) {
      for (const std::int64_t columns : {1, 8, 15, 17, 32, 49, 64, 81}) {
        CombineCase c = random_combine(random, dtype, pass, columns);
        c.axis_rows = axis_rows;
        const std::int64_t step = random.integer(0, 4);
        c.runs = step == 0 ? irregular_runs(random, axis_rows, longest)
                           : steady_runs(axis_rows, longest, step);
        fill_case(random, c);
        check_combine(random, c);
      }
    }
  }
}

// So long that fewer columns are summed at a time.
void test_combine_sums_very_long_runs(DType dtype, Pass pass) {
  Random random(14);
  const std::int64_t longest = 1500;
  CHECK(block_columns(longest) < block_columns(longest / 2));
  for (const std::int64_t columns : {5, 16, 37}) {
    CombineCase c = random_combine(random, dtype, pass, columns);
    c.axis_rows = 2 * longest + 7;
    c.runs = steady_runs(c.axis_rows, longest, 251);
    fill_case(random, c);
    check_combine(random, c);
  }
}

// ---- spread, slide, fill -----------------------------------------------------------------------

enum class Move { spread, slide, fill };
constexpr const char* kMoveNames[] = {"spread", "slide", "fill"};
constexpr std::int64_t kNowhere = -1;

// One term of each column's sum: where it starts on the source row, and how many elements it adds.
struct Slot {
  int level;
  std::vector<std::int64_t> position;  // kNowhere: this column has no such term
};

struct MoveCase {
  DType dtype;
  Move move;
  std::int64_t columns, source_columns, planes, rows;
  bool flipped;
  std::int64_t gap_bytes, misalignment, source_gap, source_misalignment;
  std::int64_t kernel = 0;  // slide
  std::vector<Slot> slots;  // spread
  Reach reach = Reach::one_vector;
  int base = 3, levels = 1;
  std::int64_t level_rows = 1;
  std::vector<Run> runs;
  std::vector<double> source;

  // Levels are made of rows that follow each other; only passes that never use any take gaps.
  bool may_use_levels() const {
    return levels > 1 || kernel > kLongestDirectSlide || slots.size() > 2 ||
           reach == Reach::anywhere;
  }
  Layout source_layout() const {
    const std::int64_t gap = may_use_levels() ? 0 : source_gap * bytes_of(sum_dtype(dtype));
    return {sum_dtype(dtype), 1, planes * rows, source_columns, gap, false, kSlackBytes};
  }
  Layout target_layout() const {
    return {dtype,   planes, runs.back().target + runs.back().repeat + 1, columns, gap_bytes,
            flipped, 0};
  }
};

std::int64_t power(std::int64_t base, int exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

int digits_of(std::int64_t number, int base) {
  return number < base ? 1 : 1 + digits_of(number / base, base);
}

struct OwnedTable {
  std::vector<SpreadTerm> terms;
  std::vector<std::int32_t> patterns;
  SpreadTable view;
};

// One term of one vector of columns; widens the table's reach to what it needs.
void add_term(const Slot& slot, std::size_t begin, int lanes, OwnedTable& table) {
  const std::size_t end = std::min(slot.position.size(), begin + static_cast<std::size_t>(lanes));
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (std::size_t w = begin; w < end; ++w) {
    if (slot.position[w] == kNowhere) continue;
    least = std::min(least, slot.position[w]);
    most = std::max(most, slot.position[w]);
  }
  if (least > most) least = most;
  SpreadTerm term{};
  term.offset = static_cast<std::int32_t>(least);
  term.pattern = static_cast<std::uint32_t>(table.terms.size());
  term.level = static_cast<std::uint16_t>(slot.level);
  for (std::size_t w = begin; w < begin + static_cast<std::size_t>(lanes); ++w) {
    const bool has_term = w < end && slot.position[w] != kNowhere;
    const std::int64_t distance = has_term ? slot.position[w] - least : 0;
    table.patterns.push_back(static_cast<std::int32_t>(distance));
    if (has_term) term.mask = static_cast<std::uint16_t>(term.mask | 1u << (w - begin));
  }
  table.terms.push_back(term);
  const Reach needed = most - least < lanes       ? Reach::one_vector
                       : most - least < 2 * lanes ? Reach::two_vectors
                                                  : Reach::anywhere;
  table.view.reach = std::max(table.view.reach, needed);
}

OwnedTable make_table(const MoveCase& c, int lanes) {
  OwnedTable table{};
  table.view.reach = c.reach;
  for (std::int64_t begin = 0; begin < c.columns; begin += lanes) {
    for (const Slot& slot : c.slots) add_term(slot, static_cast<std::size_t>(begin), lanes, table);
  }
  table.view.terms = table.terms.data();
  table.view.terms_per_vector = static_cast<std::int64_t>(c.slots.size());
  table.view.patterns = table.patterns.data();
  return table;
}

Memory run_move(const MoveCase& c, const PoolKernels& kernels) {
  const Layout from = c.source_layout(), to = c.target_layout();
  const std::int64_t sum_bytes = bytes_of(sum_dtype(c.dtype));
  const Memory source(from.bytes(), c.source_misalignment * sum_bytes);
  fill_layout(source, from, c.source);
  Memory target(to.bytes(), c.misalignment);
  const std::vector<std::int64_t> target_offsets = to.offsets();
  const OwnedTable table = make_table(c, kernels.lanes);
  SpreadArgs args{};
  args.level_pitch = (c.level_rows * c.source_columns + 15) / 16 * 16;
  const Memory scratch((c.levels - 1) * args.level_pitch * sum_bytes + kSlackBytes, sum_bytes);
  std::memset(scratch.data(), 0xff, scratch.size());
  args.planes = c.planes;
  args.target_offsets = target_offsets.data();
  args.source = source.data();
  args.target = target.data() + to.origin();
  args.source_pitch_bytes = from.pitch();
  args.target_pitch_bytes = to.pitch();
  args.runs = c.runs.data();
  args.run_count = c.rows;
  args.columns = c.columns;
  args.source_columns = c.source_columns;
  args.table = &table.view;
  args.kernel = c.kernel;
  args.base = c.base;
  args.levels = c.levels;
  args.level_rows = c.level_rows;
  args.scratch = scratch.data();
  const auto pass = c.move == Move::spread  ? kernels.spread
                    : c.move == Move::slide ? kernels.slide
                                            : kernels.fill;
  pass(args);
  return target;
}

// The source elements that target column `w` adds, one entry per piece of neighbours.
std::vector<std::pair<std::int64_t, std::int64_t>> pieces_of(const MoveCase& c, std::int64_t w) {
  if (c.move == Move::fill) return {{0, 1}};
  if (c.move == Move::slide) return {{w, c.kernel}};
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;
  for (const Slot& slot : c.slots) {
    const std::int64_t position = slot.position[static_cast<std::size_t>(w)];
    if (position != kNowhere) pieces.push_back({position, power(c.base, slot.level)});
  }
  return pieces;
}

ExpectedRow expected_move(const MoveCase& c, std::int64_t source_row) {
  ExpectedRow row;
  row.written = true;
  for (std::int64_t w = 0; w < c.columns; ++w) {
    long double sum = 0;
    double magnitude = 0;
    std::int64_t terms = 0;
    for (const auto& [position, count] : pieces_of(c, w)) {
      for (std::int64_t i = position; i < position + count; ++i, ++terms) {
        const double value = c.source[static_cast<std::size_t>(source_row * c.source_columns + i)];
        sum += value;
        magnitude += std::fabs(value);
      }
    }
    row.values.push_back(static_cast<double>(sum));
    row.tolerances.push_back(sum_tolerance(c.dtype, terms, magnitude));
  }
  return row;
}

void check_move(const MoveCase& c) {
  const Layout layout = c.target_layout();
  std::vector<ExpectedRow> expected(static_cast<std::size_t>(layout.planes * layout.rows));
  for (std::int64_t p = 0; p < c.planes; ++p) {
    for (std::int64_t r = 0; r < c.rows; ++r) {
      const Run& run = c.runs[static_cast<std::size_t>(r)];
      const ExpectedRow row = expected_move(c, p * c.rows + r);
      for (std::int64_t q = 0; q < run.repeat; ++q) {
        expected[static_cast<std::size_t>(p * layout.rows + run.target + q)] = row;
      }
    }
  }
  const auto text = [&](const char* name) {
    return std::string(name) + " " + kMoveNames[static_cast<int>(c.move)] +
           " columns=" + std::to_string(c.columns) + " rows=" + std::to_string(c.rows) +
           " planes=" + std::to_string(c.planes) + " kernel=" + std::to_string(c.kernel) +
           " slots=" + std::to_string(c.slots.size()) + " base=" + std::to_string(c.base) +
           " levels=" + std::to_string(c.levels) + " level_rows=" + std::to_string(c.level_rows) +
           " reach=" + std::to_string(static_cast<int>(c.reach)) +
           " misalignment=" + std::to_string(c.misalignment);
  };
  const Memory generic = run_move(c, generic_of(c.dtype));
  {
    const Situation here("%s", text(generic_of(c.dtype).name).c_str());
    check_target(generic, layout, expected);
  }
  for (const PoolKernels* kernels : kernels_of(c.dtype)) {
    const Situation here("%s", text(kernels->name).c_str());
    CHECK(equal_bytes(run_move(c, *kernels), generic));
  }
}

MoveCase random_move(Random& random, DType dtype, Move move, std::int64_t columns) {
  MoveCase c{};
  c.dtype = dtype;
  c.move = move;
  c.columns = columns;
  c.planes = random.integer(1, 2);
  c.rows = random.integer(1, 3);
  c.flipped = random.chance(0.3);
  c.gap_bytes = random.integer(0, 9);
  c.misalignment = random.integer(0, 7);
  c.source_gap = random.integer(0, 3);
  c.source_misalignment = random.integer(0, 3);
  for (std::int64_t r = 0, target = 0; r < c.rows; ++r) {
    const std::int64_t repeat = random.chance(0.3) ? random.integer(2, 3) : 1;
    c.runs.push_back({0, 0, target, repeat});
    target += repeat + random.integer(0, 1);
  }
  return c;
}

void fill_case(Random& random, MoveCase& c) {
  c.source = random_values(random, sum_dtype(c.dtype), c.planes * c.rows * c.source_columns);
}

// Positions that grow by `slope` per column, from here to there within the row.
Slot sloped_slot(Random& random, const MoveCase& c, int level, double slope) {
  Slot slot{level, {}};
  const std::int64_t last = c.source_columns - power(c.base, level);
  for (std::int64_t w = 0; w < c.columns; ++w) {
    const auto position = static_cast<std::int64_t>(static_cast<double>(w) * slope);
    const bool missing = random.chance(0.15);
    slot.position.push_back(missing ? kNowhere : std::min(last, position + random.integer(0, 1)));
  }
  return slot;
}

void test_spread_moves_and_adds_terms(DType dtype) {
  Random random(21);
  struct Width {
    double slope;
    Reach reach;
  };
  // Slopes that need each reach for 8 and for 16 lanes, and tables that claim more than they need.
  const Width widths[] = {{0.4, Reach::one_vector}, {0.4, Reach::two_vectors},
                          {0.7, Reach::anywhere},   {1.5, Reach::two_vectors},
                          {1.5, Reach::anywhere},   {3.1, Reach::anywhere}};
  for (std::int64_t columns = 1; columns <= 49; ++columns) {
    for (const Width& width : widths) {
      for (int slots = 1; slots <= 4; ++slots) {
        MoveCase c = random_move(random, dtype, Move::spread, columns);
        c.reach = width.reach;
        c.level_rows = random.integer(1, 7);
        c.source_columns =
            static_cast<std::int64_t>(static_cast<double>(columns) * width.slope) + 2;
        fill_case(random, c);
        for (int s = 0; s < slots; ++s) c.slots.push_back(sloped_slot(random, c, 0, width.slope));
        check_move(c);
      }
    }
  }
}

void test_spread_adds_terms_of_levels(DType dtype) {
  Random random(22);
  for (const int base : {3, 4, 5, 6}) {
    for (const int levels : {2, 3}) {
      for (const std::int64_t columns : {1, 7, 8, 9, 15, 16, 17, 31, 33, 49}) {
        for (const double slope : {0.5, 1.4, 3.0}) {
          MoveCase c = random_move(random, dtype, Move::spread, columns);
          c.base = base;
          c.levels = levels;
          c.level_rows = random.integer(1, 7);
          const double reached = static_cast<double>(columns) * slope;
          c.source_columns = static_cast<std::int64_t>(reached) + power(base, levels - 1);
          fill_case(random, c);
          for (int level = levels - 1; level >= 0; --level) {
            c.slots.push_back(sloped_slot(random, c, level, slope));
            c.slots.push_back(sloped_slot(random, c, level, slope));
          }
          check_move(c);
        }
      }
    }
  }
}

void check_slide(Random& random, DType dtype, std::int64_t columns, std::int64_t kernel, int base) {
  MoveCase c = random_move(random, dtype, Move::slide, columns);
  c.kernel = kernel;
  c.base = base;
  c.levels = kernel > kLongestDirectSlide ? digits_of(kernel, base) : 1;
  c.level_rows = random.integer(1, 7);
  c.source_columns = columns + kernel - 1 + random.integer(0, 3);
  fill_case(random, c);
  check_move(c);
}

void test_slide_sums_neighbours(DType dtype) {
  Random random(23);
  std::vector<std::int64_t> kernels = {31, 64, 100};
  for (std::int64_t kernel = 1; kernel <= 27; ++kernel) kernels.push_back(kernel);
  for (const std::int64_t kernel : kernels) {
    for (std::int64_t columns = 1; columns <= 49; ++columns) {
      check_slide(random, dtype, columns, kernel, static_cast<int>(random.integer(3, 6)));
    }
    for (int base = 3; base <= 6; ++base) {
      for (const std::int64_t columns : {5, 16, 131, 700}) {
        check_slide(random, dtype, columns, kernel, base);
      }
    }
  }
}

// More parts than any unrolled sum has.
void test_slide_with_many_parts(DType dtype) {
  Random random(24);
  for (const int levels : {1, 2, 3, 4}) {
    for (const std::int64_t columns : {1, 17, 40}) {
      MoveCase c = random_move(random, dtype, Move::slide, columns);
      c.kernel = power(3, 3) + 2 * power(3, 2) + 2 * 3 + 2;
      c.levels = levels;
      c.level_rows = 2;
      c.source_columns = columns + c.kernel - 1;
      fill_case(random, c);
      check_move(c);
    }
  }
}

void test_fill_repeats_the_first_element(DType dtype) {
  Random random(25);
  for (std::int64_t columns = 1; columns <= 49; ++columns) {
    MoveCase c = random_move(random, dtype, Move::fill, columns);
    c.source_columns = random.integer(1, 3);
    fill_case(random, c);
    check_move(c);
  }
}

// ---- conversions -------------------------------------------------------------------------------

// Elements through one combine pass with weight 1, in rows of `columns` so that vectors cut short
// are converted too.
Memory convert(const PoolKernels& kernels, bool to_sums, const void* source, std::int64_t count,
               std::int64_t columns) {
  const std::int64_t sum_bytes = bytes_of(sum_dtype(kernels.dtype));
  const std::int64_t element_bytes = bytes_of(kernels.dtype);
  const std::int64_t from_bytes = to_sums ? element_bytes : sum_bytes;
  const std::int64_t to_bytes = to_sums ? sum_bytes : element_bytes;
  Memory target(count * to_bytes, 0);
  std::vector<Run> runs;
  for (std::int64_t r = 0; r * columns < count; ++r) runs.push_back({r, 1, r, 1});
  const std::int64_t no_offset = 0;
  CombineArgs args{};
  args.planes = 1;
  args.source_offsets = args.target_offsets = &no_offset;
  args.source = static_cast<const char*>(source);
  args.target = target.data();
  args.source_pitch_bytes = columns * from_bytes;
  args.target_pitch_bytes = columns * to_bytes;
  args.runs = runs.data();
  args.run_count = static_cast<std::int64_t>(runs.size());
  args.scale = 1;
  args.columns = columns;
  args.block = 1;
  args.axis_rows = args.run_count;
  (to_sums ? kernels.combine_source : kernels.combine_target)(args);
  return target;
}

// Sums to elements without any arithmetic, which would make NaNs quiet before they are converted.
Memory store_as_elements(const PoolKernels& kernels, const std::vector<float>& sums) {
  const auto count = static_cast<std::int64_t>(sums.size());
  const std::int64_t source_bytes = count * static_cast<std::int64_t>(sizeof(float));
  const Memory source(source_bytes + kSlackBytes, 0);
  std::memcpy(source.data(), sums.data(), static_cast<std::size_t>(source_bytes));
  Memory target(count * bytes_of(kernels.dtype), 0);
  const Run whole{0, 1, 0, 1};
  const std::int64_t no_offset = 0;
  SpreadArgs args{};
  args.planes = args.run_count = args.kernel = 1;
  args.target_offsets = &no_offset;
  args.source = source.data();
  args.target = target.data();
  args.runs = &whole;
  args.columns = args.source_columns = count;
  args.levels = 1;
  kernels.slide(args);
  return target;
}

constexpr std::int64_t kPatterns = 65536;
constexpr std::int64_t kConversionColumns[] = {kPatterns, 1024, 8, 4, 2, 1};

void test_every_half_pattern_survives(DType dtype) {
  std::vector<std::uint16_t> patterns;
  for (std::int64_t i = 0; i < kPatterns; ++i) patterns.push_back(static_cast<std::uint16_t>(i));
  const Format format = format_of(dtype);
  const std::uint16_t quiet = static_cast<std::uint16_t>(1u << (format.precision - 2));
  const Memory generic = convert(generic_of(dtype), true, patterns.data(), kPatterns, kPatterns);
  for (const PoolKernels* kernels : kernels_of(dtype)) {
    for (const std::int64_t columns : kConversionColumns) {
      const Situation here("%s columns=%d", kernels->name, static_cast<int>(columns));
      const Memory sums = convert(*kernels, true, patterns.data(), kPatterns, columns);
      CHECK(equal_bytes(sums, generic));
      const Memory back = convert(*kernels, false, sums.data(), kPatterns, columns);
      for (std::int64_t i = 0; i < kPatterns; ++i) {
        const std::uint16_t pattern = patterns[static_cast<std::size_t>(i)];
        const double value = half_value(pattern, format);
        const float sum = read_as<float>(sums.data() + i * 4);
        const auto result = read_as<std::uint16_t>(back.data() + i * 2);
        const bool nan = std::isnan(value);
        if (nan ? !std::isnan(sum) : static_cast<double>(sum) != value) {
          CHECK_EQUAL(static_cast<double>(sum), value);
        }
        const int expected = nan ? pattern | quiet : pattern;
        if (result != expected) CHECK_EQUAL(static_cast<int>(result), expected);
      }
    }
  }
}

float float_of_bits(std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  return read_as<float>(&low);
}

// Numbers where a rounding could go wrong: halfway between neighbours and next to it, around the
// ends of the normal and the subnormal range, NaNs, and any bits at all.
std::vector<float> awkward_floats(DType dtype) {
  std::vector<float> values;
  const Format format = format_of(dtype);
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < kPatterns; ++i) {
    const double value = half_value(static_cast<std::uint16_t>(i), format);
    if (!std::isfinite(value)) continue;
    const auto halfway = static_cast<float>(value + unit_around(value, format) / 2);
    for (const float near : {std::nextafterf(halfway, -infinity), halfway,
                             std::nextafterf(halfway, infinity), static_cast<float>(value)}) {
      values.push_back(near);
    }
  }
  for (const std::uint32_t nan : {0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu, 0xff801fffu,
                                  0xffffe000u, 0x7f802000u, 0x7f810000u}) {
    values.push_back(float_of_bits(nan));
  }
  for (const float end : {infinity, -infinity, 65504.0f, 65519.996f, 65520.0f, -65520.0f, 1e30f}) {
    values.push_back(end);
  }
  Random random(31);
  for (int i = 0; i < 300000; ++i) values.push_back(float_of_bits(random.bits()));
  while (values.size() % 1024 != 0) values.push_back(0.0f);
  if (dtype == DType::bfloat16) {
    // The only NaNs that sums of bfloat16 can be: quiet, their low half zero.
    for (float& value : values) {
      if (std::isnan(value))
        value = float_of_bits(
            (read_as<std::uint32_t>(reinterpret_cast<const char*>(&value)) | 0x400000u) & ~0xffffu);
    }
  }
  return values;
}

void check_rounded(DType dtype, float value, std::uint16_t got) {
  const Format format = format_of(dtype);
  if (std::isnan(value)) {
    const std::uint16_t quiet = static_cast<std::uint16_t>(1u << (format.precision - 2));
    const bool is_quiet_nan = std::isnan(half_value(got, format)) && (got & quiet) != 0;
    if (!is_quiet_nan) CHECK(is_quiet_nan);
    return;
  }
  const int expected = half_bits(rounded_to(dtype, static_cast<double>(value)), format);
  if (got == expected) return;
  const Situation here("%s of %.9g", name_of(dtype), static_cast<double>(value));
  CHECK_EQUAL(static_cast<int>(got), expected);
}

void test_float_to_half_rounds_to_nearest_even(DType dtype) {
  const std::vector<float> values = awkward_floats(dtype);
  const auto count = static_cast<std::int64_t>(values.size());
  const Memory generic = convert(generic_of(dtype), false, values.data(), count, count);
  const Memory generic_stored = store_as_elements(generic_of(dtype), values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    check_rounded(dtype, values[i], read_as<std::uint16_t>(generic.data() + 2 * i));
    check_rounded(dtype, values[i], read_as<std::uint16_t>(generic_stored.data() + 2 * i));
  }
  for (const PoolKernels* kernels : kernels_of(dtype)) {
    for (const std::int64_t columns : {count, std::int64_t{1024}, std::int64_t{4}}) {
      const Situation here("%s columns=%d", kernels->name, static_cast<int>(columns));
      CHECK(equal_bytes(convert(*kernels, false, values.data(), count, columns), generic));
    }
    const Situation here("%s", kernels->name);
    CHECK(equal_bytes(store_as_elements(*kernels, values), generic_stored));
  }
}

void test_round_to_float16_keeps_float32(const PoolKernels& kernels) {
  const std::vector<float> values = awkward_floats(DType::float16);
  std::vector<float> rounded = values;
  kernels.round_to_float16(rounded.data(), static_cast<std::int64_t>(rounded.size()));
  const Situation here("%s round_to_float16", kernels.name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = rounded_to(DType::float16, static_cast<double>(values[i]));
    const auto got = static_cast<double>(rounded[i]);
    const bool same = std::isnan(expected)
                          ? std::isnan(got)
                          : got == expected && std::signbit(got) == std::signbit(expected);
    if (!same) CHECK_EQUAL(got, expected);
  }
  std::vector<float> generic = values;
  generic_of(kernels.dtype)
      .round_to_float16(generic.data(), static_cast<std::int64_t>(generic.size()));
  CHECK_EQUAL(std::memcmp(rounded.data(), generic.data(), values.size() * sizeof(float)), 0);
}

void test_round_to_float16_leaves_neighbours(const PoolKernels& kernels) {
  for (std::int64_t count = 0; count <= 49; ++count) {
    for (std::int64_t skipped = 0; skipped < 4; ++skipped) {
      std::vector<float> values(static_cast<std::size_t>(skipped + count) + 1, 1.0001f);
      kernels.round_to_float16(values.data() + skipped, count);
      const Situation here("%s count=%d", kernels.name, static_cast<int>(count));
      const auto inside = std::count(values.begin(), values.end(), 1.0f);
      CHECK_EQUAL(inside, count);
      CHECK_EQUAL(values.back(), 1.0001f);
    }
  }
}

// ---- stream, every second place, selection -----------------------------------------------------

void test_stream_copies_exactly(const PoolKernels& kernels) {
  Random random(41);
  for (const std::int64_t bytes : {0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 200, 1000, 4099}) {
    for (std::int64_t misalignment = 0; misalignment < 64; misalignment += 7) {
      const Memory source(bytes, random.integer(0, 63));
      for (std::int64_t i = 0; i < bytes; ++i) source.data()[i] = static_cast<char>(random.bits());
      const Memory target(bytes + 128, misalignment);
      kernels.stream(target.data() + 64, source.data(), static_cast<std::size_t>(bytes));
      kernels.stream_fence();
      const Memory expected(bytes + 128, misalignment);
      std::memcpy(expected.data() + 64, source.data(), static_cast<std::size_t>(bytes));
      const Situation here("%s stream bytes=%d", kernels.name, static_cast<int>(bytes));
      CHECK(equal_bytes(target, expected));
    }
  }
}

void test_every_second_place_is_written_exactly(const PoolKernels& kernels) {
  Random random(42);
  const auto each = static_cast<std::int64_t>(size_of(kernels.dtype));
  for (const std::int64_t count : {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 112, 1000}) {
    for (std::int64_t misalignment = 0; misalignment < 64; misalignment += 7) {
      const Memory source(count * each, random.integer(0, 63));
      for (std::int64_t i = 0; i < count * each; ++i) {
        source.data()[i] = static_cast<char>(random.bits());
      }
      // Nothing is there for the last gap.
      const std::int64_t bytes = count > 0 ? (2 * count - 1) * each : 0;
      const Memory target(bytes, misalignment), expected(bytes, misalignment);
      kernels.put_every_second(target.data(), source.data(), count);
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(expected.data() + 2 * i * each, source.data() + i * each,
                    static_cast<std::size_t>(each));
      }
      const Situation here("%s every second, count=%d", kernels.name, static_cast<int>(count));
      CHECK(equal_bytes(target, expected));
    }
  }
}

void test_table_row_says_what_it_is(const TableRow& row) {
  CHECK_EQUAL(std::string(row.kernels->name), std::string("pool_") + row.dtype + "_" + row.isa);
  CHECK_EQUAL(std::string(name_of(row.kernels->isa)), row.isa);
  CHECK_EQUAL(std::string(name_of(row.kernels->dtype)), row.dtype);
  CHECK(row.kernels->lanes > 0 && row.kernels->lanes <= 16);
  CHECK_EQUAL(&pool_kernels(row.kernels->isa, row.kernels->dtype), row.kernels);
}

void test_dtype(DType dtype) {
  for (const Pass pass : {Pass::source, Pass::sums, Pass::target}) {
    test_combine_sums_each_number_of_rows(dtype, pass);
    test_combine_takes_every_option(dtype, pass);
    test_combine_sums_long_runs_by_blocks(dtype, pass);
    test_combine_sums_very_long_runs(dtype, pass);
  }
  test_spread_moves_and_adds_terms(dtype);
  test_spread_adds_terms_of_levels(dtype);
  test_slide_sums_neighbours(dtype);
  test_slide_with_many_parts(dtype);
  test_fill_repeats_the_first_element(dtype);
  if (dtype == DType::float16 || dtype == DType::bfloat16) {
    test_every_half_pattern_survives(dtype);
    test_float_to_half_rounds_to_nearest_even(dtype);
  }
}

void test_row(const TableRow& row) {
  test_table_row_says_what_it_is(row);
  if (!runs_here(*row.kernels)) {
    std::printf("skipped: %s, which this CPU does not run\n", row.kernels->name);
    return;
  }
  test_stream_copies_exactly(*row.kernels);
  test_every_second_place_is_written_exactly(*row.kernels);
  if (row.kernels->dtype == DType::float64) return;  // never asked to round to float16
  test_round_to_float16_keeps_float32(*row.kernels);
  test_round_to_float16_leaves_neighbours(*row.kernels);
}

}  // namespace
}  // namespace backops

int main() {
  for (const backops::TableRow& row : backops::kTable) backops::test_row(row);
  for (const backops::DType dtype : backops::kDTypes) backops::test_dtype(dtype);
  return backops::test::finish();
}

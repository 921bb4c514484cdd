// Rows of sums on their way to rows of elements: spread, slide, fill.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/pool/tests/kernels.h"

namespace backops {
namespace test {
namespace {

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
  bool splits_terms = false;  // spread
  bool row_factors, column_factors;
  std::vector<Run> runs;
  std::vector<double> source, of_rows, of_columns;

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
void add_term(const Slot& slot, std::size_t begin, int width, OwnedTable& table) {
  const std::size_t end = std::min(slot.position.size(), begin + static_cast<std::size_t>(width));
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
  for (std::size_t w = begin; w < begin + static_cast<std::size_t>(width); ++w) {
    const bool has_term = w < end && slot.position[w] != kNowhere;
    const std::int64_t distance = has_term ? slot.position[w] - least : 0;
    table.patterns.push_back(static_cast<std::int32_t>(distance));
    if (has_term) term.mask = static_cast<std::uint16_t>(term.mask | 1u << (w - begin));
  }
  table.terms.push_back(term);
  const Reach needed = most - least < width       ? Reach::one_vector
                       : most - least < 2 * width ? Reach::two_vectors
                                                  : Reach::anywhere;
  table.view.reach = std::max(table.view.reach, needed);
}

OwnedTable make_table(const MoveCase& c, int width) {
  OwnedTable table{};
  table.view.reach = c.reach;
  for (std::int64_t begin = 0; begin < c.columns; begin += width) {
    const std::int64_t at = vector_begin(begin / width, c.columns, width);
    for (const Slot& slot : c.slots) add_term(slot, static_cast<std::size_t>(at), width, table);
  }
  table.view.terms = table.terms.data();
  table.view.terms_per_vector = static_cast<std::int64_t>(c.slots.size());
  table.view.patterns = table.patterns.data();
  table.view.splits_terms = c.splits_terms;
  return table;
}

Memory run_move(const MoveCase& c, const PoolKernels& kernels) {
  const Layout from = c.source_layout(), to = c.target_layout();
  const std::int64_t sum_bytes = bytes_of(sum_dtype(c.dtype));
  const Memory source(from.bytes(), c.source_misalignment * sum_bytes);
  fill_layout(source, from, c.source);
  Memory target(to.bytes(), c.misalignment);
  const std::vector<std::int64_t> target_offsets = to.offsets();
  const OwnedTable table = make_table(c, kernels.width);
  const Memory of_rows = packed_sums(c.dtype, c.of_rows, c.source_misalignment * sum_bytes);
  const Memory of_columns = packed_sums(c.dtype, c.of_columns, c.source_misalignment * sum_bytes);
  SpreadArgs args{};
  args.row_factors = c.row_factors ? of_rows.data() : nullptr;
  args.column_factors = c.column_factors ? of_columns.data() : nullptr;
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
  args.announce_bytes = c.planes > 1 ? 2048 : 0;  // changes nothing
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

ExpectedRow expected_move(const MoveCase& c, std::int64_t source_row, std::int64_t target_row) {
  ExpectedRow row;
  row.written = true;
  for (std::int64_t w = 0; w < c.columns; ++w) {
    double factor = c.row_factors ? c.of_rows[static_cast<std::size_t>(target_row)] : 1;
    if (c.column_factors) factor *= c.of_columns[static_cast<std::size_t>(w)];
    long double sum = 0;
    double magnitude = 0;
    std::int64_t terms = 0;
    for (const auto& [position, count] : pieces_of(c, w)) {
      for (std::int64_t i = position; i < position + count; ++i, ++terms) {
        const double value =
            factor * c.source[static_cast<std::size_t>(source_row * c.source_columns + i)];
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
      const ExpectedRow row = expected_move(c, p * c.rows + r, run.target);
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
           (c.splits_terms ? " splits_terms" : "") + (c.row_factors ? " row_factors" : "") +
           (c.column_factors ? " column_factors" : "") +
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
  c.splits_terms = random.chance(0.3);
  c.row_factors = random.chance(0.3);
  c.column_factors = move != Move::fill && random.chance(0.3);
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
  c.of_rows = random_values(random, sum_dtype(c.dtype), c.target_layout().rows);
  c.of_columns = random_values(random, sum_dtype(c.dtype), c.columns);
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
        for (double& value : c.source) {
          if (random.chance(0.1)) value = -0.0;  // which 0 plus it is not
        }
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

}  // namespace

void test_moves(DType dtype) {
  test_spread_moves_and_adds_terms(dtype);
  test_spread_adds_terms_of_levels(dtype);
  test_slide_sums_neighbours(dtype);
  test_slide_with_many_parts(dtype);
  test_fill_repeats_the_first_element(dtype);
}

}  // namespace test
}  // namespace backops

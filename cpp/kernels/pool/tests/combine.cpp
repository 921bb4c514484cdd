// Sums of runs of rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/pool/tests/kernels.h"

namespace backops {
namespace test {
namespace {

enum class Pass { source, sums, target };
constexpr const char* kPassNames[] = {"combine_source", "combine_sums", "combine_target"};

struct CombineCase {
  DType dtype;
  Pass pass;
  std::int64_t columns, planes;
  std::vector<Run> runs;  // rows counted on the whole axis
  std::int64_t axis_rows;
  bool own_weights, column_weights, flipped;
  bool one_by_one;                  // long runs without blocks
  bool run_factors, plane_factors;  // of elements
  std::int64_t gap;           // elements between rows of sums, bytes between rows of the tensors
  std::int64_t misalignment;  // likewise

  std::vector<double> source, weights, column_factors, row_factors, own_factors;
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
  if (c.pass != Pass::target || c.own_weights) c.run_factors = c.plane_factors = false;
  c.row_factors = random_values(random, sum, c.target_layout().rows);
  c.own_factors = random_values(random, sum, c.planes);
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
  const Memory row_factors = packed_sums(c.dtype, c.row_factors, c.misalignment * sum_bytes);
  const Memory own_factors = packed_sums(c.dtype, c.own_factors, c.misalignment * sum_bytes);
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
    args.block = c.one_by_one ? 0 : c.longest();
    args.run_factors = c.run_factors ? row_factors.data() : nullptr;
    args.plane_factors = c.plane_factors ? own_factors.data() : nullptr;
    args.first_row = first_row;
    args.axis_rows = c.axis_rows;
    args.scratch = scratch.data();
    args.announce_bytes = args.planes > 1 ? 2048 : 0;  // changes nothing
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
      double factor = c.column_weights ? c.column_factors[static_cast<std::size_t>(j)] : 1;
      if (c.run_factors) factor *= c.row_factors[static_cast<std::size_t>(run.target)];
      if (c.plane_factors) factor *= c.own_factors[static_cast<std::size_t>(plane)];
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
    text += std::string(c.one_by_one ? " one_by_one" : "");
    text += std::string(c.run_factors ? " run_factors" : "");
    text += std::string(c.plane_factors ? " plane_factors" : "");
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
  c.one_by_one = random.chance(0.3);
  c.run_factors = random.chance(0.3);
  c.plane_factors = random.chance(0.3);
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

}  // namespace

void test_combine(DType dtype) {
  for (const Pass pass : {Pass::source, Pass::sums, Pass::target}) {
    test_combine_sums_each_number_of_rows(dtype, pass);
    test_combine_takes_every_option(dtype, pass);
    test_combine_sums_long_runs_by_blocks(dtype, pass);
    test_combine_sums_very_long_runs(dtype, pass);
  }
}

}  // namespace test
}  // namespace backops

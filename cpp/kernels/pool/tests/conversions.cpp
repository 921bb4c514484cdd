// Elements on their way in and out of the passes: every pattern of 16 bits, and numbers where a
// rounding could go wrong.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/pool/tests/kernels.h"
#include "tests/awkward_floats.h"

namespace backops {
namespace test {
namespace {

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

}  // namespace

void test_conversions(DType dtype) {
  if (dtype != DType::float16 && dtype != DType::bfloat16) return;
  test_every_half_pattern_survives(dtype);
  test_float_to_half_rounds_to_nearest_even(dtype);
}

}  // namespace test
}  // namespace backops

// Every row of kernels.inc: what is written is exact, and the same as the generic row writes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/isa.h"
#include "kernels/convert/convert.h"
#include "tests/awkward_floats.h"
#include "tests/check.h"
#include "tests/elements.h"
#include "tests/memory.h"

namespace backops {

#define BACKOPS_CONVERT_KERNELS(isa) extern const ConvertKernels convert_##isa;
#include "kernels/convert/kernels.inc"
#undef BACKOPS_CONVERT_KERNELS

namespace {

using namespace test;

struct TableRow {
  const ConvertKernels* kernels;
  const char* isa;
};

constexpr TableRow kTable[] = {
#define BACKOPS_CONVERT_KERNELS(isa) {&convert_##isa, #isa},
#include "kernels/convert/kernels.inc"
#undef BACKOPS_CONVERT_KERNELS
};

void test_round_to_float16_keeps_float32(const ConvertKernels& kernels) {
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
  convert_generic.round_to_float16(generic.data(), static_cast<std::int64_t>(generic.size()));
  CHECK_EQUAL(std::memcmp(rounded.data(), generic.data(), values.size() * sizeof(float)), 0);
}

void test_round_to_float16_leaves_neighbours(const ConvertKernels& kernels) {
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

void test_stream_copies_exactly(const ConvertKernels& kernels) {
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

void test_every_second_place_is_written_exactly(const ConvertKernels& kernels, std::int64_t each) {
  Random random(42);
  for (const std::int64_t count : {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 112, 1000}) {
    for (std::int64_t misalignment = 0; misalignment < 64; misalignment += 7) {
      const Memory source(count * each, random.integer(0, 63));
      for (std::int64_t i = 0; i < count * each; ++i) {
        source.data()[i] = static_cast<char>(random.bits());
      }
      // Nothing is there for the last gap.
      const std::int64_t bytes = count > 0 ? (2 * count - 1) * each : 0;
      const Memory target(bytes, misalignment), expected(bytes, misalignment);
      kernels.put_every_second(target.data(), source.data(), count, static_cast<std::size_t>(each));
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(expected.data() + 2 * i * each, source.data() + i * each,
                    static_cast<std::size_t>(each));
      }
      const Situation here("%s every second, %d of %d bytes", kernels.name, static_cast<int>(count),
                           static_cast<int>(each));
      CHECK(equal_bytes(target, expected));
    }
  }
}

void test_row(const TableRow& row) {
  CHECK_EQUAL(std::string(row.kernels->name), std::string("convert_") + row.isa);
  CHECK_EQUAL(std::string(name_of(row.kernels->isa)), row.isa);
  CHECK_EQUAL(&convert_kernels(row.kernels->isa), row.kernels);
  if (row.kernels->isa > detected_isa()) {
    std::printf("skipped: %s, which this CPU does not run\n", row.kernels->name);
    return;
  }
  test_round_to_float16_keeps_float32(*row.kernels);
  test_round_to_float16_leaves_neighbours(*row.kernels);
  test_stream_copies_exactly(*row.kernels);
  for (const std::int64_t element_bytes : {2, 4, 8}) {
    test_every_second_place_is_written_exactly(*row.kernels, element_bytes);
  }
}

}  // namespace
}  // namespace backops

int main() {
  for (const backops::TableRow& row : backops::kTable) backops::test_row(row);
  return backops::test::finish();
}

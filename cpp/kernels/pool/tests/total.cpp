// Sums of whole planes.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/pool/tests/kernels.h"

namespace backops {
namespace test {
namespace {

// What runs behind the last element is the test's, so that reading it shows.
std::vector<double> run_total(const PoolKernels& kernels, const std::vector<double>& elements,
                              std::int64_t planes, std::int64_t columns, double scale,
                              std::int64_t misalignment) {
  const DType dtype = kernels.dtype, sum = sum_dtype(dtype);
  const Layout layout{dtype, 1, planes, columns, 0, false, 0};
  const Memory source(layout.bytes(), misalignment);
  fill_layout(source, layout, elements);
  const Memory sums(planes * bytes_of(sum), bytes_of(sum));
  kernels.total({planes, source.data(), columns, scale, sums.data()});
  std::vector<double> result;
  for (std::int64_t p = 0; p < planes; ++p) {
    result.push_back(read_element(sum, sums.data() + p * bytes_of(sum)));
  }
  return result;
}

void check_total(Random& random, DType dtype, std::int64_t planes, std::int64_t columns) {
  const Situation here("total of %s columns=%d planes=%d", name_of(dtype),
                       static_cast<int>(columns), static_cast<int>(planes));
  const std::vector<double> elements = random_values(random, dtype, planes * columns);
  const double scale = rounded_to(sum_dtype(dtype), random.real());
  const std::int64_t misalignment = random.integer(0, 7);
  const std::vector<double> generic =
      run_total(generic_of(dtype), elements, planes, columns, scale, misalignment);
  for (std::int64_t p = 0; p < planes; ++p) {
    long double sum = 0;
    double magnitude = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const double term = scale * elements[static_cast<std::size_t>(p * columns + j)];
      sum += static_cast<long double>(term);
      magnitude += std::fabs(term);
    }
    const double tolerance = sum_tolerance(sum_dtype(dtype), columns, magnitude);
    const double got = generic[static_cast<std::size_t>(p)];
    if (!is_close(got, static_cast<double>(sum), tolerance)) {
      CHECK_EQUAL(got, static_cast<double>(sum));
    }
  }
  for (const PoolKernels* kernels : kernels_of(dtype)) {
    CHECK(run_total(*kernels, elements, planes, columns, scale, misalignment) == generic);
  }
}

}  // namespace

void test_total(DType dtype) {
  Random random(31);
  for (std::int64_t columns = 1; columns <= 200; ++columns) {
    check_total(random, dtype, random.integer(1, 4), columns);
  }
  for (const std::int64_t columns : {255, 256, 257, 1000, 12544}) {
    check_total(random, dtype, 2, columns);
  }
}

}  // namespace test
}  // namespace backops

// Every row of kernels.inc: the generic row against sums taken in long double, every other row
// against the generic one, byte for byte. Whole buffers are compared, gaps between rows included:
// a byte written outside a row is a difference too.
#include <cstdio>
#include <string>

#include "kernels/pool/tests/kernels.h"

namespace backops {
namespace test {
namespace {

void test_table_row_says_what_it_is(const TableRow& row) {
  CHECK_EQUAL(std::string(row.kernels->name), std::string("pool_") + row.dtype + "_" + row.isa);
  CHECK_EQUAL(std::string(name_of(row.kernels->isa)), row.isa);
  CHECK_EQUAL(std::string(name_of(row.kernels->dtype)), row.dtype);
  CHECK(row.kernels->width > 0 && row.kernels->width <= 16);
  CHECK_EQUAL(&pool_kernels(row.kernels->isa, row.kernels->dtype), row.kernels);
}

}  // namespace

}  // namespace test
}  // namespace backops

int main() {
  using namespace backops::test;
  for (const TableRow& row : kTable) {
    test_table_row_says_what_it_is(row);
    if (!runs_here(*row.kernels)) {
      std::printf("skipped: %s, which this CPU does not run\n", row.kernels->name);
    }
  }
  for (const backops::DType dtype : kDTypes) {
    test_combine(dtype);
    test_moves(dtype);
    test_total(dtype);
    test_conversions(dtype);
  }
  return finish();
}

// Tensors and errors: which bytes elements share, sizes, texts.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/operand.h"
#include "base/tensor.h"
#include "tests/check.h"
#include "tests/elements.h"

namespace backops {
namespace {

using namespace test;

// First byte of each element.
std::vector<std::int64_t> element_offsets(const TensorView& view, const char* origin) {
  std::vector<std::int64_t> offsets = {view.data - origin};
  for (int i = 0; i < view.ndim; ++i) {
    std::vector<std::int64_t> longer;
    for (const std::int64_t offset : offsets) {
      for (std::int64_t x = 0; x < view.shape[i]; ++x) {
        longer.push_back(offset + x * view.stride_bytes[i]);
      }
    }
    offsets = longer;
  }
  return offsets;
}

bool share_a_byte(const TensorView& a, const TensorView& b, const char* origin) {
  std::set<std::int64_t> bytes;
  for (const std::int64_t offset : element_offsets(a, origin)) {
    for (std::int64_t i = 0; i < bytes_of(a.dtype); ++i) bytes.insert(offset + i);
  }
  for (const std::int64_t offset : element_offsets(b, origin)) {
    for (std::int64_t i = 0; i < bytes_of(b.dtype); ++i) {
      if (bytes.count(offset + i) != 0) return true;
    }
  }
  return false;
}

bool shares_bytes_with_itself(const TensorView& view) {
  std::set<std::int64_t> bytes;
  const std::vector<std::int64_t> offsets = element_offsets(view, view.data);
  for (const std::int64_t offset : offsets) {
    for (std::int64_t i = 0; i < bytes_of(view.dtype); ++i) bytes.insert(offset + i);
  }
  return bytes.size() != offsets.size() * size_of(view.dtype);
}

// Strides of all kinds: negative, zero, no multiple of the element, nested and not.
TensorView random_view(Random& random, char* middle) {
  TensorView view{};
  view.dtype = kDTypes[random.integer(0, 3)];
  view.ndim = static_cast<int>(random.integer(0, 4));
  view.data = middle + random.integer(-30, 30);
  const std::int64_t element = bytes_of(view.dtype);
  std::int64_t nested = element;
  for (int i = 0; i < view.ndim; ++i) {
    view.shape[i] = random.integer(random.chance(0.03) ? 0 : 1, 4);
    const std::int64_t kinds[] = {nested, random.integer(0, 40), element * random.integer(0, 9),
                                  nested + random.integer(0, 3)};
    const std::int64_t stride = kinds[random.integer(0, 3)];
    view.stride_bytes[i] = random.chance(0.3) ? -stride : stride;
    nested = std::max(nested, stride * std::max<std::int64_t>(1, view.shape[i]));
  }
  return view;
}

std::string view_text(const TensorView& view) {
  return std::string(name_of(view.dtype)) + shape_text(view.shape, view.ndim) + " strides " +
         shape_text(view.stride_bytes, view.ndim);
}

void test_overlap_sees_every_shared_byte() {
  std::vector<char> memory(64);
  char* const middle = memory.data() + 32;  // addresses only: nothing is read or written
  Random random(1);
  int overlaps = 0;
  for (int i = 0; i < 20000; ++i) {
    const TensorView a = random_view(random, middle), b = random_view(random, middle);
    const bool expected = share_a_byte(a, b, middle);
    overlaps += expected;
    const Situation here("%s and %s at %td", view_text(a).c_str(), view_text(b).c_str(),
                         b.data - a.data);
    CHECK_EQUAL(overlap(a, b), expected);
    CHECK_EQUAL(overlap(b, a), expected);
  }
  CHECK(overlaps > 2000 && overlaps < 18000);  // both answers were asked for
}

void test_ranges_end_with_the_addresses() {
  const auto* const near_the_end = reinterpret_cast<const char*>(UINTPTR_MAX - 15);
  const ByteRange range = range_of(near_the_end, SIZE_MAX);
  CHECK_EQUAL(range.begin, UINTPTR_MAX - 15);
  CHECK_EQUAL(range.end, UINTPTR_MAX);
  CHECK(range.meets(range_of(near_the_end + 8, 1)));
  CHECK(!range_of(nullptr, 64).holds(range_of(reinterpret_cast<const char*>(32), SIZE_MAX)));
  CHECK_EQUAL(range_of(near_the_end, 8).size(), std::size_t{8});
  // An operand whose offset leads below address 0.
  const std::int64_t shape[] = {4};
  const Operand below(DType::float32, shape, 1, nullptr, -2, "below");
  const ByteRange around = below.range(reinterpret_cast<const void*>(4));
  CHECK(around.end < around.begin && around.size() == 16);
  CHECK(!range_of(nullptr, SIZE_MAX).holds(around));
}

void test_overlapping_elements_are_seen() {
  Random random(2);
  char origin = 0;
  int overlaps = 0;
  for (int i = 0; i < 20000; ++i) {
    const TensorView view = random_view(random, &origin);
    const bool expected = shares_bytes_with_itself(view);
    overlaps += expected;
    const Situation here("%s", view_text(view).c_str());
    CHECK_EQUAL(has_overlapping_elements(view), expected);
  }
  CHECK(overlaps > 2000 && overlaps < 18000);
}

void test_dense_bytes_stop_at_63_bits() {
  const std::int64_t plain[] = {2, 3, 4}, empty[] = {0, 5};
  const std::int64_t largest[] = {std::int64_t{1} << 30, std::int64_t{1} << 30};
  const std::int64_t beyond[] = {std::int64_t{1} << 31, std::int64_t{1} << 31, 1};
  const std::int64_t empty_beyond[] = {std::int64_t{1} << 40, 0, std::int64_t{1} << 40};
  CHECK_EQUAL(dense_bytes(plain, 3, DType::float32), 96);
  CHECK_EQUAL(dense_bytes(plain, 0, DType::float64), 8);
  CHECK_EQUAL(dense_bytes(empty, 2, DType::float32), 0);
  CHECK_EQUAL(dense_bytes(largest, 2, DType::float32), std::int64_t{1} << 62);
  CHECK_EQUAL(dense_bytes(beyond, 3, DType::float16), -1);
  CHECK_EQUAL(dense_bytes(empty_beyond, 3, DType::float16), -1);
}

void test_shape_text_reads_like_python() {
  const std::int64_t shape[] = {2, -3, 8};
  CHECK_EQUAL(shape_text(shape, 0), "()");
  CHECK_EQUAL(shape_text(shape, 1), "(2,)");
  CHECK_EQUAL(shape_text(shape, 3), "(2, -3, 8)");
}

void test_error_spells_names_as_asked() {
  const Error error(ErrorKind::param, "{padding}[0]", "2",
                    "expected 0 to 1 (half of {kernel_size}[0] = 3)");
  CHECK_EQUAL(std::string(error.what()),
              "padding[0] is 2, expected 0 to 1 (half of kernel_size[0] = 3)");
  const auto camel = [](const std::string& name) {
    return name == "kernel_size" ? std::string("kernelSize") : name;
  };
  CHECK_EQUAL(error.message(camel), "padding[0] is 2, expected 0 to 1 (half of kernelSize[0] = 3)");
  CHECK(error.kind() == ErrorKind::param);
  const auto shout = [](const std::string&) { return std::string("NAME"); };
  const Error unclosed(ErrorKind::shape, "{input", "()", "but } stays");
  CHECK_EQUAL(unclosed.message(shout), "{input is (), but } stays");
  const Error quoting(ErrorKind::param, "{stride}", "{'a': 1}", "expected an int");
  CHECK_EQUAL(quoting.message(shout), "NAME is {'a': 1}, expected an int");
}

}  // namespace
}  // namespace backops

int main() {
  using namespace backops;
  test_overlap_sees_every_shared_byte();
  test_ranges_end_with_the_addresses();
  test_overlapping_elements_are_seen();
  test_dense_bytes_stop_at_63_bits();
  test_shape_text_reads_like_python();
  test_error_spells_names_as_asked();
  return test::finish();
}

// The core without its kernels' inner workings: memory overlap, windows along an axis, errors, and
// whole plans through the public interface, each against loops written from the definition.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/operand.h"
#include "base/tensor.h"
#include "ops/pool/plan.h"
#include "ops/pool/windows.h"
#include "tests/check.h"
#include "tests/elements.h"
#include "tests/memory.h"

namespace backops {
namespace {

using namespace test;

constexpr DType kDTypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

// ---- overlap -----------------------------------------------------------------------------------

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

// ---- windows along one axis --------------------------------------------------------------------

// The definition, word for word.
struct Definition {
  std::int64_t in, out;
  bool adaptive;
  std::int64_t kernel = 1, stride = 1, padding = 0;
  bool include_pad = true;

  using Wide = __int128;
  std::int64_t full_begin(std::int64_t o) const {
    if (adaptive) return static_cast<std::int64_t>(static_cast<Wide>(o) * in / out);
    return o * stride - padding;
  }
  std::int64_t full_end(std::int64_t o) const {
    if (!adaptive) return full_begin(o) + kernel;
    return static_cast<std::int64_t>((static_cast<Wide>(o + 1) * in + out - 1) / out);
  }
  std::int64_t begin(std::int64_t o) const { return std::max<std::int64_t>(0, full_begin(o)); }
  std::int64_t end(std::int64_t o) const { return std::min(in, full_end(o)); }
  bool holds(std::int64_t o, std::int64_t i) const { return begin(o) <= i && i < end(o); }
  std::int64_t divisor(std::int64_t o) const {
    if (adaptive || !include_pad) return end(o) - begin(o);
    return std::min(full_end(o), in + padding) - full_begin(o);
  }
  AxisWindows windows() const {
    return adaptive ? AxisWindows::adaptive(in, out)
                    : AxisWindows::fixed(in, out, kernel, stride, padding, include_pad);
  }
  std::string text() const {
    std::string result = (adaptive ? "adaptive in=" : "fixed in=") + std::to_string(in) +
                         " out=" + std::to_string(out);
    if (adaptive) return result;
    return result + " kernel=" + std::to_string(kernel) + " stride=" + std::to_string(stride) +
           " padding=" + std::to_string(padding) + (include_pad ? " include_pad" : "");
  }
};

std::int64_t pooled_size(std::int64_t in, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding, bool ceil_mode) {
  const std::int64_t room = in + 2 * padding - kernel;
  std::int64_t out = room / stride + 1;
  if (ceil_mode && room % stride != 0 && out * stride < in + padding) ++out;
  return out;
}

std::vector<Definition> small_definitions() {
  std::vector<Definition> all;
  for (std::int64_t in = 1; in <= 12; ++in) {
    for (std::int64_t out = 1; out <= 26; ++out) all.push_back({in, out, true});
    for (std::int64_t kernel = 1; kernel <= 14; ++kernel) {
      for (std::int64_t stride = 1; stride <= 6; ++stride) {
        for (std::int64_t padding = 0; padding <= kernel / 2; ++padding) {
          if (kernel > in + 2 * padding) continue;
          for (const int flags : {0, 1, 2, 3}) {
            const std::int64_t out = pooled_size(in, kernel, stride, padding, (flags & 1) != 0);
            all.push_back({in, out, false, kernel, stride, padding, (flags & 2) != 0});
          }
        }
      }
    }
  }
  return all;
}

// Outputs that hold index i, found one by one.
std::vector<std::int64_t> holders(const Definition& d, std::int64_t i) {
  std::vector<std::int64_t> result;
  for (std::int64_t o = 0; o < d.out; ++o) {
    if (d.holds(o, i)) result.push_back(o);
  }
  return result;
}

void check_covers(const Definition& d, const AxisWindows& windows) {
  std::int64_t longest = 0;
  bool once = true;
  Cover previous{0, 0};
  AxisWindows::Covers running(windows, 0);
  for (std::int64_t i = 0; i < d.in; ++i, running.next()) {
    const std::vector<std::int64_t> outputs = holders(d, i);
    const auto count = static_cast<std::int64_t>(outputs.size());
    const Cover cover = windows.cover(i);
    CHECK_EQUAL(cover.last - cover.first, count);
    if (count > 0) CHECK_EQUAL(cover.first, outputs[0]);
    CHECK(running.get() == cover);
    CHECK(cover.first >= previous.first && cover.last >= previous.last);
    previous = cover;
    longest = std::max(longest, count);
    once &= count == 1;
  }
  // Of adaptive windows it is a bound, at most one too large: finding it exactly would take a loop.
  CHECK_EQUAL(std::max(windows.longest_cover() - (d.adaptive ? 1 : 0), longest), longest);
  CHECK(windows.longest_cover() >= longest);
  CHECK_EQUAL(windows.covers_every_index_once(), once);
  CHECK_EQUAL(windows.is_global(), d.out == 1 && once);
}

void check_divisors(const Definition& d, const AxisWindows& windows) {
  bool same = true;
  for (std::int64_t o = 0; o < d.out; ++o) {
    CHECK_EQUAL(windows.divisor(o), d.divisor(o));
    same &= d.divisor(o) == d.divisor(0);
  }
  // Adaptive windows may deny it: they are then weighted one by one, which costs time only.
  if (!d.adaptive || windows.has_one_divisor()) CHECK_EQUAL(windows.has_one_divisor(), same);
}

template <class T>
void check_weights(const Definition& d, const AxisWindows& windows, double scale) {
  for (std::int64_t begin = 0; begin <= d.out; begin += 1 + begin / 3) {
    for (std::int64_t end = begin; end <= d.out; end += 1 + end / 4) {
      std::vector<T> got(static_cast<std::size_t>(end - begin) + 1, T(-7));
      windows.weights(begin, end, scale, got.data());
      bool close = got.back() == T(-7);
      for (std::int64_t o = begin; o < end; ++o) {
        const double expected = scale / static_cast<double>(d.divisor(o));
        const double error =
            static_cast<double>(got[static_cast<std::size_t>(o - begin)]) / expected - 1;
        close &= std::fabs(error) <= 2 * static_cast<double>(std::numeric_limits<T>::epsilon());
      }
      CHECK(close);
    }
  }
}

// Scratch memory is sized by covers_of: too small is a bug, much too large a waste.
void check_covers_of(const Definition& d, const AxisWindows& windows) {
  for (std::int64_t count = 1; count <= d.in; ++count) {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i + count <= d.in; ++i) {
      most = std::max(most, windows.cover(i + count - 1).last - windows.cover(i).first);
    }
    const std::int64_t bound = windows.covers_of(count);
    CHECK(bound >= most && bound <= d.out && bound <= most + 2);
  }
}

void check_slide(const Definition& d, const AxisWindows& windows) {
  if (!d.adaptive) CHECK_EQUAL(windows.slides(), d.stride == 1);
  if (!windows.slides()) return;
  for (std::int64_t i = 0; i < d.in; ++i) {
    const std::int64_t from = i - windows.slide_lead();
    const std::int64_t first = std::max<std::int64_t>(0, from);
    const std::int64_t last = std::min(d.out, from + windows.slide_kernel());
    CHECK(windows.cover(i) == (Cover{first, last}));
  }
}

// Tiles inside share their tables: one period further, covers must be the same, one output on.
void check_inside_repeats(const Definition& d, const AxisWindows& windows) {
  const std::int64_t period = windows.period();
  CHECK_EQUAL(period, d.adaptive ? 0 : d.stride);
  for (std::int64_t begin = 0; begin < d.in; ++begin) {
    for (std::int64_t end = begin + 1; end <= d.in; ++end) {
      if (!windows.is_inside(begin, end)) continue;
      CHECK(period > 0);
      for (std::int64_t i = begin; i < end; ++i) {
        const Cover here = windows.cover(i);
        const std::int64_t first = (i + d.padding - d.kernel + d.stride) / d.stride;
        CHECK(here.first == first && here.last == (i + d.padding) / d.stride + 1);
      }
    }
  }
}

void test_windows_follow_their_definition() {
  for (const Definition& d : small_definitions()) {
    const Situation here("%s", d.text().c_str());
    const AxisWindows windows = d.windows();
    CHECK_EQUAL(windows.in(), d.in);
    CHECK_EQUAL(windows.out(), d.out);
    check_covers(d, windows);
    check_divisors(d, windows);
    check_weights<float>(d, windows, 0.75);
    check_weights<double>(d, windows, 3.0);
    check_covers_of(d, windows);
    check_slide(d, windows);
    check_inside_repeats(d, windows);
  }
}

// At sizes where no loop can visit every index: an output holds the index, its neighbours do not.
void check_far_cover(const Definition& d, const AxisWindows& windows, std::int64_t i) {
  const Cover cover = windows.cover(i);
  CHECK(cover.first >= 0 && cover.last <= d.out && cover.first <= cover.last);
  CHECK(cover.last - cover.first <= windows.longest_cover());
  if (cover.first == cover.last) return;
  CHECK(d.holds(cover.first, i) && d.holds(cover.last - 1, i));
  CHECK(cover.first == 0 || !d.holds(cover.first - 1, i));
  CHECK(cover.last == d.out || !d.holds(cover.last, i));
}

std::vector<Definition> far_definitions() {
  const std::int64_t far = (std::int64_t{1} << 33) + 5, farther = std::int64_t{1} << 40;
  std::vector<Definition> all = {{far, 1000, true}, {farther + 1, 777, true}, {far, 1, true},
                                 {far, far, true},  {3 * far, far, true},     {far, 3 * far, true},
                                 {7, 100000, true}};
  struct Fixed {
    std::int64_t in, kernel, stride, padding;
  };
  const Fixed shapes[] = {{far, 3, 2, 1},
                          {far, 7, 1, 3},
                          {farther, 5, far, 2},
                          {farther, far, far / 2, 11},
                          {farther, 2 * far, 3 * far, far},
                          {farther, farther / 2, 1, 0},
                          {5, farther, 1, farther / 2},
                          {7, farther - 1, 3, farther / 2 - 1},
                          {9, std::int64_t{1} << 60, std::int64_t{1} << 60, std::int64_t{1} << 59}};
  for (const Fixed& s : shapes) {
    for (const bool include_pad : {true, false}) {
      for (const bool ceil_mode : {true, false}) {
        const std::int64_t out = pooled_size(s.in, s.kernel, s.stride, s.padding, ceil_mode);
        all.push_back({s.in, out, false, s.kernel, s.stride, s.padding, include_pad});
      }
    }
  }
  return all;
}

void test_windows_beyond_32_bits() {
  Random random(3);
  for (const Definition& d : far_definitions()) {
    const Situation here("%s", d.text().c_str());
    const AxisWindows windows = d.windows();
    std::vector<std::int64_t> indices = {0, d.in / 2, d.in - 1};
    std::vector<std::int64_t> outputs = {0, d.out / 2, d.out - 1};
    for (int i = 0; i < 200; ++i) {
      indices.push_back(random.integer(0, d.in - 1));
      outputs.push_back(random.integer(0, d.out - 1));
    }
    for (const std::int64_t i : indices) check_far_cover(d, windows, i);
    for (const std::int64_t o : outputs) {
      CHECK_EQUAL(windows.divisor(o), d.divisor(o));
      double weight = 0;
      windows.weights(o, o + 1, 1.0, &weight);
      CHECK(std::fabs(weight * static_cast<double>(d.divisor(o)) - 1) < 1e-15);
    }
  }
}

// The running covers must not drift from the ones computed afresh.
void test_running_covers_far_out() {
  for (const Definition& d : far_definitions()) {
    const Situation here("%s", d.text().c_str());
    const AxisWindows windows = d.windows();
    const std::int64_t begin = std::max<std::int64_t>(0, d.in - 3000);
    AxisWindows::Covers running(windows, begin);
    for (std::int64_t i = begin; i < d.in; ++i, running.next()) {
      if (running.get() == windows.cover(i)) continue;
      CHECK_EQUAL(running.get().first, windows.cover(i).first);
      CHECK_EQUAL(running.get().last, windows.cover(i).last);
    }
    CHECK(windows.cover(d.in - 1).last <= d.out);
  }
}

// ---- errors ------------------------------------------------------------------------------------

const char* name_of_kind(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::dtype: return "dtype: ";
    case ErrorKind::shape: return "shape: ";
    case ErrorKind::param: return "param: ";
    default: return "layout: ";
  }
}

// "kind: message", or nothing where `action` throws no Error.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return name_of_kind(error.kind()) + std::string(error.what());
  }
  return "";
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

PoolProblem valid_problem() {
  PoolProblem p;
  const std::int64_t shape[] = {2, 3, 8, 9};
  std::copy(shape, shape + 4, p.input_shape);
  for (int axis = 0; axis < 2; ++axis) {
    p.kernel_size[axis] = 3;
    p.stride[axis] = 2;
    p.padding[axis] = 1;
    p.output_size[axis] = 2;
  }
  return p;
}

template <class Change>
std::string error_after(const Change& change) {
  PoolProblem p = valid_problem();
  change(p);
  return error_of([&] { const PoolPlan plan(p); });
}

void test_plan_refuses_bad_shapes() {
  CHECK_EQUAL(error_after([](PoolProblem&) {}), "");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.ndim = 2; }),
              "shape: input is (2, 3), expected 3 or 4 axes");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.ndim = 5; }),
              "shape: input is (2, 3, 8, 9, 0), expected 3 or 4 axes");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.input_shape[0] = 0; }), "");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.input_shape[1] = 0; }),
              "shape: input is (2, 0, 8, 9), expected positive sizes (only the batch may be "
              "empty)");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.input_shape[3] = -1; }),
              "shape: input is (2, 3, 8, -1), expected positive sizes (only the batch may be "
              "empty)");
  CHECK_EQUAL(error_after([](PoolProblem& p) {
                p.ndim = 3;
                p.input_shape[0] = 0;
              }),
              "shape: input is (0, 3, 8), expected positive sizes");
  CHECK_EQUAL(error_after([](PoolProblem& p) {
                p.input_shape[0] = p.input_shape[1] = std::int64_t{1} << 30;
              }),
              "shape: input is (1073741824, 1073741824, 8, 9), expected sizes whose bytes fit in "
              "63 bits");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.kernel_size[1] = 12; }),
              "shape: input is (2, 3, 8, 9), but kernel_size[1] = 12 needs a padded size of at "
              "least that, not 11");
  CHECK_EQUAL(error_after([](PoolProblem& p) {
                p.kernel_size[1] = 14;
                p.stride[1] = 3;
                p.ceil_mode = true;
              }),
              "shape: input is (2, 3, 8, 9), but kernel_size[1] = 14 needs a padded size of at "
              "least 12, not 11");
  CHECK_EQUAL(error_after([](PoolProblem& p) {
                p.adaptive = true;
                p.output_size[0] = 0;
              }),
              "shape: grad_output is (2, 3, 0, 2), expected positive sizes (only the batch may be "
              "empty)");
}

void test_plan_refuses_bad_windows() {
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.kernel_size[0] = 0; }),
              "param: kernel_size[0] is 0, expected 1 to 2**60");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.kernel_size[1] = (std::int64_t{1} << 60) + 1; }),
              "param: kernel_size[1] is 1152921504606846977, expected 1 to 2**60");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.stride[1] = 0; }),
              "param: stride[1] is 0, expected 1 to 2**60");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.stride[0] = -2; }),
              "param: stride[0] is -2, expected 1 to 2**60");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.padding[0] = 2; }),
              "param: padding[0] is 2, expected 0 to 1 (half of kernel_size[0] = 3)");
  CHECK_EQUAL(error_after([](PoolProblem& p) { p.padding[1] = -1; }),
              "param: padding[1] is -1, expected 0 to 1 (half of kernel_size[1] = 3)");
}

TensorView dense_view(char* data, DType dtype, const std::int64_t* shape, int ndim) {
  TensorView view{data, dtype, ndim, {}, {}};
  std::int64_t stride = bytes_of(dtype);
  for (int i = ndim - 1; i >= 0; --i) {
    view.shape[i] = shape[i];
    view.stride_bytes[i] = stride;
    stride *= shape[i];
  }
  return view;
}

void test_plan_refuses_tensors_that_do_not_fit() {
  const PoolPlan plan(valid_problem());
  std::vector<char> memory(8192);
  const TensorView output = dense_view(memory.data(), DType::float32, plan.output_shape(), 4);
  const TensorView input =
      dense_view(memory.data() + 4096, DType::float32, plan.problem().input_shape, 4);
  const auto output_error = [&](TensorView view) {
    return error_of([&] { plan.check_grad_output(view); });
  };
  const auto input_error = [&](TensorView view) {
    return error_of([&] {
      plan.check_grad_input(view);
      plan.check_memory(output, view);
    });
  };
  CHECK_EQUAL(output_error(output), "");
  CHECK_EQUAL(input_error(input), "");
  TensorView wrong = output;
  wrong.dtype = DType::float16;
  CHECK_EQUAL(output_error(wrong), "dtype: grad_output is float16, expected float32 as planned");
  wrong = output;
  wrong.shape[3] = 4;
  CHECK_EQUAL(output_error(wrong),
              "shape: grad_output is (2, 3, 4, 4), but input (2, 3, 8, 9) with kernel_size (3, 3), "
              "stride (2, 2), padding (1, 1) pools to (2, 3, 4, 5)");
  wrong = input;
  wrong.dtype = DType::float64;
  CHECK_EQUAL(input_error(wrong),
              "dtype: grad_input is float64, expected float32 like grad_output");
  wrong = input;
  wrong.ndim = 3;
  CHECK_EQUAL(input_error(wrong),
              "shape: grad_input is (2, 3, 8), expected the shape of input, (2, 3, 8, 9)");
  wrong = input;
  wrong.stride_bytes[2] -= 4;
  CHECK_EQUAL(input_error(wrong),
              "layout: grad_input is a tensor whose elements overlap, expected one memory location "
              "per element");
  wrong = input;
  wrong.data = memory.data() + 400;
  CHECK_EQUAL(
      input_error(wrong),
      "layout: grad_input is memory of another tensor, expected memory that grad_output does not "
      "share");
}

// ---- whole plans -------------------------------------------------------------------------------

// A tensor in memory of its own, with what its elements should be or are.
struct Tensor {
  Memory memory;
  TensorView view;

  char* at(std::int64_t index) const {
    char* address = view.data;
    for (int i = view.ndim - 1; i >= 0; --i) {
      address += index % view.shape[i] * view.stride_bytes[i];
      index /= view.shape[i];
    }
    return address;
  }
  double get(std::int64_t index) const { return read_element(view.dtype, at(index)); }
  void set(std::int64_t index, double value) const { write_element(view.dtype, value, at(index)); }
};

struct StrideStyle {
  bool dense, channels_last, flips, odd_bytes, broadcast;
};

StrideStyle random_style(Random& random, bool may_broadcast) {
  StrideStyle style{};
  style.dense = random.chance(0.5);
  style.channels_last = random.chance(0.35);
  style.flips = random.chance(0.4);
  style.odd_bytes = random.chance(0.4);
  style.broadcast = may_broadcast && random.chance(0.15);
  return style;
}

// Axes from the one with the smallest stride on.
std::vector<int> memory_order(Random& random, const StrideStyle& style, int ndim, int rank) {
  std::vector<int> order;
  for (int i = ndim - 1; i >= 0; --i) order.push_back(i);
  if (style.channels_last) {
    std::rotate(order.begin(), order.begin() + rank, order.begin() + rank + 1);
  } else if (!style.dense) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(
          order[i - 1],
          order[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(i) - 1))]);
    }
  }
  return order;
}

Tensor make_tensor(Random& random, const StrideStyle& style, DType dtype, const std::int64_t* shape,
                   int ndim, int rank) {
  TensorView view{nullptr, dtype, ndim, {}, {}};
  std::int64_t stride = bytes_of(dtype), lowest = 0, highest = 0;
  for (const int i : memory_order(random, style, ndim, rank)) {
    view.shape[i] = shape[i];
    if (!style.dense) stride += bytes_of(dtype) * random.integer(0, 2);
    if (!style.dense && style.odd_bytes) stride += random.integer(0, 3);
    const bool repeated = style.broadcast && random.chance(0.5);
    const bool flipped = !style.dense && style.flips && random.chance(0.5);
    view.stride_bytes[i] = repeated ? 0 : flipped ? -stride : stride;
    const std::int64_t extent = view.stride_bytes[i] * std::max<std::int64_t>(0, shape[i] - 1);
    (extent < 0 ? lowest : highest) += extent;
    if (!repeated) stride *= std::max<std::int64_t>(1, shape[i]);
  }
  const std::int64_t misalignment = style.odd_bytes ? random.integer(0, 63) : 0;
  Tensor tensor{Memory(highest - lowest + bytes_of(dtype), misalignment), view};
  tensor.view.data = tensor.memory.data() - lowest;
  return tensor;
}

std::int64_t element_count(const std::int64_t* shape, int ndim) {
  return std::accumulate(shape, shape + ndim, std::int64_t{1}, std::multiplies<std::int64_t>());
}

struct Expected {
  std::vector<double> values, magnitudes;
  std::vector<std::int64_t> terms;
};

// The pooled axes, always three: those in front of a shorter problem have one index and one output.
std::vector<Definition> definitions_of(const PoolProblem& p) {
  std::vector<Definition> axes(static_cast<std::size_t>(kMaxRank - p.rank), Definition{1, 1, true});
  for (int axis = 0; axis < p.rank; ++axis) {
    const std::int64_t in = p.input_shape[p.ndim - p.rank + axis];
    if (p.adaptive) {
      axes.push_back({in, p.output_size[axis], true});
      continue;
    }
    const std::int64_t out =
        pooled_size(in, p.kernel_size[axis], p.stride[axis], p.padding[axis], p.ceil_mode);
    axes.push_back({in, out, false, p.kernel_size[axis], p.stride[axis], p.padding[axis],
                    p.count_include_pad});
  }
  return axes;
}

// Precision modes round the gradients first.
double rounded_operand(double value, Rounding rounding) {
  if (rounding == Rounding::none || !std::isfinite(value)) return value;
  if (rounding == Rounding::float16) return rounded_to(DType::float16, value);
  const int kept = rounding == Rounding::hf32_11 ? 12 : 11;
  const double unit = unit_around(value, Format{kept, -149, 0});
  return std::round(value / unit) * unit;
}

// Adds one output element to every input element of its window.
void scatter(const PoolProblem& p, const std::vector<Definition>& axes, std::int64_t plane,
             const std::int64_t (&o)[kMaxRank], double gradient, Expected& expected) {
  double divisor = 1;
  for (std::size_t i = 0; i < kMaxRank; ++i) {
    divisor *= static_cast<double>(axes[i].divisor(o[i]));
  }
  const bool overridden = !p.adaptive && p.divisor_override != 0;
  if (overridden) divisor = static_cast<double>(p.divisor_override);
  const double share = rounded_operand(gradient, p.rounding) / divisor;
  for (std::int64_t d = axes[0].begin(o[0]); d < axes[0].end(o[0]); ++d) {
    for (std::int64_t r = axes[1].begin(o[1]); r < axes[1].end(o[1]); ++r) {
      for (std::int64_t c = axes[2].begin(o[2]); c < axes[2].end(o[2]); ++c) {
        const std::int64_t row = (plane * axes[0].in + d) * axes[1].in + r;
        const auto at = static_cast<std::size_t>(row * axes[2].in + c);
        expected.values[at] += share;
        expected.magnitudes[at] += std::fabs(share);
        ++expected.terms[at];
      }
    }
  }
}

Expected expected_gradient(const PoolProblem& p, const Tensor& grad_output) {
  const std::vector<Definition> axes = definitions_of(p);
  const auto count = static_cast<std::size_t>(element_count(p.input_shape, p.ndim));
  Expected expected{std::vector<double>(count), std::vector<double>(count),
                    std::vector<std::int64_t>(count)};
  const std::int64_t planes = element_count(p.input_shape, p.ndim - p.rank);
  std::int64_t next = 0, o[kMaxRank];
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    for (o[0] = 0; o[0] < axes[0].out; ++o[0]) {
      for (o[1] = 0; o[1] < axes[1].out; ++o[1]) {
        for (o[2] = 0; o[2] < axes[2].out; ++o[2]) {
          scatter(p, axes, plane, o, grad_output.get(next++), expected);
        }
      }
    }
  }
  return expected;
}

std::string problem_text(const PoolProblem& p) {
  const std::string windows =
      p.adaptive ? " adaptive to " + shape_text(p.output_size, p.rank)
                 : " kernel " + shape_text(p.kernel_size, p.rank) + " stride " +
                       shape_text(p.stride, p.rank) + " padding " + shape_text(p.padding, p.rank) +
                       (p.ceil_mode ? " ceil" : "") + (p.count_include_pad ? " include_pad" : "") +
                       " divisor " + std::to_string(p.divisor_override);
  return std::string(name_of(p.dtype)) + " " + shape_text(p.input_shape, p.ndim) + windows +
         " rounding " + std::to_string(static_cast<int>(p.rounding));
}

void check_values(const PoolProblem& p, const Tensor& grad_input, const Expected& expected) {
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double got = grad_input.get(static_cast<std::int64_t>(i));
    const double tolerance = sum_tolerance(p.dtype, expected.terms[i], expected.magnitudes[i]);
    if (is_close(got, expected.values[i], tolerance)) continue;
    const std::string before = g_situation;
    const Situation here("element %zu of %s", i, before.c_str());
    CHECK_EQUAL(got, expected.values[i]);
    return;
  }
  CHECK(true);
}

// Gaps between the elements are somebody else's.
void check_gaps(const Tensor& tensor) {
  std::vector<bool> is_element(tensor.memory.size(), false);
  const std::int64_t count = element_count(tensor.view.shape, tensor.view.ndim);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto begin = is_element.begin() + (tensor.at(i) - tensor.memory.data());
    std::fill(begin, begin + bytes_of(tensor.view.dtype), true);
  }
  bool untouched = true;
  for (std::size_t i = 0; i < tensor.memory.size(); ++i) {
    const auto byte = static_cast<unsigned char>(tensor.memory.data()[i]);
    untouched &= is_element[i] || byte == kUntouched;
  }
  CHECK(untouched);
}

// Runs with a workspace of exactly the size asked for, holding NaNs. Half of the runs have bytes of
// the test's behind it, half end with the allocation, for the sanitizer.
void run_with_guards(Random& random, const PoolPlan& plan, const Tensor& grad_output,
                     const Tensor& grad_input, int threads) {
  plan.check_grad_output(grad_output.view);
  plan.check_grad_input(grad_input.view);
  plan.check_memory(grad_output.view, grad_input.view);
  std::memset(grad_input.memory.data(), kUntouched, grad_input.memory.size());
  const std::size_t guard = random.chance(0.5) ? 64 : 0, bytes = plan.workspace_bytes(threads);
  const Memory workspace(static_cast<std::int64_t>(bytes + guard), random.integer(0, 63));
  std::memset(workspace.data(), 0xff, bytes);
  plan.run(grad_output.view, grad_input.view, workspace.data(), threads);
  CHECK(bytes <= static_cast<std::size_t>(threads) << 20);
  CHECK(std::all_of(workspace.data() + bytes, workspace.data() + bytes + guard,
                    [](char byte) { return static_cast<unsigned char>(byte) == kUntouched; }));
}

void check_problem(Random& random, const PoolProblem& p, double special) {
  const LegalPoolProblem legal(p);
  const std::int64_t* const output_shape = legal.output_shape();
  const std::vector<Definition> axes = definitions_of(p);
  for (int axis = 0; axis < p.rank; ++axis) {
    CHECK_EQUAL(output_shape[p.ndim - p.rank + axis],
                axes[static_cast<std::size_t>(kMaxRank - p.rank + axis)].out);
  }
  const Tensor grad_output =
      make_tensor(random, random_style(random, true), p.dtype, output_shape, p.ndim, p.rank);
  const Tensor grad_input =
      make_tensor(random, random_style(random, false), p.dtype, p.input_shape, p.ndim, p.rank);
  const std::int64_t count = element_count(output_shape, p.ndim);
  for (std::int64_t i = 0; i < count; ++i) grad_output.set(i, random.real());
  if (special != 0 && count > 0) grad_output.set(random.integer(0, count - 1), special);
  const Expected expected = expected_gradient(p, grad_output);
  std::vector<char> generic;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (isa > detected_isa()) break;
    const PoolPlan plan(p, isa);
    const int threads = static_cast<int>(random.integer(1, 4));
    const Situation here("%s %s threads=%d", problem_text(p).c_str(), plan.kernel().c_str(),
                         threads);
    run_with_guards(random, plan, grad_output, grad_input, threads);
    const std::vector<char> got(grad_input.memory.data(),
                                grad_input.memory.data() + grad_input.memory.size());
    if (isa == Isa::generic) {
      check_values(p, grad_input, expected);
      check_gaps(grad_input);
      generic = got;
    }
    CHECK(got == generic);
  }
}

void choose_windows(Random& random, PoolProblem& p, std::int64_t longest_kernel) {
  for (int axis = 0; axis < p.rank; ++axis) {
    const std::int64_t in = p.input_shape[p.ndim - p.rank + axis];
    p.output_size[axis] = random.chance(0.2) ? 1 : random.integer(1, 2 * in);
    do {
      p.kernel_size[axis] = random.integer(1, longest_kernel);
      p.padding[axis] = random.chance(0.5) ? 0 : random.integer(0, p.kernel_size[axis] / 2);
    } while (p.kernel_size[axis] > in + 2 * p.padding[axis]);
    p.stride[axis] = random.chance(0.3)   ? 1
                     : random.chance(0.3) ? p.kernel_size[axis]
                                          : random.integer(1, p.kernel_size[axis] + 2);
  }
}

PoolProblem random_problem(Random& random, int rank, std::int64_t longest_axis) {
  PoolProblem p;
  p.rank = rank;
  p.dtype = kDTypes[random.integer(0, 3)];
  const bool batched = random.chance(0.7);
  p.ndim = rank + (batched ? 2 : 1);
  for (int i = 0; i < p.ndim; ++i) {
    p.input_shape[i] = random.integer(1, i < p.ndim - rank ? 4 : longest_axis);
  }
  if (batched && random.chance(0.03)) p.input_shape[0] = 0;
  p.adaptive = random.chance(0.35);
  p.ceil_mode = random.chance(0.4);
  p.count_include_pad = random.chance(0.5);
  const std::int64_t divisor = random.integer(1, 9);
  if (random.chance(0.25)) p.divisor_override = random.chance(0.5) ? divisor : -divisor;
  if (p.dtype == DType::float32 && random.chance(0.3)) {
    p.rounding = static_cast<Rounding>(random.integer(1, 3));
  }
  choose_windows(random, p, longest_axis + 3);
  return p;
}

void test_random_problems_match_their_definition() {
  Random random(5);
  const std::int64_t longest_axis[] = {0, 90, 24, 10};
  const double infinity = std::numeric_limits<double>::infinity();
  const double specials[] = {0, 0, 0, std::numeric_limits<double>::quiet_NaN(), infinity};
  for (int i = 0; i < 1500; ++i) {
    const int rank = 1 + i % 3;
    const PoolProblem p = random_problem(random, rank, longest_axis[rank]);
    const Situation here("%s", problem_text(p).c_str());
    check_problem(random, p, specials[random.integer(0, 4)]);
  }
}

PoolProblem fixed_problem(DType dtype, const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& kernel,
                          const std::vector<std::int64_t>& stride,
                          const std::vector<std::int64_t>& padding) {
  PoolProblem p;
  p.rank = static_cast<int>(kernel.size());
  p.ndim = static_cast<int>(shape.size());
  p.dtype = dtype;
  std::copy(shape.begin(), shape.end(), p.input_shape);
  std::copy(kernel.begin(), kernel.end(), p.kernel_size);
  std::copy(stride.begin(), stride.end(), p.stride);
  std::copy(padding.begin(), padding.end(), p.padding);
  return p;
}

PoolProblem adaptive_problem(DType dtype, const std::vector<std::int64_t>& shape,
                             const std::vector<std::int64_t>& output_size) {
  const std::vector<std::int64_t> ones(output_size.size(), 1);
  PoolProblem p = fixed_problem(dtype, shape, ones, ones, ones);
  p.adaptive = true;
  std::copy(output_size.begin(), output_size.end(), p.output_size);
  return p;
}

// Larger than one tile along each axis in turn, channels included.
void test_problems_of_many_tiles() {
  Random random(6);
  const DType f32 = DType::float32, f16 = DType::float16, bf16 = DType::bfloat16;
  const std::vector<PoolProblem> problems = {
      fixed_problem(f32, {1, 1, 20011}, {7}, {3}, {2}),
      fixed_problem(f16, {1, 2, 20000}, {40}, {1}, {20}),
      fixed_problem(f32, {1, 1, 17000}, {100}, {7}, {50}),
      fixed_problem(f32, {1, 5000, 13}, {3, 5}, {1, 1}, {1, 2}),
      fixed_problem(bf16, {1, 3000, 20}, {20, 3}, {1, 2}, {10, 1}),
      fixed_problem(f32, {1, 1, 300, 300}, {5, 5}, {2, 2}, {2, 2}),
      fixed_problem(f32, {1, 9000, 4, 4}, {2, 2}, {1, 1}, {0, 0}),
      fixed_problem(f32, {3000, 1, 3, 5}, {2, 2}, {1, 1}, {0, 0}),
      fixed_problem(DType::float64, {1, 70, 40, 40}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}),
      fixed_problem(f32, {1, 60, 30, 30}, {20, 2, 2}, {1, 2, 2}, {10, 0, 0}),
      adaptive_problem(f32, {1, 1, 20011}, {777}),
      adaptive_problem(f32, {2, 300}, {9001}),
      adaptive_problem(f32, {1, 1, 200, 210}, {7, 300}),
      adaptive_problem(f16, {40, 1, 64, 64}, {1, 1}),
      adaptive_problem(f32, {1, 3, 40, 41, 42}, {7, 8, 9})};
  for (const PoolProblem& p : problems) {
    for (int layout = 0; layout < 3; ++layout) check_problem(random, p, 0);
  }
}

// Kernels longer than any memory cover the whole axis; only where they are cut matters.
void test_kernels_longer_than_memory() {
  Random random(7);
  const std::int64_t huge = std::int64_t{1} << 40, most = std::int64_t{1} << 60;
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
    for (const int flags : {0, 1, 2, 3}) {
      std::vector<PoolProblem> problems = {
          fixed_problem(dtype, {2, 2, 7}, {huge}, {1}, {huge / 2}),
          fixed_problem(dtype, {2, 2, 7}, {huge}, {3}, {huge / 2}),
          fixed_problem(dtype, {2, 3, 5, 9}, {3, huge}, {2, 1}, {1, huge / 2}),
          fixed_problem(dtype, {2, 3, 5, 9}, {huge - 3, 3}, {2, 1}, {huge / 2 - 2, 1}),
          fixed_problem(dtype, {2, 5, 5, 9}, {huge, huge, huge}, {1, 2, 3},
                        {huge / 2, huge / 2, huge / 2}),
          fixed_problem(dtype, {1, 40}, {most}, {most}, {most / 2})};
      for (PoolProblem& p : problems) {
        p.ceil_mode = (flags & 1) != 0;
        p.count_include_pad = (flags & 2) != 0;
        check_problem(random, p, 0);
      }
    }
  }
}

// Scratch memory is bounded whatever the problem; plans that cannot keep to it need none.
void test_workspace_stays_below_a_megabyte_per_thread() {
  const DType f32 = DType::float32, f64 = DType::float64;
  const std::int64_t large = 1000000;
  const std::vector<PoolProblem> problems = {
      fixed_problem(f32, {32, 64, 224, 224}, {7, 7}, {1, 1}, {3, 3}),
      fixed_problem(f64, {32, 64, 224, 224}, {200, 200}, {1, 1}, {100, 100}),
      fixed_problem(f32, {1, 100000, 56, 56}, {3, 3}, {2, 2}, {1, 1}),
      fixed_problem(f64, {1, 1, large, large}, {1000, 1000}, {1, 1}, {0, 0}),
      fixed_problem(f32, {1, 1, large}, {large / 2}, {1}, {large / 4}),
      fixed_problem(f64, {8, 8, 100, 100, 100}, {50, 50, 50}, {1, 1, 1}, {25, 25, 25}),
      adaptive_problem(f32, {8, 8, 224, 224}, {7, 7}),
      adaptive_problem(f32, {8, 8, 7, 7}, {5000, 5000}),
      adaptive_problem(f64, {1, 1, 3, 3, 3}, {100, 1000, 10000})};
  for (const PoolProblem& p : problems) {
    const PoolPlan plan(p);
    const Situation here("%s %s", problem_text(p).c_str(), plan.kernel().c_str());
    for (const int threads : {1, 2, 7, 64}) {
      const std::size_t bytes = plan.workspace_bytes(threads);
      CHECK(bytes <= static_cast<std::size_t>(threads) << 20);
      CHECK(bytes >= plan.workspace_bytes(1));
      const bool plain = plan.kernel().find("plain") != std::string::npos;
      CHECK_EQUAL(bytes == 0, plain);
    }
  }
}

// Results too large for the caches are written past them. Small integers through windows of four
// come out exact.
void test_large_results_are_exact() {
  const std::int64_t planes = 7, rows = 1900, columns = 1930;
  const PoolProblem p =
      fixed_problem(DType::float16, {planes, rows, columns}, {2, 2}, {2, 2}, {0, 0});
  const PoolPlan plan(p);
  Random random(8);
  const StrideStyle dense{true, false, false, false, false};
  const Tensor output = make_tensor(random, dense, p.dtype, plan.output_shape(), 3, 2);
  const Tensor input = make_tensor(random, dense, p.dtype, p.input_shape, 3, 2);
  CHECK(input.memory.size() >= std::size_t{48} << 20);
  const Format format = format_of(p.dtype);
  auto* const gradients = reinterpret_cast<std::uint16_t*>(output.memory.data());
  const auto gradient_at = [](std::int64_t i) { return static_cast<double>(4 * (i % 251)); };
  for (std::int64_t i = 0; i < planes * rows * columns / 4; ++i) {
    gradients[i] = half_bits(gradient_at(i), format);
  }
  std::uint16_t quarter[251];
  for (int i = 0; i < 251; ++i) quarter[i] = half_bits(i, format);
  run_with_guards(random, plan, output, input, 2);
  const auto* const results = reinterpret_cast<const std::uint16_t*>(input.memory.data());
  std::int64_t wrong = 0;
  for (std::int64_t row = 0; row < planes * rows; ++row) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t from = row / 2 * (columns / 2) + c / 2;
      wrong += results[row * columns + c] != quarter[from % 251];
    }
  }
  CHECK_EQUAL(wrong, 0);
}

// Nothing may be written for an empty batch, and nothing needs to be.
void test_empty_batch_writes_nothing() {
  PoolProblem p = valid_problem();
  p.input_shape[0] = 0;
  const PoolPlan plan(p);
  char byte = 0;
  const TensorView output = dense_view(&byte, p.dtype, plan.output_shape(), 4);
  const TensorView input = dense_view(&byte, p.dtype, p.input_shape, 4);
  plan.check_grad_output(output);
  plan.check_grad_input(input);
  plan.check_memory(output, input);
  std::vector<char> workspace(plan.workspace_bytes(1));
  plan.run(output, input, workspace.data(), 1);
  CHECK_EQUAL(static_cast<int>(byte), 0);
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
  test_windows_follow_their_definition();
  test_windows_beyond_32_bits();
  test_running_covers_far_out();
  test_error_spells_names_as_asked();
  test_plan_refuses_bad_shapes();
  test_plan_refuses_bad_windows();
  test_plan_refuses_tensors_that_do_not_fit();
  test_random_problems_match_their_definition();
  test_problems_of_many_tiles();
  test_kernels_longer_than_memory();
  test_workspace_stays_below_a_megabyte_per_thread();
  test_large_results_are_exact();
  test_empty_batch_writes_nothing();
  return test::finish();
}

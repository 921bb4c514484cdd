// Windows along one axis against their definition.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/pool/windows.h"
#include "tests/check.h"
#include "tests/elements.h"
#include "tests/window_definition.h"

namespace backops {
namespace {

using namespace test;

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

// Sources that belong to a target, found one by one: outputs that hold an input or, forward, inputs
// that an output holds.
std::vector<std::int64_t> sources_of(const Definition& d, bool forward, std::int64_t target) {
  std::vector<std::int64_t> result;
  for (std::int64_t s = 0; s < (forward ? d.in : d.out); ++s) {
    if (forward ? d.holds(target, s) : d.holds(s, target)) result.push_back(s);
  }
  return result;
}

void check_covers(const Definition& d, const AxisWindows& windows, bool forward) {
  std::int64_t longest = 0;
  bool once = true;
  Cover previous{0, 0};
  AxisWindows::Covers running(windows, 0);
  for (std::int64_t i = 0; i < windows.targets(); ++i, running.next()) {
    const std::vector<std::int64_t> sources = sources_of(d, forward, i);
    const auto count = static_cast<std::int64_t>(sources.size());
    const Cover cover = windows.cover(i);
    CHECK_EQUAL(cover.last - cover.first, count);
    if (count > 0) CHECK_EQUAL(cover.first, sources[0]);
    CHECK(running.get() == cover);
    CHECK(cover.first >= previous.first && cover.last >= previous.last);
    previous = cover;
    once &= count == 1 && cover.first - (i == 0 ? 0 : windows.cover(i - 1).first) <= 1;
    longest = std::max(longest, count);
  }
  CHECK(windows.longest_cover() >= longest);
  if (forward && !d.adaptive) {
    CHECK(windows.longest_cover() <= std::min(d.in, d.kernel));
    if (windows.covers_every_index_once()) CHECK(once);
    return;
  }
  // Of adaptive windows it is a bound, at most one too large: finding it exactly would take a loop.
  CHECK_EQUAL(std::max(windows.longest_cover() - (d.adaptive ? 1 : 0), longest), longest);
  CHECK_EQUAL(windows.covers_every_index_once(), once);
  CHECK_EQUAL(windows.is_constant(), windows.sources() == 1 && once);
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
  // Windows that lie on padding may be a few elements shorter than their bound.
  const std::int64_t slack = 2 + (d.adaptive ? 0 : 2 * d.padding + d.stride);
  for (std::int64_t count = 1; count <= windows.targets(); ++count) {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i + count <= windows.targets(); ++i) {
      most = std::max(most, windows.cover(i + count - 1).last - windows.cover(i).first);
    }
    const std::int64_t bound = windows.covers_of(count);
    const bool forward = windows.targets() == d.out;
    CHECK(bound >= most && bound <= windows.sources() && bound <= most + (forward ? slack : 2));
  }
}

void check_slide(const Definition& d, const AxisWindows& windows) {
  if (!d.adaptive) CHECK_EQUAL(windows.slides(), d.stride == 1);
  if (!windows.slides()) return;
  for (std::int64_t i = 0; i < windows.targets(); ++i) {
    const std::int64_t from = i - windows.slide_lead();
    const std::int64_t first = std::max<std::int64_t>(0, from);
    const std::int64_t last = std::min(windows.sources(), from + windows.slide_kernel());
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

// The same forward: one target further, the window of one stride further.
void check_forward_inside_repeats(const Definition& d, const AxisWindows& windows) {
  CHECK_EQUAL(windows.period(), d.adaptive ? 0 : 1);
  for (std::int64_t begin = 0; begin < d.out; ++begin) {
    for (std::int64_t end = begin + 1; end <= d.out; ++end) {
      if (!windows.is_inside(begin, end)) continue;
      CHECK(!d.adaptive);
      for (std::int64_t o = begin; o < end; ++o) {
        const std::int64_t first = o * d.stride - d.padding;
        CHECK(windows.cover(o) == (Cover{first, first + d.kernel}));
      }
    }
  }
}

void test_transposed_windows_follow_their_definition() {
  for (const Definition& d : small_definitions()) {
    const Situation here("forward %s", d.text().c_str());
    const AxisWindows windows = d.windows().transposed();
    CHECK_EQUAL(windows.targets(), d.out);
    CHECK_EQUAL(windows.sources(), d.in);
    check_covers(d, windows, true);
    check_divisors(d, windows);
    check_covers_of(d, windows);
    check_slide(d, windows);
    check_forward_inside_repeats(d, windows);
    const AxisWindows twice = windows.transposed();
    CHECK_EQUAL(twice.longest_cover(), d.windows().longest_cover());
    for (std::int64_t i = 0; i < d.in; ++i) CHECK(twice.cover(i) == d.windows().cover(i));
  }
}

void test_windows_follow_their_definition() {
  for (const Definition& d : small_definitions()) {
    const Situation here("%s", d.text().c_str());
    const AxisWindows windows = d.windows();
    CHECK_EQUAL(windows.in(), d.in);
    CHECK_EQUAL(windows.out(), d.out);
    CHECK_EQUAL(windows.targets(), d.in);
    CHECK_EQUAL(windows.sources(), d.out);
    check_covers(d, windows, false);
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
    const AxisWindows forward = windows.transposed();
    const std::int64_t first = std::max<std::int64_t>(0, d.out - 3000);
    AxisWindows::Covers windows_of(forward, first);
    for (std::int64_t o = first; o < d.out; ++o, windows_of.next()) {
      if (windows_of.get() == (Cover{d.begin(o), d.end(o)})) continue;
      CHECK_EQUAL(windows_of.get().first, d.begin(o));
      CHECK_EQUAL(windows_of.get().last, d.end(o));
    }
  }
}

}  // namespace
}  // namespace backops

int main() {
  using namespace backops;
  test_windows_follow_their_definition();
  test_transposed_windows_follow_their_definition();
  test_windows_beyond_32_bits();
  test_running_covers_far_out();
  return test::finish();
}

// Integer arithmetic that everything uses: whole parts, and even cuts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace backops {

constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -ceil_divide(-a, b);
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t to) { return ceil_divide(a, to) * to; }

constexpr std::size_t kLineBytes = 64;

// Buffers of a workspace start on cache lines.
constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

inline Range common(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// One of `count` nearly equal parts.
inline Range share_of(std::int64_t total, std::int64_t count, std::int64_t index) {
  return {index * total / count, (index + 1) * total / count};
}

// Calls body(range) for nearly equal parts of `whole`, none of more than `most`.
template <class Body>
void for_shares(const Range& whole, std::int64_t most, const Body& body) {
  const std::int64_t parts = ceil_divide(whole.size(), most);
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range own = share_of(whole.size(), parts, part);
    body(Range{whole.begin + own.begin, whole.begin + own.end});
  }
}

}  // namespace backops

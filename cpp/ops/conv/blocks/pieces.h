// Where rows of results are cut because other taps reach an output there: under long dilations,
// most taps of a column meet nothing but zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/conv/axes.h"

namespace backops {

// Whether a tap has an output for some of these columns, which are of one class.
inline bool reaches_output(const ConvAxis& a, const Range& columns, std::int64_t shift,
                           std::size_t plane) {
  return a.output_of(columns.end - 1) - shift >= 0 &&
         a.output_of(columns.begin) - shift < a.plane_size(plane);
}

class RowPieces {
 public:
  // One piece, unless several cost less.
  explicit RowPieces(const ConvAxis& axis) : pieces_{{0, axis.in}} {
    constexpr double kWorthIt = 0.95;
    if (axis.classes.size() != 1) return;
    const std::vector<Range> pieces = cut(axis);
    double all = 0;
    for (const Range& piece : pieces) all += cost(axis, piece);
    if (all < kWorthIt * cost(axis, pieces_.front())) pieces_ = pieces;
  }

  bool are_many() const { return pieces_.size() > 1; }
  std::vector<Range>::const_iterator begin() const { return pieces_.begin(); }
  std::vector<Range>::const_iterator end() const { return pieces_.end(); }

 private:
  // In products of a column and a tap. Sums of fewer columns would wait for each other; beginning
  // a piece costs something as well.
  static double cost(const ConvAxis& a, const Range& columns) {
    constexpr std::int64_t kLeastColumns = 4, kBeginning = 4;
    const ResidueClass& all = a.classes.front();
    std::int64_t taps = 0;
    for (std::size_t i = 0; i < all.taps.size(); ++i) {
      taps += reaches_output(a, columns, all.shifts[i], all.planes[i]) ? 1 : 0;
    }
    return static_cast<double>(taps * std::max(columns.size(), kLeastColumns) + kBeginning);
  }

  // Where taps change, but for pieces that are cheaper as one with the piece before.
  static std::vector<Range> cut(const ConvAxis& a) {
    const ResidueClass& all = a.classes.front();
    std::vector<std::int64_t> ends{a.in};
    for (std::size_t i = 0; i < all.taps.size(); ++i) {
      const std::int64_t first = all.shifts[i] - a.padding;
      for (const std::int64_t end : {first, first + a.plane_size(all.planes[i])}) {
        if (end > 0 && end < a.in) ends.push_back(end);
      }
    }
    std::sort(ends.begin(), ends.end());
    std::vector<Range> pieces;
    for (const std::int64_t end : ends) {
      const Range own{pieces.empty() ? 0 : pieces.back().end, end};
      if (own.size() <= 0) continue;
      const Range joined{pieces.empty() ? 0 : pieces.back().begin, end};
      if (!pieces.empty() && cost(a, joined) <= cost(a, pieces.back()) + cost(a, own)) {
        pieces.back() = joined;
      } else {
        pieces.push_back(own);
      }
    }
    return pieces;
  }

  std::vector<Range> pieces_;
};

}  // namespace backops

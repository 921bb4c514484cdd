#include "ops/pool/spread_table.h"

#include <algorithm>
#include <limits>

#include "base/ints.h"

namespace backops {

namespace {

constexpr std::int64_t kLargestDigit = kSpreadBase - 1;

// Columns of tiles that share no table, and tiles altogether.
constexpr std::int64_t kMostOwnColumns = std::int64_t{1} << 24;
constexpr std::int64_t kMostTiles = std::int64_t{1} << 24;

// More than so many permutations of two vectors are slower than a gather.
constexpr std::int64_t kMostSplits = 8;

bool tiles_share(const AxisWindows& axis, std::int64_t tile_columns) {
  return axis.period() > 0 && tile_columns % axis.period() == 0;
}

std::int64_t power(std::int64_t base, int exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

}  // namespace

int levels_for(std::int64_t longest, int base) {
  int levels = 1;
  for (; longest >= base; longest /= base) ++levels;
  return levels;
}

int base_for(std::int64_t kernel) {
  // Three sums of a base and up to two more elements need no level in memory; see slide_thrice().
  if (kernel >= 9 && kernel <= 20) return static_cast<int>(kernel / 3);
  int best = 0;
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (const int base : {3, 4, 5, 6}) {
    std::int64_t additions = 0;
    // A level costs its additions and about two more for its loads and stores.
    for (std::int64_t rest = kernel; rest > 0; rest /= base) {
      additions += rest % base + (rest >= base ? base + 1 : 0);
    }
    if (additions < fewest) {
      fewest = additions;
      best = base;
    }
  }
  return best;
}

// Covers of the lanes of one vector, counted from the first source of the tile.
struct SpreadTables::LaneCovers {
  std::vector<std::int64_t> first, count;
};

SpreadTables::SpreadTables(const AxisWindows& axis, std::int64_t tile_columns, int width,
                           int levels)
    : width_(width), levels_(levels) {
  // Terms of different levels are further apart where covers are of different lengths.
  const bool drifts = levels > 1 && axis.period() == 0;
  const std::int64_t span =
      axis.longest_step() * (width - 1) + 1 + (drifts ? axis.longest_cover() : 0);
  const std::int64_t splits = ceil_divide(span, 2 * width);
  if (splits <= kMostSplits) splits_ = splits;
  terms_per_vector_ = splits_ * (levels > 1 ? kLargestDigit * levels
                                            : std::max<std::int64_t>(1, axis.longest_cover()));
  const bool may_share = tiles_share(axis, tile_columns);
  std::int32_t shared = -1;
  for (std::int64_t begin = 0; begin < axis.targets(); begin += tile_columns) {
    const std::int64_t end = std::min(axis.targets(), begin + tile_columns);
    const bool inside = may_share && end - begin == tile_columns && axis.is_inside(begin, end);
    if (!inside || shared < 0) {
      entries_.push_back(build(axis, begin, end));
      if (inside) shared = static_cast<std::int32_t>(entries_.size()) - 1;
    }
    entry_of_tile_.push_back(inside ? shared : static_cast<std::int32_t>(entries_.size()) - 1);
  }
  pattern_numbers_.clear();
}

bool SpreadTables::are_small(const AxisWindows& axis, std::int64_t tile_columns) {
  if (!tiles_share(axis, tile_columns)) return axis.targets() <= kMostOwnColumns;
  return axis.targets() / tile_columns <= kMostTiles;
}

SpreadTable SpreadTables::table(std::int64_t tile) const {
  const Entry& entry =
      entries_[static_cast<std::size_t>(entry_of_tile_[static_cast<std::size_t>(tile)])];
  return {terms_.data() + entry.first_term,
          terms_per_vector_,
          splits_ > 1,
          patterns_.data(),
          entry.reach,
          entry.steady_begin,
          entry.steady_end,
          entry.steady_step};
}

SpreadTables::Entry SpreadTables::build(const AxisWindows& axis, std::int64_t begin,
                                        std::int64_t end) {
  Entry entry{terms_.size(), Reach::one_vector};
  const std::int64_t origin = axis.cover(begin).first;
  const std::size_t width = static_cast<std::size_t>(width_);
  for (std::int64_t v = 0; begin + v * width_ < end; ++v) {
    const std::int64_t at = begin + vector_begin(v, end - begin, width_);
    LaneCovers lanes{std::vector<std::int64_t>(width), std::vector<std::int64_t>(width)};
    AxisWindows::Covers own(axis, at);
    for (std::int64_t i = at; i < std::min(end, at + width_); ++i, own.next()) {
      const Cover cover = own.get();
      lanes.first[static_cast<std::size_t>(i - at)] = cover.first - origin;
      lanes.count[static_cast<std::size_t>(i - at)] = cover.last - cover.first;
    }
    add_vector(lanes, entry.reach);
  }
  find_steady_vectors(entry, (end - begin) / width_);
  return entry;
}

// Whether the vector whose terms start at `term` has those of the one before, `step` further on.
bool SpreadTables::follows(std::size_t term, std::int64_t step) const {
  for (std::size_t t = term; t < term + static_cast<std::size_t>(terms_per_vector_); ++t) {
    const SpreadTerm& now = terms_[t];
    const SpreadTerm& before = terms_[t - static_cast<std::size_t>(terms_per_vector_)];
    if (now.pattern != before.pattern || now.level != before.level || now.mask != before.mask ||
        now.offset - before.offset != step) {
      return false;
    }
  }
  return true;
}

// The longest row of such vectors: all but the first and the last where the stride divides a
// vector.
void SpreadTables::find_steady_vectors(Entry& entry, std::int64_t whole_vectors) const {
  const auto term_of = [&](std::int64_t vector) {
    return entry.first_term + static_cast<std::size_t>(vector * terms_per_vector_);
  };
  for (std::int64_t begin = 0; begin + 1 < whole_vectors;) {
    const std::int64_t step = terms_[term_of(begin + 1)].offset - terms_[term_of(begin)].offset;
    std::int64_t end = begin + 1;
    while (end < whole_vectors && follows(term_of(end), step)) ++end;
    if (end - begin > entry.steady_end - entry.steady_begin) {
      entry.steady_begin = begin;
      entry.steady_end = end;
      entry.steady_step = step;
    }
    begin = end;
  }
}

void SpreadTables::add_vector(const LaneCovers& lanes, Reach& reach) {
  std::vector<std::int64_t> position = lanes.first;
  for (std::int64_t t = 0; t < terms_per_vector_ / splits_; ++t) {
    const int level = levels_ > 1 ? levels_ - 1 - static_cast<int>(t / kLargestDigit) : 0;
    std::uint32_t mask = 0;
    for (std::size_t lane = 0; lane < position.size(); ++lane) {
      const std::int64_t count = lanes.count[lane];
      const bool has_term =
          levels_ > 1 ? t % kLargestDigit < count / power(kSpreadBase, level) % kSpreadBase
                      : t < count;
      if (has_term) mask |= 1u << lane;
    }
    split_term(position, mask, level, reach);
    for (std::size_t lane = 0; lane < position.size(); ++lane) {
      if ((mask >> lane & 1u) != 0) position[lane] += power(kSpreadBase, level);
    }
  }
}

// The lanes of each two vectors of sources in turn.
void SpreadTables::split_term(const std::vector<std::int64_t>& positions, std::uint32_t mask,
                              int level, Reach& reach) {
  if (splits_ == 1) return add_term(positions, mask, level, reach);
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (std::size_t lane = 0; lane < positions.size(); ++lane) {
    if ((mask >> lane & 1u) != 0) first = std::min(first, positions[lane]);
  }
  for (std::int64_t split = 0; split < splits_; ++split) {
    std::uint32_t own = 0;
    for (std::size_t lane = 0; lane < positions.size(); ++lane) {
      const bool has_term = (mask >> lane & 1u) != 0;
      const std::int64_t at = std::min(splits_ - 1, (positions[lane] - first) / (2 * width_));
      if (has_term && at == split) own |= 1u << lane;
    }
    add_term(positions, own, level, reach);
  }
}

void SpreadTables::add_term(const std::vector<std::int64_t>& positions, std::uint32_t mask,
                            int level, Reach& reach) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (std::size_t lane = 0; lane < positions.size(); ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    least = std::min(least, positions[lane]);
    most = std::max(most, positions[lane]);
  }
  if (mask == 0) least = most = 0;
  std::vector<std::int32_t> pattern(positions.size(), 0);
  for (std::size_t lane = 0; lane < positions.size(); ++lane) {
    if ((mask >> lane & 1u) != 0) {
      pattern[lane] = static_cast<std::int32_t>(positions[lane] - least);
    }
  }
  const std::int64_t span = most - least;
  const Reach needed = span < width_       ? Reach::one_vector
                       : span < 2 * width_ ? Reach::two_vectors
                                           : Reach::anywhere;
  reach = std::max(reach, needed);
  terms_.push_back({static_cast<std::int32_t>(least), pattern_number(pattern),
                    static_cast<std::uint16_t>(level), static_cast<std::uint16_t>(mask)});
}

std::uint32_t SpreadTables::pattern_number(const std::vector<std::int32_t>& pattern) {
  const auto found = pattern_numbers_.find(pattern);
  if (found != pattern_numbers_.end()) return found->second;
  const auto number = static_cast<std::uint32_t>(pattern_numbers_.size());
  patterns_.insert(patterns_.end(), pattern.begin(), pattern.end());
  pattern_numbers_.emplace(pattern, number);
  return number;
}

}  // namespace backops

// Tables for the spread kernel: for each vector of neighbouring targets, where on the row of
// sources its lanes find the terms of their sums.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/pool/pool.h"
#include "ops/pool/windows.h"

namespace backops {

// Covers longer than this are summed by their digits: a digit d of value base^l is d elements of
// level l (sums of base^l neighbours). Shorter ones are summed one by one.
constexpr std::int64_t kLongestDirectSpread = 8;

class SpreadTables {
 public:
  SpreadTables() = default;
  // One table for each tile of `tile_columns` indices, shared between tiles whose covers are the
  // same but for a shift. Offsets count from the first source the tile needs.
  // `levels` above 1: covers are summed by their digits, see kLongestDirectSpread.
  SpreadTables(const AxisWindows& axis, std::int64_t tile_columns, int width, int levels);

  // Whether the tables of an axis stay below 200 MB, and are made within a second or so.
  static bool are_small(const AxisWindows& axis, std::int64_t tile_columns);

  SpreadTable table(std::int64_t tile) const;
  std::size_t bytes() const {
    return terms_.size() * sizeof(SpreadTerm) + patterns_.size() * sizeof(std::int32_t) +
           entry_of_tile_.size() * sizeof(std::int32_t);
  }

 private:
  struct Entry {
    std::size_t first_term;
    Reach reach;
    std::int64_t steady_begin = 0, steady_end = 0, steady_step = 0;
  };
  struct LaneCovers;

  Entry build(const AxisWindows& axis, std::int64_t begin, std::int64_t end);
  void find_steady_vectors(Entry& entry, std::int64_t whole_vectors) const;
  bool follows(std::size_t term, std::int64_t step) const;
  void add_vector(const LaneCovers& lanes, Reach& reach);
  void split_term(const std::vector<std::int64_t>& positions, std::uint32_t mask, int level,
                  Reach& reach);
  void add_term(const std::vector<std::int64_t>& positions, std::uint32_t mask, int level,
                Reach& reach);
  std::uint32_t pattern_number(const std::vector<std::int32_t>& pattern);

  int width_ = 0;
  int levels_ = 1;
  std::int64_t splits_ = 1;  // entries of a term: each has the lanes within reach of two vectors
  std::int64_t terms_per_vector_ = 0;
  std::vector<SpreadTerm> terms_;
  std::vector<std::int32_t> patterns_;
  std::map<std::vector<std::int32_t>, std::uint32_t> pattern_numbers_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> entry_of_tile_;
};

constexpr int kSpreadBase = 4;

// Levels needed to sum runs of up to `longest` neighbours by their digits.
int levels_for(std::int64_t longest, int base);

// The base that needs the fewest additions for windows of `kernel` neighbours.
int base_for(std::int64_t kernel);

}  // namespace backops

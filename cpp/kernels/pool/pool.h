// The passes that pooling is made of, forward and backward. Each works on rows inside one tile and
// knows nothing of windows: a plan hands it runs of rows to add and tables of lanes to move.
//
// Every sum is taken in the same order by every instruction set, multiplication and addition are
// never fused, so results are bitwise the same. All pointers may be unaligned. Rows are written
// exactly: no byte beyond their last element changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/isa.h"

namespace backops {

// Rows [first, first + count) are added; the sum goes to rows [target, target + repeat).
struct Run {
  std::int64_t first, count, target, repeat;
};

// Runs longer than this are summed from partial sums of blocks, three additions per row whatever
// the run's length, unless they share so few rows that each is summed by itself.
constexpr std::int64_t kLongestDirectRun = 6;
// Columns that are summed at a time where runs are longer: fewer if their partial sums would leave
// the caches.
constexpr std::int64_t kMostBlockColumns = 64, kFewestBlockColumns = 16;
constexpr std::int64_t block_columns(std::int64_t block) {
  return block <= 1024 ? kMostBlockColumns : kFewestBlockColumns;
}

// target row = column_weights * sum over a run of (weight * source row). Where the target is sums,
// that of run r goes to row r alone, whatever the run says. Where it is elements, they are sums of
// sums that have been scaled already: neither scale nor column_weights is looked at.
struct CombineArgs {
  std::int64_t planes;
  const std::int64_t* source_offsets;  // bytes, one per plane
  const std::int64_t* target_offsets;
  const char* source;
  char* target;
  std::int64_t source_pitch_bytes, target_pitch_bytes;  // from row to row
  const Run* runs;
  std::int64_t run_count;
  double scale;                // weight of every row where weights is null
  const void* weights;         // in the type of the sums, one per source row
  const void* column_weights;  // in the type of the sums, one per column, or null
  // Where the target is elements: what their sums are multiplied by last, in the type of the sums.
  const void* run_factors;    // one per target row, or null
  const void* plane_factors;  // one per plane, or null
  std::int64_t columns;
  // For runs beyond kLongestDirectRun. Blocks are counted from row 0 of the whole axis, so that a
  // sum does not depend on the tile it is taken in.
  std::int64_t block;           // rows per block: the longest run of the axis; 0: no blocks
  std::int64_t first_row;       // number, on the whole axis, of source row 0
  std::int64_t axis_rows;       // rows of the whole axis
  void* scratch;                // block * block_columns(block) sums, unused where runs are short
  std::int64_t announce_bytes;  // how far ahead of its stores memory is asked for, 0: never
};

// Where the lanes of one target vector come from, for one term of its sum.
struct SpreadTerm {
  std::int32_t offset;    // element of the source row where lane 0's pattern starts
  std::uint32_t pattern;  // row of SpreadTable::patterns
  std::uint16_t level;    // sums of base^level neighbours
  std::uint16_t mask;     // lanes that have this term
};

enum class Reach : std::uint8_t { one_vector, two_vectors, anywhere };

// `terms` entries per target vector (see vector_begin), added in order.
struct SpreadTable {
  const SpreadTerm* terms;
  std::int64_t terms_per_vector;
  bool splits_terms;             // lanes of one term are spread over several entries
  const std::int32_t* patterns;  // `width` entries each: distance of a lane's source from `offset`
  Reach reach;                   // of the widest pattern
  // Vectors [steady_begin, steady_end) have the same terms but for offsets that grow by steady_step
  // from each to the next.
  std::int64_t steady_begin, steady_end, steady_step;
};

// Where vector v of a row begins: the last one overlaps the one before it rather than to be a part
// of a vector, unless that is all there is.
constexpr std::int64_t vector_begin(std::int64_t v, std::int64_t columns, std::int64_t width) {
  return v == 0 || (v + 1) * width <= columns ? v * width : columns - width;
}

// target[w] = sum of the source elements that the table names. Source rows lie one after another,
// one per run and plane (without gaps where levels are made); the row of run r goes to its targets.
struct SpreadArgs {
  std::int64_t planes;
  const std::int64_t* target_offsets;
  const char* source;
  char* target;
  std::int64_t source_pitch_bytes, target_pitch_bytes;
  const Run* runs;
  std::int64_t run_count;
  // What sums are multiplied by last, in their type.
  const void* row_factors;      // one per target row, or null
  const void* column_factors;   // one per target column, or null
  std::int64_t columns;         // of the target
  std::int64_t source_columns;  // readable elements of a source row
  const SpreadTable* table;     // spread only
  std::int64_t kernel;          // slide only: target[w] = source[w] + ... + source[w + kernel - 1]
  int base;                     // of levels, 3 to 6
  int levels;                   // partial sums to make: level l adds base^l neighbours
  std::int64_t level_rows;      // rows they are made for at once
  std::int64_t level_pitch;     // sums from one level to the next
  void* scratch;                // levels - 1 of them
  std::int64_t announce_bytes;  // as in CombineArgs
};

// Slides over more elements than this are made of levels.
constexpr std::int64_t kLongestDirectSlide = 8;

// One element per plane: the sum of all its elements, each multiplied by `scale` first.
struct TotalArgs {
  std::int64_t planes;
  const char* source;  // dense, one plane after another
  std::int64_t columns;
  double scale;
  void* sums;  // one per plane, in the type of the sums
};

struct PoolKernels {
  const char* name;  // pool_<dtype>_<isa>
  Isa isa;
  DType dtype;
  int width;                                   // sums of a vector
  void (*combine_source)(const CombineArgs&);  // tensor elements in, sums out
  void (*combine_sums)(const CombineArgs&);    // sums in, sums out
  void (*combine_target)(const CombineArgs&);  // sums in, tensor elements out
  void (*spread)(const SpreadArgs&);           // sums in, tensor elements out
  void (*slide)(const SpreadArgs&);
  void (*fill)(const SpreadArgs&);  // target[w] = source[0]
  void (*total)(const TotalArgs&);  // tensor elements in, sums out
};

// The kernels of `isa`, or of the next lower one that was built.
const PoolKernels& pool_kernels(Isa isa, DType dtype);

}  // namespace backops

// How the blocks engine cuts a problem into tiles whose tensors stay in the second-level cache.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/conv_engine.h"
#include "ops/lane_geometry.h"

namespace backops {

// One of `count` nearly equal parts.
inline Range share_of(std::int64_t total, std::int64_t count, std::int64_t index) {
  return {index * total / count, (index + 1) * total / count};
}

// Positions of a tensor that lie in scratch memory, and where.
struct Box {
  Range images, axes[kMaxConvRank];
  std::int64_t image_step, step[kMaxConvRank];  // places between neighbours

  std::int64_t place(std::int64_t image, std::int64_t d, std::int64_t h, std::int64_t w) const {
    return (image - images.begin) * image_step + (d - axes[0].begin) * step[0] +
           (h - axes[1].begin) * step[1] + (w - axes[2].begin) * step[2];
  }
  std::int64_t positions() const {
    return images.size() * axes[0].size() * axes[1].size() * axes[2].size();
  }
  bool has_gaps() const {  // between its positions in scratch memory
    const std::int64_t row = axes[2].size(), slice = axes[1].size() * row;
    return step[1] != row || (axes[0].size() > 1 && step[0] != slice) ||
           (images.size() > 1 && image_step != axes[0].size() * slice);
  }
};

// Calls body(image, d, h).
template <class Body>
void for_rows(const Range& images, const Range (&axes)[kMaxConvRank], const Body& body) {
  for (std::int64_t image = images.begin; image < images.end; ++image) {
    for (std::int64_t d = axes[0].begin; d < axes[0].end; ++d) {
      for (std::int64_t h = axes[1].begin; h < axes[1].end; ++h) body(image, d, h);
    }
  }
}

struct Tile {
  Range images;
  Range outputs[kMaxConvRank];  // whose products with the input are summed
  Box grad;                     // of grad_output; reaches beyond it, where there are zeros
  Box input;
  Box results;  // of grad_input, finished by this tile
};

// The same tile as one row, if there are no gaps in it; for kernels of one tap, to which rows and
// images mean nothing.
Tile in_one_row(const Tile& tile);

// Numbers that a position needs in scratch memory.
struct TileSums {
  std::int64_t grad, input, result;
};

class BlockTiles {
 public:
  // As large as `most_sums` allow, and at least as many as are asked for, if possible. Without
  // results, nothing lies around grad_output.
  BlockTiles(const ConvShape& shape, bool has_results, const TileSums& per_position,
             double most_sums, std::int64_t least_tiles);

  bool fit() const { return fit_; }  // false if even the smallest tile is larger
  std::int64_t count() const;
  Tile tile(std::int64_t index) const;

  std::int64_t grad_places() const { return images_ * grad_.places(); }
  std::int64_t input_places() const { return images_ * input_.places(); }
  std::int64_t result_places() const { return images_ * result_.places(); }

 private:
  // The largest that a box of one image is.
  struct BoxSize {
    std::int64_t axes[kMaxConvRank];
    std::int64_t places() const { return axes[0] * axes[1] * axes[2]; }
    double sums(std::int64_t per_position) const;
  };
  struct AxisRanges {
    Range outputs, grad, input, results;
  };

  const LaneAxis& axis(int index) const { return axes_[static_cast<std::size_t>(index)]; }
  std::int64_t pieces(int index) const {
    return (axis(index).out + outputs_[index] - 1) / outputs_[index];
  }
  AxisRanges ranges(int index, std::int64_t piece) const;
  void measure(int index);
  void cut(const TileSums& per_position, double most, std::int64_t least_tiles);

  bool has_results_;
  std::int64_t batch_, images_ = 1;
  std::vector<LaneAxis> axes_;
  std::int64_t outputs_[kMaxConvRank];
  BoxSize grad_{}, input_{}, result_{};
  bool fit_ = true;
};

}  // namespace backops

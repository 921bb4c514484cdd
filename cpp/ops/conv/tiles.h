// How a problem is cut into tiles whose tensors stay in a cache, if that is possible.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ints.h"
#include "ops/conv/axes.h"
#include "ops/conv/shape.h"

namespace backops {

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
  Box output;                   // its rows reach beyond the tensor, where there are zeros
  Box input;
  Box results;  // of the input product, finished by this tile
};

// The same tile as one row, if there are no gaps in it; for kernels of one tap, to which rows and
// images mean nothing.
Tile in_one_row(const Tile& tile);

// What tiles are made of.
struct TileNeeds {
  std::int64_t output, input, result;  // numbers that a position needs in scratch memory
  bool makes_input;                    // else nothing lies around `output`
  bool pads_input;                     // zeros lie around the input
  bool by_results = false;  // tiles have as many results each, not as many outputs; for those alone
};

class ConvTiles {
 public:
  // As large as `most_sums` allow, and at least as many as are asked for, if possible.
  ConvTiles(const ConvShape& shape, const TileNeeds& needs, double most_sums,
            std::int64_t least_tiles);

  bool fit() const { return fit_; }  // false if even the smallest tile is larger
  // Numbers of all tiles together, over those of the tensors: what neighbours share is counted
  // twice.
  double overlap() const;
  std::int64_t count() const;
  Tile tile(std::int64_t index) const;

  std::int64_t output_places() const { return images_ * output_.places(); }
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
    Range outputs, output, input, results;
  };

  const ConvAxis& axis(int index) const { return axes_[static_cast<std::size_t>(index)]; }
  // What an axis is cut into pieces of: outputs, or results, as many as lie a stride apart.
  std::int64_t size(int index) const {
    return needs_.by_results ? ceil_divide(axis(index).in, axis(index).stride) : axis(index).out;
  }
  std::int64_t pieces(int index) const { return ceil_divide(size(index), own_[index]); }
  AxisRanges ranges(int index, std::int64_t piece) const;
  AxisRanges ranges_of_results(int index, std::int64_t piece) const;
  void measure(int index);
  void measure_results(int index);
  // Of these, those that lie in scratch memory.
  std::int64_t most_outputs(int index, std::int64_t reached) const;
  void cut(double most, std::int64_t least_tiles);

  TileNeeds needs_;
  std::int64_t batch_, images_ = 1;
  std::vector<ConvAxis> axes_;
  std::int64_t own_[kMaxConvRank];  // of a piece
  BoxSize output_{}, input_{}, result_{};
  bool fit_ = true;
};

// How far tiles may grow beyond `share_bytes` of a cache: up to what so many workers can afford.
double most_growth(double share_bytes, std::int64_t workers);

// Tiles of `most_sums`, which are a share of a cache. Where tiles would have half as many numbers
// again as the tensors, because neighbours share them, they are larger: a slower cache costs less
// than bringing numbers many times.
ConvTiles tiles_of(const ConvShape& shape, const TileNeeds& needs, double most_sums,
                   double most_growth, std::int64_t least_tiles);

}  // namespace backops

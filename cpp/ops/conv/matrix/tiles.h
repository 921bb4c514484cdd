// Convolutions as the matrix engine sees them. Input positions a stride apart, from the same
// remainder on, are one plane; a tap then joins each output with the position of one plane that
// lies a fixed shift further on. If planes and `output` have rows of the same length, with zeros
// around, this holds of all positions of a tile as if they were one row. In a turned problem it is
// `output` that has planes, those of OutputPlanes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ints.h"
#include "ops/conv/axes.h"
#include "ops/conv/shape.h"
#include "ops/conv/tiles.h"

namespace backops {

// Along one axis, tap t joins output o of its plane with the input at (o + shift) * stride +
// remainder. Only the input or the output has several planes.
struct MatrixAxis {
  MatrixAxis(const ConvShape& shape, int axis);

  struct Tap {
    std::int64_t remainder, shift;
    std::size_t output_plane;
  };
  // Of one tile, in positions of planes.
  struct Section {
    Range outputs;   // whose products with the input are summed
    Range results;   // finished by the tile
    Range reaching;  // outputs that reach the results, or are its own
    Range all;       // whatever is joined
  };

  std::int64_t plane_size(std::int64_t remainder) const;  // positions inside the input
  Section section(const Range& outputs, bool has_results) const;

  std::int64_t in, out, stride;  // as in ConvAxis
  std::vector<Tap> taps;
  std::int64_t least_shift, most_shift;

 private:
  void turn(const ConvAxis& own);
};

struct MatrixTile {
  Range images;
  MatrixAxis::Section axes[kMaxConvRank];
  std::int64_t image_step, step[kMaxConvRank];  // places between neighbours

  std::int64_t place(std::int64_t image, std::int64_t d, std::int64_t h, std::int64_t w) const {
    return (image - images.begin) * image_step + (d - axes[0].all.begin) * step[0] +
           (h - axes[1].all.begin) * step[1] + (w - axes[2].all.begin) * step[2];
  }
  // Places from the first to the last one of a range along each axis.
  Range span(Range MatrixAxis::Section::* range) const;
  bool has_results() const;
};

class MatrixTiles {
 public:
  // As large as `most_places` allow, and at least as many as are asked for, if possible.
  MatrixTiles(const ConvShape& shape, double most_places, std::int64_t least_tiles);

  bool fit() const { return fit_; }
  std::int64_t count() const;
  std::int64_t of_image() const { return sections(0) * sections(1) * sections(2); }
  MatrixTile tile(std::int64_t index) const;
  std::int64_t places() const { return places_; }  // of the largest tile
  std::int64_t shift(const MatrixAxis::Tap& d, const MatrixAxis::Tap& h,
                     const MatrixAxis::Tap& w) const {
    return d.shift * step_[0] + h.shift * step_[1] + w.shift * step_[2];
  }
  const MatrixAxis& axis(int index) const { return axes_[static_cast<std::size_t>(index)]; }

 private:
  std::int64_t sections(int index) const { return ceil_divide(axis(index).out, outputs_[index]); }
  MatrixAxis::Section section(int index, std::int64_t number) const;
  std::int64_t shared_zeros(int index) const;
  std::int64_t extent(int index) const;
  double image_places() const;
  bool are_better_alone() const;
  void cut(double most_places, std::int64_t least_tiles);

  bool has_results_;
  std::int64_t batch_, images_ = 1;
  std::vector<MatrixAxis> axes_;
  std::int64_t outputs_[kMaxConvRank];
  std::int64_t image_step_ = 0, step_[kMaxConvRank] = {}, places_ = 0;
  bool fit_ = true;
};

}  // namespace backops

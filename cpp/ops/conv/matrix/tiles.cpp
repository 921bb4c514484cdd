#include "ops/conv/matrix/tiles.h"

#include <algorithm>

namespace backops {
namespace {

constexpr std::int64_t kMostTiles = 10000;  // of an image, each of which is looked at

}  // namespace

MatrixAxis::MatrixAxis(const ConvShape& shape, int axis)
    : in(shape.in[axis]), out(shape.out[axis]), stride(shape.stride[axis]) {
  for (std::int64_t tap = 0; tap < shape.kernel[axis]; ++tap) {
    const std::int64_t offset = tap * shape.dilation[axis] - shape.padding[axis];
    const std::int64_t remainder = (offset % stride + stride) % stride;
    taps.push_back({remainder, (offset - remainder) / stride, 0});
  }
  if (shape.is_turned) turn(ConvAxis(shape, axis));
  const auto [least, most] = std::minmax_element(
      taps.begin(), taps.end(), [](const Tap& a, const Tap& b) { return a.shift < b.shift; });
  least_shift = least->shift;
  most_shift = most->shift;
}

void MatrixAxis::turn(const ConvAxis& own) {
  out = own.out;
  stride = own.stride;
  const ResidueClass& all = own.classes.front();
  for (std::size_t i = 0; i < all.taps.size(); ++i) {
    taps[static_cast<std::size_t>(all.taps[i])] = {0, all.shifts[i] - own.padding, all.planes[i]};
  }
}

std::int64_t MatrixAxis::plane_size(std::int64_t remainder) const {
  return remainder < in ? (in - remainder - 1) / stride + 1 : 0;
}

MatrixAxis::Section MatrixAxis::section(const Range& outputs, bool has_results) const {
  const std::int64_t size = plane_size(0);
  const auto first_result = [&](std::int64_t output) {
    return std::clamp<std::int64_t>(output + least_shift, 0, size);
  };
  Section p{outputs, {0, 0}, outputs, {0, 0}};
  p.all = {std::min(outputs.begin, outputs.begin + least_shift),
           std::max(outputs.end, outputs.end + most_shift)};
  if (!has_results) return p;
  p.results = {outputs.begin == 0 ? 0 : first_result(outputs.begin),
               outputs.end == out ? size : first_result(outputs.end)};
  if (p.results.size() == 0) return p;
  p.reaching = {std::min(outputs.begin, p.results.begin - most_shift),
                std::max(outputs.end, p.results.end - least_shift)};
  p.all = {std::min({p.all.begin, p.reaching.begin, p.results.begin}),
           std::max({p.all.end, p.reaching.end, p.results.end})};
  return p;
}

Range MatrixTile::span(Range MatrixAxis::Section::* range) const {
  const Range &d = axes[0].*range, &h = axes[1].*range, &w = axes[2].*range;
  return {place(images.begin, d.begin, h.begin, w.begin),
          place(images.end - 1, d.end - 1, h.end - 1, w.end - 1) + 1};
}

bool MatrixTile::has_results() const {
  return std::all_of(axes, axes + kMaxConvRank,
                     [](const MatrixAxis::Section& p) { return p.results.size() > 0; });
}

MatrixTiles::MatrixTiles(const ConvShape& shape, double most_places, std::int64_t least_tiles)
    : has_results_(shape.makes_input), batch_(shape.batch) {
  for (int index = 0; index < kMaxConvRank; ++index) {
    axes_.emplace_back(shape, index);
    outputs_[index] = axis(index).out;
  }
  cut(most_places, least_tiles);
  if (!fit_) return;
  step_[2] = 1;
  step_[1] = extent(2);
  step_[0] = step_[1] * extent(1);
  image_step_ = step_[0] * extent(0);
  places_ = images_ * image_step_;
  for (int index = 0; index < kMaxConvRank; ++index) places_ += shared_zeros(index) * step_[index];
}

// Images that do not fit are cut along their first axis, and only if a section of that is one
// output along the next: the outputs of a tile are then neighbours. Of small images several are
// taken together.
void MatrixTiles::cut(double most_places, std::int64_t least_tiles) {
  const auto are_uneven = [&] {
    return count() < least_tiles || (count() < 4 * least_tiles && count() % least_tiles != 0);
  };
  for (int index = 0; index < kMaxConvRank; ++index) {
    while ((image_places() > most_places || are_uneven()) && outputs_[index] > 1) {
      const double wanted = static_cast<double>(sections(index)) * image_places() / most_places;
      const std::int64_t more = std::max(
          sections(index) + 1,
          static_cast<std::int64_t>(std::min(wanted, static_cast<double>(axis(index).out))));
      outputs_[index] = std::min(ceil_divide(axis(index).out, more), outputs_[index] - 1);
    }
  }
  fit_ = image_places() <= most_places && of_image() <= kMostTiles;
  if (!fit_ || of_image() > 1 || are_better_alone()) return;
  const auto fitting =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(most_places / image_places()));
  const std::int64_t share = std::max<std::int64_t>(1, batch_ / least_tiles);
  const std::int64_t tiles = ceil_divide(share, fitting);
  images_ = ceil_divide(share, tiles);
}

// Whether the zeros between images cost a weight product more than beginning anew with each.
bool MatrixTiles::are_better_alone() const {
  constexpr double kBeginning = 6;  // places
  const auto out = [this](int index) { return static_cast<double>(axis(index).out - 1); };
  const auto size = [this](int index) { return static_cast<double>(extent(index)); };
  const double own = (out(0) * size(1) + out(1)) * size(2) + out(2) + 1;
  return !has_results_ && own + kBeginning < image_places();
}

MatrixAxis::Section MatrixTiles::section(int index, std::int64_t number) const {
  const std::int64_t own = outputs_[index];
  return axis(index).section({number * own, std::min((number + 1) * own, axis(index).out)},
                             has_results_);
}

// Zeros behind one row are those before the next, if the tile has all of an axis.
std::int64_t MatrixTiles::shared_zeros(int index) const {
  if (sections(index) > 1) return 0;
  const Range all = section(index, 0).all;
  const std::int64_t numbers = std::max(axis(index).out, axis(index).plane_size(0));
  return std::max<std::int64_t>(0, std::min(-all.begin, all.end - numbers));
}

std::int64_t MatrixTiles::extent(int index) const {
  const std::int64_t count = sections(index);
  const std::int64_t most =
      std::max(section(index, 0).all.size(), section(index, count - 1).all.size()) -
      shared_zeros(index);
  if (count <= 2) return most;
  // Sections between them end inside the input, or are smaller.
  const MatrixAxis& a = axis(index);
  const std::int64_t begin =
      std::min({std::int64_t{0}, a.least_shift, a.least_shift - a.most_shift});
  return std::max(most, outputs_[index] + std::max<std::int64_t>(0, a.most_shift) - begin);
}

double MatrixTiles::image_places() const {
  return static_cast<double>(extent(0)) * static_cast<double>(extent(1)) *
         static_cast<double>(extent(2));
}

std::int64_t MatrixTiles::count() const { return ceil_divide(batch_, images_) * of_image(); }

MatrixTile MatrixTiles::tile(std::int64_t index) const {
  MatrixTile t{};
  for (int axis = kMaxConvRank - 1; axis >= 0; --axis) {
    t.axes[axis] = section(axis, index % sections(axis));
    t.step[axis] = step_[axis];
    index /= sections(axis);
  }
  t.images = {index * images_, std::min((index + 1) * images_, batch_)};
  t.image_step = image_step_;
  return t;
}

}  // namespace backops

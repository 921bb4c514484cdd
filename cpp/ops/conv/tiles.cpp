#include "ops/conv/tiles.h"

#include <algorithm>

namespace backops {

namespace {

// Its zeros lie between columns that are multiplied. Rows of zeros are left out of all products.
constexpr int kRowAxis = kMaxConvRank - 1;

Range inside_of(const Range& range, std::int64_t size) {
  const std::int64_t begin = std::clamp<std::int64_t>(range.begin, 0, size);
  return {begin, std::clamp(range.end, begin, size)};
}

}  // namespace

ConvTiles::ConvTiles(const ConvShape& shape, const TileNeeds& needs, double most_sums,
                     std::int64_t least_tiles)
    : needs_(needs), batch_(shape.batch) {
  for (int index = 0; index < kMaxConvRank; ++index) {
    axes_.emplace_back(shape, index);
    own_[index] = size(index);
    measure(index);
  }
  cut(most_sums, least_tiles);
}

double ConvTiles::BoxSize::sums(std::int64_t per_position) const {
  return static_cast<double>(axes[0]) * static_cast<double>(axes[1]) *
         static_cast<double>(axes[2]) * static_cast<double>(per_position);
}

// Images that do not fit are cut along their first axis, then along the next; of small ones several
// are taken together. An axis along which neighbours share nothing comes before one where they do.
void ConvTiles::cut(double most, std::int64_t least_tiles) {
  const auto sums = [&] {
    return output_.sums(needs_.output) + input_.sums(needs_.input) + result_.sums(needs_.result);
  };
  // Few tiles that the tasks cannot share evenly would leave some of them waiting.
  const auto are_uneven = [&] {
    return count() < least_tiles || (count() < 4 * least_tiles && count() % least_tiles != 0);
  };
  const bool is_second_better = axis(0).most_shift > 0 && axis(1).most_shift == 0;
  for (int i = 0; i < kMaxConvRank; ++i) {
    const int index = i < 2 && is_second_better ? 1 - i : i;
    while ((sums() > most || are_uneven()) && own_[index] > 1) {
      // Halves of a piece need more than half of its memory, so this is never too many.
      const double wanted = static_cast<double>(pieces(index)) * sums() / most;
      const std::int64_t more =
          std::max(pieces(index) + 1,
                   static_cast<std::int64_t>(std::min(wanted, static_cast<double>(size(index)))));
      own_[index] = std::min(ceil_divide(size(index), more), own_[index] - 1);
      measure(index);
    }
  }
  fit_ = sums() <= most;
  if (pieces(0) * pieces(1) * pieces(2) > 1) return;
  // As many as fit, in tiles of the same size.
  const auto fitting = std::max<std::int64_t>(1, static_cast<std::int64_t>(most / sums()));
  const std::int64_t share = std::max<std::int64_t>(1, batch_ / least_tiles);
  const std::int64_t tiles = ceil_divide(share, fitting);
  images_ = ceil_divide(share, tiles);
}

double ConvTiles::overlap() const {
  const auto positions = [&](std::int64_t ConvAxis::* size) {
    return static_cast<double>(axis(0).*size) * static_cast<double>(axis(1).*size) *
           static_cast<double>(axis(2).*size);
  };
  const double tensors = positions(&ConvAxis::out) * static_cast<double>(needs_.output) +
                         positions(&ConvAxis::in) * static_cast<double>(needs_.input);
  const double tile = output_.sums(needs_.output) + input_.sums(needs_.input);
  const double of_image =
      static_cast<double>(pieces(0) * pieces(1)) * static_cast<double>(pieces(2));
  return of_image * tile / tensors;
}

double most_growth(double share_bytes, std::int64_t workers) {
  constexpr double kMostBytes = 256e6;  // that callers keep for the next call
  return std::clamp(kMostBytes / (share_bytes * static_cast<double>(workers)), 1.0, 64.0);
}

ConvTiles tiles_of(const ConvShape& shape, const TileNeeds& needs, double most_sums,
                   double most_growth, std::int64_t least_tiles) {
  constexpr double kMostOverlap = 1.5, kWorthIt = 0.9;
  ConvTiles best(shape, needs, most_sums, least_tiles);
  for (double growth = 2; growth <= most_growth; growth *= 2) {
    if (best.fit() && best.overlap() <= kMostOverlap) break;
    ConvTiles larger(shape, needs, growth * most_sums, least_tiles);
    if (!best.fit() || larger.overlap() < kWorthIt * best.overlap()) best = larger;
  }
  return best;
}

std::int64_t ConvTiles::count() const {
  return ceil_divide(batch_, images_) * pieces(0) * pieces(1) * pieces(2);
}

ConvTiles::AxisRanges ConvTiles::ranges(int index, std::int64_t piece) const {
  if (needs_.by_results) return ranges_of_results(index, piece);
  const ConvAxis& a = axis(index);
  AxisRanges r{};
  r.outputs = {piece * own_[index], std::min((piece + 1) * own_[index], a.out)};
  const bool is_first = piece == 0, is_last = r.outputs.end == a.out;
  const auto inside = [&](std::int64_t i) { return std::clamp<std::int64_t>(i, 0, a.in); };
  const std::int64_t window = r.outputs.begin * a.stride - a.padding;
  const std::int64_t next_window = r.outputs.end * a.stride - a.padding;
  r.input = {window, next_window - a.stride + a.reach + 1};
  if (!needs_.pads_input) r.input = {inside(r.input.begin), inside(r.input.end)};
  if (!needs_.makes_input) {
    r.output = r.outputs;
    return r;
  }
  // Results are those around the middle of the windows, so that the first tile and the last have
  // as many as each other. They need some outputs of the next tile then, and fewer of the last.
  const std::int64_t ahead = std::max<std::int64_t>(0, a.reach + 1 - a.stride) / 2 / a.stride;
  r.results = {is_first ? 0 : inside(window + ahead * a.stride),
               is_last ? a.in : inside(next_window + ahead * a.stride)};
  r.output.begin = is_first ? std::min<std::int64_t>(0, a.output_of(0) - a.most_shift)
                            : r.outputs.begin + ahead - a.most_shift;
  r.output.end = is_last ? std::max(a.out, a.output_of(a.in - 1) + 1) : r.outputs.end + ahead;
  if (index != kRowAxis) r.output = inside_of(r.output, a.out);
  return r;
}

// The outputs are those that taps reach.
ConvTiles::AxisRanges ConvTiles::ranges_of_results(int index, std::int64_t piece) const {
  const ConvAxis& a = axis(index);
  const Range own = share_of(size(index), pieces(index), piece);
  AxisRanges r{};
  r.results = {own.begin * a.stride, std::min(own.end * a.stride, a.in)};
  const Range reached{a.output_of(r.results.begin), a.output_of(r.results.end - 1) + 1};
  r.output = {reached.begin - a.most_shift, reached.end};
  if (index != kRowAxis) r.output = inside_of(r.output, a.out);
  r.outputs = common(reached, {0, a.out});
  return r;
}

// Pieces between the first and the last are alike, or smaller.
void ConvTiles::measure(int index) {
  if (needs_.by_results) return measure_results(index);
  const AxisRanges first = ranges(index, 0), last = ranges(index, pieces(index) - 1);
  std::int64_t& output = output_.axes[index];
  std::int64_t& input = input_.axes[index];
  std::int64_t& result = result_.axes[index];
  output = std::max(first.output.size(), last.output.size());
  input = std::max<std::int64_t>({1, first.input.size(), last.input.size()});
  result = std::max<std::int64_t>({1, first.results.size(), last.results.size()});
  if (pieces(index) <= 2) return;
  const ConvAxis& a = axis(index);
  const std::int64_t own = own_[index];
  output = std::max(output, most_outputs(index, own + (needs_.makes_input ? a.most_shift : 0)));
  const std::int64_t windows = (own - 1) * a.stride + a.reach + 1;
  input = std::max(input, needs_.pads_input ? windows : std::min(windows, a.in));
  result = std::max(result, std::min(own * a.stride, a.in));
}

std::int64_t ConvTiles::most_outputs(int index, std::int64_t reached) const {
  return index == kRowAxis ? reached : std::min(reached, axis(index).out);
}

void ConvTiles::measure_results(int index) {
  const ConvAxis& a = axis(index);
  const std::int64_t own = ceil_divide(size(index), pieces(index));
  const std::int64_t reached = own + (a.padding % a.stride == 0 ? 0 : 1);
  output_.axes[index] = most_outputs(index, reached + a.most_shift);
  input_.axes[index] = 1;
  result_.axes[index] = std::min(own * a.stride, a.in);
}

Tile ConvTiles::tile(std::int64_t index) const {
  Tile t{};
  const auto set = [](Box& box, int axis, const Range& range, const BoxSize& size) {
    box.axes[axis] = range;
    box.step[axis] = axis + 1 < kMaxConvRank ? box.step[axis + 1] * size.axes[axis + 1] : 1;
  };
  for (int axis = kMaxConvRank - 1; axis >= 0; --axis) {
    const AxisRanges r = ranges(axis, index % pieces(axis));
    index /= pieces(axis);
    t.outputs[axis] = r.outputs;
    set(t.output, axis, r.output, output_);
    set(t.input, axis, r.input, input_);
    set(t.results, axis, r.results, result_);
  }
  t.images = {index * images_, std::min((index + 1) * images_, batch_)};
  t.output.images = t.input.images = t.results.images = t.images;
  t.output.image_step = output_.places();
  t.input.image_step = input_.places();
  t.results.image_step = result_.places();
  return t;
}

Tile in_one_row(const Tile& tile) {
  if (tile.output.has_gaps()) return tile;
  const Range axes[kMaxConvRank] = {{0, 1}, {0, 1}, {0, tile.output.positions()}};
  Tile one = tile;
  one.images = {0, 1};
  std::copy(axes, axes + kMaxConvRank, one.outputs);
  for (Box* own : {&one.output, &one.input, &one.results}) {
    own->images = one.images;
    std::copy(axes, axes + kMaxConvRank, own->axes);
  }
  return one;
}

}  // namespace backops

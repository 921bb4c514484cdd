// The taps that reach an input position, where each lane of a vector is a group, and outputs lie in
// scratch memory with zeros around them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv.h"
#include "ops/conv/axes.h"
#include "ops/conv/tiles.h"

namespace backops {

class GroupTaps {
 public:
  GroupTaps() = default;
  // Outputs of a group lie `volume` apart, those of the next plane behind them, positions as in
  // `box`, vectors are `width` wide.
  GroupTaps(const ConvShape& s, const Box& box, std::int64_t outputs, std::int64_t volume,
            std::int64_t width)
      : width_(width) {
    const OutputPlanes planes(s);
    for (int axis = 0; axis < kMaxConvRank; ++axis) axes_.emplace_back(s, axis);
    for (const ResidueClass& d : axes_[0].classes) {
      for (const ResidueClass& h : axes_[1].classes) {
        for (const ResidueClass& w : axes_[2].classes) {
          firsts_.push_back(taps_.size());
          for (std::int64_t o = 0; o < outputs; ++o) {
            list(s, box, planes, d, h, w, o, outputs, volume);
          }
        }
      }
    }
    firsts_.push_back(taps_.size());
    for (std::size_t i = 1; i < firsts_.size(); ++i) {
      most_ = std::max(most_, firsts_[i] - firsts_[i - 1]);
    }
  }

  const ConvAxis& axis(int index) const { return axes_[static_cast<std::size_t>(index)]; }

  // From the output of a position on.
  struct List {
    const GatherTap* taps;
    std::int64_t count;
  };
  // Taps whose row of outputs is not there are left out: those that are go to `kept`, which has
  // room for most() of them.
  List of(std::int64_t d, std::int64_t h, std::int64_t w, GatherTap* kept) const {
    const std::size_t own = class_of(d, h, w);
    const std::size_t first = firsts_[own], end = firsts_[own + 1];
    if (axis(0).has_all_outputs(d) && axis(1).has_all_outputs(h)) {
      return {taps_.data() + first, static_cast<std::int64_t>(end - first)};
    }
    const std::size_t row =
        axis(2).classes[static_cast<std::size_t>(axis(2).class_of(w))].taps.size();
    GatherTap* to = kept;
    for (std::size_t t = first; t < end; t += row) {
      if (has_row(t, d, h)) to = std::copy_n(taps_.data() + t, row, to);
    }
    return {kept, to - kept};
  }
  std::size_t most() const { return most_; }

  // For weights that are not finite, which must not meet the zeros around outputs: position by
  // position, tap by tap, where there is an output.
  struct Row {
    std::int64_t d, h;
    const Range& columns;
  };
  template <class Sum>
  void write_carefully(const Sum* output, const Sum* weights, const Sum* bias,
                       const LaneGroups& groups, const Row& row, Sum* to) const {
    for (std::int64_t w = row.columns.begin; w < row.columns.end; ++w, to += width_) {
      for (std::int64_t lane = 0; lane < width_; ++lane) {
        to[lane] = bias == nullptr ? Sum{0} : bias[lane];
      }
      const Sum* const from = output + axis(2).output_of(w) * width_;
      const std::size_t own = class_of(row.d, row.h, w);
      for (std::size_t t = firsts_[own]; t < firsts_[own + 1]; ++t) {
        if (!has_row(t, row.d, row.h) ||
            !axis(2).has_output(w, places_[t].shift[2], places_[t].plane[2])) {
          continue;
        }
        add_tap(from + taps_[t].source, weights + taps_[t].weight, groups, to);
      }
    }
  }

 private:
  // Of a tap along each axis.
  struct Place {
    std::int64_t shift[kMaxConvRank];
    std::size_t plane[kMaxConvRank];
  };

  template <class Sum>
  void add_tap(const Sum* from, const Sum* weights, const LaneGroups& groups, Sum* to) const {
    for (std::int64_t k = 0; k < std::max(1, groups.count); ++k) {
      for (std::int64_t lane = 0; lane < width_; ++lane) {
        const std::int64_t own = groups.count == 0 ? lane : groups.patterns[k * width_ + lane];
        to[lane] += weights[k * groups.pitch + lane] * from[own];
      }
    }
  }

  bool has_row(std::size_t tap, std::int64_t d, std::int64_t h) const {
    const Place& own = places_[tap];
    return axis(0).has_output(d, own.shift[0], own.plane[0]) &&
           axis(1).has_output(h, own.shift[1], own.plane[1]);
  }

  std::size_t class_of(std::int64_t d, std::int64_t h, std::int64_t w) const {
    std::size_t own = 0;
    const std::int64_t at[] = {d, h, w};
    for (int index = 0; index < kMaxConvRank; ++index) {
      own = own * axis(index).classes.size() +
            static_cast<std::size_t>(axis(index).class_of(at[index]));
    }
    return own;
  }

  void list(const ConvShape& s, const Box& box, const OutputPlanes& planes, const ResidueClass& d,
            const ResidueClass& h, const ResidueClass& w, std::int64_t output, std::int64_t outputs,
            std::int64_t volume) {
    const std::int64_t weight = output * s.group_inputs() * s.taps();
    for (std::size_t i = 0; i < d.taps.size(); ++i) {
      for (std::size_t j = 0; j < h.taps.size(); ++j) {
        for (std::size_t k = 0; k < w.taps.size(); ++k) {
          const std::int64_t tap = (d.taps[i] * s.kernel[1] + h.taps[j]) * s.kernel[2] + w.taps[k];
          const std::int64_t back =
              d.shifts[i] * box.step[0] + h.shifts[j] * box.step[1] + w.shifts[k];
          const std::int64_t plane = planes.index(d.planes[i], h.planes[j], w.planes[k]);
          taps_.push_back(
              {(plane * outputs + output) * volume - back * width_, (weight + tap) * width_, 1});
          places_.push_back(
              {{d.shifts[i], h.shifts[j], w.shifts[k]}, {d.planes[i], h.planes[j], w.planes[k]}});
        }
        // Of one row: others may be left out.
        const auto count = static_cast<std::int64_t>(w.taps.size());
        count_neighbours(taps_.data() + taps_.size() - w.taps.size(), count,
                         [this](const GatherTap& one, const GatherTap& next) {
                           return next.source == one.source - width_;
                         });
      }
    }
  }

  std::int64_t width_ = 0;
  std::vector<ConvAxis> axes_;
  std::vector<GatherTap> taps_;
  std::vector<Place> places_;        // of taps_
  std::vector<std::size_t> firsts_;  // of each class
  std::size_t most_ = 0;             // taps of a class
};

}  // namespace backops

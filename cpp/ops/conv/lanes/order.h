// What the lanes of a vector are, and the order of weights that follows from it. A lane is a group,
// and the channels of a group are vectors of their own; or, where groups have as many channels in
// as out and a vector holds whole groups, lanes are channels. To everything but the kernels a
// problem of the second kind is a depthwise one, whose taps have a product for each channel of a
// group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ints.h"
#include "kernels/conv/conv.h"
#include "ops/conv/copy.h"
#include "ops/conv/shape.h"

namespace backops {

// Channels of a group that are lanes side by side; 1 where a lane is a group.
inline std::int64_t joined_channels(const ConvShape& s, const ConvKernels& kernels) {
  const std::int64_t channels = s.group_inputs(), width = kernels.width;
  const bool fill_vectors = kernels.has_groups && channels < width && width % channels == 0;
  return fill_vectors && channels == s.group_outputs() ? channels : 1;
}

template <class Sum>
class LaneOrder {
 public:
  LaneOrder(const ConvShape& shape, const TileCopy<Sum>& copy)
      : inputs_(shape.group_inputs()),
        outputs_(shape.group_outputs()),
        taps_(shape.taps()),
        width_(copy.kernels().width),
        joined_(joined_channels(shape, copy.kernels())),
        copy_(shape, copy) {
    for (std::int64_t i = 0; is_joined() && i < joined_ * width_; ++i) {
      const std::int64_t channel = i / width_, lane = i % width_;
      patterns_.push_back(static_cast<std::int32_t>(lane / joined_ * joined_ + channel));
    }
  }

  // The problem whose groups are the lanes.
  static ConvShape problem(const ConvShape& shape, const ConvKernels& kernels) {
    ConvShape own = shape;
    if (joined_channels(shape, kernels) > 1) own.groups = shape.inputs;
    return own;
  }

  // Of the weights of a block of lanes: (outputs, inputs, taps), or (channels of a group, taps).
  std::int64_t vectors() const { return (is_joined() ? joined_ : outputs_ * inputs_) * taps_; }

  LaneGroups groups() const {
    if (!is_joined()) return {};
    return {static_cast<int>(joined_), patterns_.data(), taps_ * width_};
  }

  void pack(const Weights& weight, const Range& lanes, Sum* to) const {
    std::fill_n(to, vectors() * width_, Sum{0});
    for_rows(weight, lanes, to, [&](const Row& row) {
      copy_.bring(weight, row.elements, row.lane_stride, row.lanes, row.sums, width_);
    });
  }
  void put(const Weights& weight, const Range& lanes, Sum* from) const {
    for_rows(weight, lanes, from, [&](const Row& row) {
      copy_.put(weight, {row.elements, weight.output_stride_bytes, row.lane_stride, 1, row.lanes,
                         row.sums, width_});
    });
  }

 private:
  // All taps of some lanes.
  struct Row {
    char* elements;
    std::int64_t lane_stride, lanes;
    Sum* sums;
  };

  bool is_joined() const { return joined_ > 1; }

  template <class Body>
  void for_rows(const Weights& weight, const Range& lanes, Sum* sums, const Body& body) const {
    if (is_joined()) return for_joined_rows(weight, lanes, sums, body);
    for (std::int64_t i = 0; i < outputs_ * inputs_; ++i) {
      body(Row{weight.at(lanes.begin * outputs_ + i / inputs_, i % inputs_),
               weight.group_stride_bytes, lanes.size(), sums + i * taps_ * width_});
    }
  }
  template <class Body>
  void for_joined_rows(const Weights& weight, const Range& lanes, Sum* sums,
                       const Body& body) const {
    for (std::int64_t first = lanes.begin; first < lanes.end; first += joined_) {
      for (std::int64_t channel = 0; channel < joined_; ++channel) {
        body(Row{weight.at(first + channel, 0), weight.input_stride_bytes, joined_,
                 sums + channel * taps_ * width_ + (first - lanes.begin)});
      }
    }
  }

  const std::int64_t inputs_, outputs_, taps_, width_, joined_;
  const WeightCopy<Sum> copy_;
  std::vector<std::int32_t> patterns_;
};

}  // namespace backops

// The input product of tiles in blocks. Zeros lie around `output`, so that positions at the borders
// need no care: finite weights may meet them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv.h"
#include "ops/conv/axes.h"
#include "ops/conv/blocks/pieces.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/tiles.h"

namespace backops {

template <class Sum>
class BlockInput {
 public:
  // Weights of a few blocks of outputs at a time, which fill up to `panel_bytes`. Blocks of
  // `output` lie `output_pitch` apart, its planes `plane_pitch`, blocks of results `result_pitch`.
  BlockInput(const ConvShape& shape, const BlockSizes& sizes, const ConvKernels& kernels,
             const ConvTiles& tiles, std::int64_t panel_bytes, std::int64_t output_pitch,
             std::int64_t plane_pitch, std::int64_t result_pitch)
      : s_(shape),
        n_(sizes),
        kernels_(kernels),
        planes_(shape),
        output_pitch_(output_pitch),
        plane_pitch_(plane_pitch),
        result_pitch_(result_pitch),
        panel_blocks_(blocks_of_panel(n_, panel_bytes)),
        pieces_(ConvAxis(s_, 2)) {
    for (int axis = 0; axis < kMaxConvRank; ++axis) axes_.emplace_back(s_, axis);
    const Box output = tiles.tile(0).output;
    for (const ResidueClass& d : axes_[0].classes) {
      for (const ResidueClass& h : axes_[1].classes) {
        for (const ResidueClass& w : axes_[2].classes)
          classes_.push_back(class_of(d, h, w, output));
      }
    }
  }

  // Where a tile lies, and the weights of a pair of input blocks, packed.
  struct Work {
    const Sum* output;  // the blocks of the group
    const Sum* weights;
    int blocks;  // of the pair
    bool are_finite;
    Sum* results;
    char* list;
  };

  // Of a list of runs.
  std::size_t list_bytes() const {
    return static_cast<std::size_t>(panel_blocks_ * n_.taps) * sizeof(BlockRun);
  }

  void write_tile(const Work& work, const Tile& tile) const {
    for (std::int64_t block = 0; block < n_.outputs.blocks(); block += panel_blocks_) {
      for (std::int64_t image = tile.images.begin; image < tile.images.end;) {
        const bool are_twins = are_short(tile) && image + 1 < tile.images.end;
        for_rows({image, image + 1}, tile.results.axes,
                 [&](std::int64_t, std::int64_t d, std::int64_t h) {
                   add_row(work, tile, block, {image, d, h, are_twins});
                 });
        image += are_twins ? 2 : 1;
      }
    }
  }

 private:
  // A tap that reaches input positions of one class, and how many outputs of its plane back.
  struct Tap {
    std::int64_t tap, shift[kMaxConvRank];
    std::size_t plane[kMaxConvRank];
    Without without;  // of a row's positions
  };
  // The taps of one class along each axis, and their products for as many blocks of outputs as are
  // worked on together, by the number of blocks of input channels.
  struct TapClass {
    std::vector<Tap> taps;
    std::vector<BlockRun> runs[BlockSizes::kPair];
  };
  struct Row {
    std::int64_t image, d, h;
    bool are_twins;  // with the same row of the next image
  };

  static std::int64_t blocks_of_panel(const BlockSizes& n, std::int64_t panel_bytes) {
    const auto bytes =
        static_cast<std::int64_t>(sizeof(Sum)) * n.taps * n.width * BlockSizes::kPair * n.width;
    const auto most = std::clamp<std::int64_t>(panel_bytes / bytes, 1, n.outputs.blocks());
    return ceil_divide(n.outputs.blocks(), ceil_divide(n.outputs.blocks(), most));
  }

  TapClass class_of(const ResidueClass& d, const ResidueClass& h, const ResidueClass& w,
                    const Box& output) const {
    TapClass own;
    for (std::size_t i = 0; i < d.taps.size(); ++i) {
      for (std::size_t j = 0; j < h.taps.size(); ++j) {
        for (std::size_t k = 0; k < w.taps.size(); ++k) {
          own.taps.push_back({(d.taps[i] * s_.kernel[1] + h.taps[j]) * s_.kernel[2] + w.taps[k],
                              {d.shifts[i], h.shifts[j], w.shifts[k]},
                              {d.planes[i], h.planes[j], w.planes[k]},
                              left_out(w, k)});
        }
      }
    }
    for (std::int64_t block = 0; block < panel_blocks_; ++block) {
      for (const Tap& tap : own.taps) {
        const std::int64_t back =
            tap.shift[0] * output.step[0] + tap.shift[1] * output.step[1] + tap.shift[2];
        const std::int64_t plane = planes_.index(tap.plane[0], tap.plane[1], tap.plane[2]);
        for (std::int64_t vectors = 1; vectors <= BlockSizes::kPair; ++vectors) {
          own.runs[vectors - 1].push_back(
              {plane * plane_pitch_ + block * output_pitch_ - back * n_.width,
               (block * n_.taps + tap.tap) * n_.width * vectors * n_.width, tap.without});
        }
      }
    }
    return own;
  }

  // Zeros that a tap meets at an end of a row; more than one at an end are not worth more code.
  Without left_out(const ResidueClass& columns, std::size_t tap) const {
    const ConvAxis& a = axes_[2];
    const std::int64_t last = columns.first_input + (columns.count - 1) * a.stride;
    const auto has_output = [&](std::int64_t position) {
      return a.has_output(position, columns.shifts[tap], columns.planes[tap]);
    };
    if (!has_output(columns.first_input)) return Without::first;
    return has_output(last) ? Without::nothing : Without::last;
  }

  // Whole rows, and so short ones that two positions count.
  bool leaves_out(const Tile& tile) const {
    return !pieces_.are_many() && tile.results.axes[2].size() == s_.in[2] &&
           s_.in[2] <= 4 * kernels_.most_twins;
  }

  // Rows that two images fill registers with.
  bool are_short(const Tile& tile) const {
    return ceil_divide(tile.results.axes[2].size(), axes_[2].stride) <= kernels_.most_twins;
  }

  void add_row(const Work& work, const Tile& tile, std::int64_t block, const Row& row) const {
    const BlockProducts products = products_of(work, tile, block, row);
    const Range& columns = tile.results.axes[2];
    if (!pieces_.are_many()) return add_columns(work, block, row, columns, products);
    for (const Range& piece : pieces_) {
      add_columns(work, block, row, common(piece, columns), products);
    }
  }

  // Columns of one class together. Weights that are not finite must not meet the zeros: there it
  // goes position by position, and by taps that have an output.
  void add_columns(const Work& work, std::int64_t block, const Row& row, const Range& columns,
                   BlockProducts products) const {
    const ConvAxis& a = axes_[2];
    const auto classes = static_cast<std::int64_t>(a.classes.size());
    const std::int64_t end =
        work.are_finite ? std::min(columns.begin + classes, columns.end) : columns.end;
    const Sum* const output = static_cast<const Sum*>(products.left);
    Sum* const results = static_cast<Sum*>(products.sums);
    for (std::int64_t first = columns.begin; first < end; ++first) {
      const Range own{first, work.are_finite ? columns.end : first + 1};
      products.left = output + a.output_of(first) * n_.width;
      products.sums = results + first * n_.width;
      products.rows = ceil_divide(own.size(), a.stride);
      choose_runs(work, block, row, own, products);
      (row.are_twins ? kernels_.multiply_twins : kernels_.multiply_positions)(products);
    }
  }

  // All but the columns and the runs.
  BlockProducts products_of(const Work& work, const Tile& tile, std::int64_t block,
                            const Row& row) const {
    BlockProducts products{};
    products.left =
        work.output + block * output_pitch_ +
        tile.output.place(row.image, axes_[0].output_of(row.d), axes_[1].output_of(row.h), 0) *
            n_.width;
    products.left_step = 1;
    products.left_twin = tile.output.image_step * n_.width;
    products.right = work.weights + block * n_.taps * n_.width * work.blocks * n_.width;
    products.right_step = work.blocks * n_.width;
    products.right_pitch = n_.width;
    products.run_length = n_.width;
    products.short_length = n_.outputs.channels % n_.width;
    products.sums = work.results + tile.results.place(row.image, row.d, row.h, 0) * n_.width;
    products.sum_step = axes_[2].stride * n_.width;
    products.sum_pitch = result_pitch_;
    products.sum_twin = tile.results.image_step * n_.width;
    products.vectors = work.blocks;
    products.adds = block > 0;
    products.leaves_out = work.are_finite && leaves_out(tile);
    return products;
  }

  // Rows of zeros are left out: they are not worth the time.
  void choose_runs(const Work& work, std::int64_t block, const Row& row, const Range& columns,
                   BlockProducts& products) const {
    const std::int64_t at[] = {row.d, row.h, columns.begin};
    std::size_t own = 0;
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      const ConvAxis& a = axes_[static_cast<std::size_t>(axis)];
      own = own * a.classes.size() + static_cast<std::size_t>(a.class_of(at[axis]));
    }
    const TapClass& taps = classes_[own];
    products.runs = taps.runs[work.blocks - 1].data();
    const auto per_block = static_cast<std::int64_t>(taps.taps.size());
    const std::int64_t blocks = std::min(panel_blocks_, n_.outputs.blocks() - block);
    const bool has_short = block + blocks == n_.outputs.blocks() && products.short_length > 0;
    const std::int64_t whole = blocks - (has_short ? 1 : 0);
    products.run_count = whole * per_block;
    products.short_runs = has_short ? per_block : 0;
    const bool checks_columns = !work.are_finite || pieces_.are_many();
    if (axes_[0].has_all_outputs(row.d) && axes_[1].has_all_outputs(row.h) && !checks_columns) {
      return;
    }
    BlockRun* const kept = reinterpret_cast<BlockRun*>(work.list);
    const std::int64_t count =
        keep_runs(taps, {row.d, row.h}, checks_columns ? &columns : nullptr, work, blocks, kept);
    products.runs = kept;
    products.run_count = whole * count;
    products.short_runs = has_short ? count : 0;
  }

  // Those of taps that have an output; how many there are for each block.
  std::int64_t keep_runs(const TapClass& taps, const std::int64_t (&at)[2], const Range* columns,
                         const Work& work, std::int64_t blocks, BlockRun* kept) const {
    const std::vector<BlockRun>& all = taps.runs[work.blocks - 1];
    std::int64_t count = 0;
    for (std::size_t i = 0; i < taps.taps.size(); ++i) {
      const Tap& tap = taps.taps[i];
      if (axes_[0].has_output(at[0], tap.shift[0], tap.plane[0]) &&
          axes_[1].has_output(at[1], tap.shift[1], tap.plane[1]) &&
          (columns == nullptr || reaches_output(axes_[2], *columns, tap.shift[2], tap.plane[2]))) {
        kept[count++] = all[i];
      }
    }
    const std::int64_t weights = n_.taps * n_.width * work.blocks * n_.width;
    for (std::int64_t i = count; i < blocks * count; ++i) {
      const BlockRun& before = kept[i - count];
      kept[i] = {before.left + output_pitch_, before.right + weights, before.without};
    }
    return count;
  }

  const ConvShape s_;
  const BlockSizes n_;
  const ConvKernels& kernels_;
  const OutputPlanes planes_;
  const std::int64_t output_pitch_, plane_pitch_, result_pitch_;
  const std::int64_t panel_blocks_;  // of outputs, whose weights are used together
  const RowPieces pieces_;
  std::vector<ConvAxis> axes_;
  std::vector<TapClass> classes_;
};

}  // namespace backops

// Products in bfloat16 and float16 by instructions that multiply pairs or small matrices of
// bfloat16 numbers (kernels/matrix/matrix.h). All tensors are brought into one order of positions
// (matrix/tiles.h), in which both products are plain matrix products:
//
//   weight (outputs, inputs) = output (outputs, positions) * input (positions, inputs)
//   input (positions, inputs) = output (positions, outputs) * weight (outputs, inputs)
#include "ops/conv/matrix/engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/matrix/matrix.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/careful.h"
#include "ops/conv/copy.h"
#include "ops/conv/matrix/layout.h"
#include "ops/conv/matrix/memory.h"
#include "ops/conv/matrix/multiplication.h"
#include "ops/conv/matrix/packing.h"
#include "ops/conv/matrix/tiles.h"
#include "ops/conv/parts.h"

namespace backops {
namespace {

constexpr std::int64_t kLanes = kTileRows;
constexpr double kTileShare = 0.5;         // of a second-level cache
constexpr double kMostSumBytes = 1e6;      // of weight sums that are made in parts
constexpr double kMostPartBytes = 3e6;     // of weight sums, all parts together
constexpr double kMostSharedBytes = 64e6;  // of all tiles, where they are kept for all tasks
constexpr double kMostPlaces = 8;          // for each output
constexpr std::int64_t kMostTaps = 256;
constexpr std::int64_t kMostStride = 8;
constexpr std::int64_t kMostReach = std::int64_t{1} << 24;  // along an axis

int pieces_of(DType dtype) { return dtype == DType::bfloat16 ? 1 : 2; }

class MatrixEngine : public WatchingEngine {
 public:
  MatrixEngine(const ConvTask& task, const ConvKernels& kernels)
      : s_(task.shape),
        matrix_(*matrix_kernels(task.cpu)),
        copy_(kernels, task.rounding, convert_kernels(kernels.isa)),
        n_(s_, kLanes, false),
        wanted_(task.cuts.parts()),
        level2_bytes_(static_cast<double>(task.cpu.level2_bytes)),
        is_shared_(weight_bytes() > kMostSumBytes),
        place_bytes_(MatrixLayout::place_bytes(s_, n_, pieces_of(task.dtype))),
        tiles_(choose_tiles()),
        m_(s_, n_, tiles_, pieces_of(task.dtype)),
        at_(s_, n_, tiles_, m_, is_shared_,
            pairs_at_once(n_.outputs.all_pairs(),
                          weight_bytes() / static_cast<double>(n_.outputs.all_pairs()))),
        packing_(s_, n_, tiles_, m_, at_, matrix_, copy_),
        products_(s_, n_, tiles_, m_, at_, matrix_, copy_) {
    if (tiles_.fit()) schedule();
  }

  bool fits() const {
    if (!tiles_.fit()) return false;
    const double bytes =
        static_cast<double>(tiles_.count()) * static_cast<double>(at_.tile_bytes());
    return places_of(tiles_) <= most_places() && (!is_shared_ || bytes <= kMostSharedBytes);
  }

  std::string name() const override {
    return std::string("matrix:") + name_of(matrix_.isa) + (is_shared_ ? ":by_outputs" : "");
  }

  std::size_t engine_bytes() const override { return at_.engine_bytes(); }
  std::size_t worker_bytes() const override { return at_.worker_bytes(); }

  // Pack the weights, and bring the tiles if tasks share them; the products; add the parts.
  int phases() const override { return 3; }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) {
      return at_.pack_tasks() + (is_shared_ ? at_.output_tasks() + at_.input_tasks() : 0) +
             (s_.adds_bias ? 1 : 0);
    }
    if (phase == 1) return static_cast<std::int64_t>(tasks_.size());
    return at_.has_parts() || s_.makes_bias ? n_.outputs.all_pairs() : 0;
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 0) {
      prepare(b, task);
    } else if (phase == 1) {
      matrix_.begin();
      work_task(b, tasks_[static_cast<std::size_t>(task)]);
      matrix_.end();
    } else {
      if (at_.has_parts()) products_.write_weights(b, task, at_.sums(b, 0), at_.parts());
      if (s_.makes_bias) write_bias(b, task);
    }
  }

  bool saw_normal_only(const ConvBuffers& b) const override {
    const Magnitudes* from = at_.magnitudes(b);
    const auto next = [&](std::int64_t count) {
      Magnitudes all;
      for (std::int64_t i = 0; i < count; ++i) all.add(*from++);
      return all;
    };
    const Magnitudes output = next(at_.output_magnitudes()), input = next(at_.input_magnitudes());
    const Magnitudes weight = next(at_.pack_tasks());
    return (!s_.makes_weight || are_normal(output, input)) &&
           (!s_.makes_input || are_normal(output, weight));
  }

 private:
  // All of some tiles; or the weights of pairs of output blocks; or pairs of input blocks of some
  // tiles.
  enum class Kind : std::uint8_t { tiles, outputs, inputs };
  struct Task {
    Kind kind;
    Range tiles;
    std::int64_t part;
    Range pairs;
  };

  // Larger ones than the cache has room for, if those would be mostly zeros and what neighbours
  // share.
  MatrixTiles choose_tiles() const {
    constexpr double kEnough = 1.6, kWorthIt = 0.9;
    const double share = kTileShare * level2_bytes_, places = share / place_bytes_;
    const double outputs = static_cast<double>(s_.batch * s_.windows());
    MatrixTiles best = cut_tiles(places);
    for (double growth = 2; growth <= most_growth(share, wanted_); growth *= 2) {
      if (best.fit() && places_of(best) <= kEnough * outputs) break;
      MatrixTiles larger = cut_tiles(growth * places);
      if (!best.fit() || places_of(larger) < kWorthIt * places_of(best)) best = larger;
    }
    return best;
  }
  // Tiles for all tasks, if the places around them are not too many.
  MatrixTiles cut_tiles(double places) const {
    const MatrixTiles tiles(s_, places, is_shared_ ? wanted_ : tasks_wanted());
    return places_of(tiles) <= most_places() ? tiles : MatrixTiles(s_, places, 1);
  }
  // As products take them: 32 at a time.
  static double places_of(const MatrixTiles& tiles) {
    const std::int64_t places = ceil_divide(tiles.places(), kTileDepth) * kTileDepth;
    return static_cast<double>(tiles.count()) * static_cast<double>(places);
  }
  double most_places() const { return kMostPlaces * static_cast<double>(s_.batch * s_.windows()); }
  std::int64_t tasks_wanted() const { return tasks_per_thread(s_, wanted_) * wanted_; }

  double weight_bytes() const {
    return static_cast<double>(n_.weight_sums()) * static_cast<double>(sizeof(float));
  }
  // Weight sums that are few are made tile by tile, in parts. Else all tiles are kept
  // until the sums of some outputs are complete.
  void schedule() {
    const std::int64_t tiles = tiles_.count();
    std::int64_t parts = 1;
    if (!is_shared_) {
      parts = tasks_wanted();
      if (s_.makes_weight) {
        parts = std::min(
            parts, std::max(wanted_, static_cast<std::int64_t>(kMostPartBytes / weight_bytes())));
      }
      parts = std::min(parts, tiles);
      for (std::int64_t part = 0; part < parts; ++part) {
        tasks_.push_back({Kind::tiles, share_of(tiles, parts, part), part, {}});
      }
      return at_.set_parts(parts);
    }
    at_.set_parts(tiles);  // of the bias sums
    for_pairs(s_.makes_weight ? n_.outputs.all_pairs() : 0, at_.pairs_at_once(),
              [&](const Range& pairs) { tasks_.push_back({Kind::outputs, {0, tiles}, 0, pairs}); });
    const double pair_bytes =
        static_cast<double>(m_.weight_pair()) * static_cast<double>(sizeof(BFloat16Bits));
    const std::int64_t inputs = pairs_at_once(n_.inputs.all_pairs(), pair_bytes);
    const std::int64_t ranges = std::min(
        ceil_divide(kTasksPerThread * wanted_, ceil_divide(n_.inputs.all_pairs(), inputs)), tiles);
    for_pairs(s_.makes_input ? n_.inputs.all_pairs() : 0, inputs, [&](const Range& pairs) {
      for (std::int64_t range = 0; range < ranges; ++range) {
        tasks_.push_back({Kind::inputs, share_of(tiles, ranges, range), 0, pairs});
      }
    });
  }

  // What a task reads, it reads once for so many pairs, whose own numbers stay in the cache.
  std::int64_t pairs_at_once(std::int64_t pairs, double pair_bytes) const {
    constexpr double kShare = 0.3;  // of a second-level cache
    const auto fitting = static_cast<std::int64_t>(kShare * level2_bytes_ / pair_bytes);
    return std::clamp<std::int64_t>(fitting, 1, std::max<std::int64_t>(1, pairs / (2 * wanted_)));
  }
  template <class Body>
  static void for_pairs(std::int64_t pairs, std::int64_t at_once, const Body& body) {
    const std::int64_t parts = ceil_divide(pairs, at_once);
    for (std::int64_t part = 0; part < parts; ++part) body(share_of(pairs, parts, part));
  }

  void prepare(const ConvBuffers& b, std::int64_t task) const {
    if (s_.adds_bias && task == tasks(0) - 1) {
      packing_.bring_bias(b);
    } else if (task < at_.pack_tasks()) {
      at_.magnitudes(b)[at_.output_magnitudes() + at_.input_magnitudes() + task] =
          packing_.pack_weights(b, task / n_.outputs.pairs(), task % n_.outputs.pairs());
    } else if (task -= at_.pack_tasks(); task < at_.output_tasks()) {
      const std::int64_t index = task / n_.outputs.all_pairs();
      at_.magnitudes(b)[task] =
          packing_.bring_output(b, index, task % n_.outputs.all_pairs(), index, true);
    } else {
      task -= at_.output_tasks();
      at_.magnitudes(b)[at_.output_magnitudes() + task] =
          packing_.bring_input(b, task / n_.inputs.all_pairs(), task % n_.inputs.all_pairs());
    }
  }

  void work_task(const ConvBuffers& b, const Task& task) const {
    if (task.kind == Kind::outputs) {
      float* const all_sums = at_.own_sums(b) - n_.sums_of_pair(task.pairs.begin);
      products_.add_weights(b, task.tiles, task.pairs, all_sums, false);
      for (std::int64_t pair = task.pairs.begin; pair < task.pairs.end; ++pair) {
        products_.write_weights(b, pair, all_sums, 1);
      }
    } else if (task.kind == Kind::inputs) {
      for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
        for (std::int64_t pair = task.pairs.begin; pair < task.pairs.end; ++pair) {
          products_.write_inputs(b, index, pair);
        }
      }
    } else {
      work_tiles(b, task);
    }
  }

  void work_tiles(const ConvBuffers& b, const Task& task) const {
    Magnitudes output, input;
    const std::int64_t part = task.part;
    for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
      const bool is_first = index == task.tiles.begin;
      for (std::int64_t pair = 0; pair < n_.outputs.all_pairs(); ++pair) {
        output.add(packing_.bring_output(b, index, pair, part, is_first));
      }
      for (std::int64_t pair = 0; s_.makes_weight && pair < n_.inputs.all_pairs(); ++pair) {
        input.add(packing_.bring_input(b, index, pair));
      }
      if (s_.makes_weight) {
        products_.add_weights(b, {index, index + 1}, {0, n_.outputs.all_pairs()}, at_.sums(b, part),
                              !is_first);
      }
      for (std::int64_t pair = 0; s_.makes_input && pair < n_.inputs.all_pairs(); ++pair) {
        products_.write_inputs(b, index, pair);
      }
    }
    at_.magnitudes(b)[part] = output;
    at_.magnitudes(b)[at_.output_magnitudes() + part] = input;
  }

  void write_bias(const ConvBuffers& b, std::int64_t pair) const {
    const Range blocks = n_.outputs.blocks_of({pair, pair + 1});
    const Range channels = n_.outputs.channels_of_pair(pair);
    float* const sums = at_.bias_sums(b, 0) + blocks.begin * kLanes;
    add_parts(sums, blocks.size() * kLanes, at_.parts(), at_.part_sums());
    copy_.put_line(b.bias_sums.data + channels.begin * b.bias_sums.stride_bytes,
                   b.bias_sums.stride_bytes, channels.size(), sums);
  }

  const ConvShape s_;
  const MatrixKernels& matrix_;
  const TileCopy<float> copy_;
  const BlockSizes n_;
  const std::int64_t wanted_;
  const double level2_bytes_;
  const bool is_shared_;
  const double place_bytes_;
  const MatrixTiles tiles_;
  const MatrixLayout m_;
  MatrixMemory at_;
  const MatrixPacking packing_;
  const MatrixMultiplication products_;
  std::vector<Task> tasks_;
};

}  // namespace

std::string matrix_refusal(const ConvTask& task) {
  const ConvShape& s = task.shape;
  if (!has_matrices(task.cpu)) return "problems on a CPU without products of bfloat16";
  if (task.dtype != DType::bfloat16 && task.dtype != DType::float16) {
    return std::string(name_of(task.dtype)) + ", which has too many digits";
  }
  // float16 needs four products for one: packing then takes most of the time.
  if (task.dtype == DType::float16 && s.taps() == 1) return "float16 under a kernel of one element";
  if (!s.makes_input && !s.makes_weight) return "bias sums only";
  if (s.groups > 1 && (s.group_inputs() % kLanes != 0 || s.group_outputs() % kLanes != 0)) {
    return "groups that fill no tiles";
  }
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    if (s.stride[axis] > kMostStride) return "strides above 8";
    if (std::max({s.padding[axis], s.in[axis], s.dilation[axis]}) > kMostReach) {
      return "sizes above 2^24";
    }
    if (s.kernel[axis] > kMostTaps) return "kernels of more than 256 elements";
  }
  if (s.taps() > kMostTaps) return "kernels of more than 256 elements";
  if (conv_kernels(task.cpu.isa(), task.dtype).width != kLanes) return "vectors of another width";
  return "";
}

std::unique_ptr<const ConvEngine> make_matrix_engine(const ConvTask& task,
                                                     std::unique_ptr<const ConvEngine> careful) {
  if (!careful || matrix_kernels(task.cpu) == nullptr) return nullptr;
  auto engine = std::make_unique<MatrixEngine>(task, conv_kernels(task.cpu.isa(), task.dtype));
  if (!engine->fits()) return nullptr;
  return std::make_unique<CarefulEngine>(std::move(engine), std::move(careful));
}

}  // namespace backops

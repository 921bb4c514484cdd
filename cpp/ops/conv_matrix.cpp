// Gradients in bfloat16 and float16 by products of small matrices, which some CPUs have an
// instruction for (kernels/matrix/matrix.h). All tensors are brought into one order of positions
// (ops/matrix_tiles.h), in which both gradients are plain matrix products:
//
//   weight gradient (outputs, inputs) = grad_output (outputs, positions) * input (positions,
//   inputs)
//
//   input gradient (positions, inputs) = grad_output (positions, outputs) * weight (outputs,
//   inputs)
#include <algorithm>
#include <vector>

#include "kernels/matrix/matrix.h"
#include "kernels/pool/pool.h"
#include "ops/block_copy.h"
#include "ops/block_order.h"
#include "ops/block_sizes.h"
#include "ops/conv_engine.h"
#include "ops/matrix_layout.h"
#include "ops/matrix_tiles.h"

namespace backops {
namespace {

constexpr int kPair = BlockSizes::kPair;
constexpr std::int64_t kLanes = kTileRows;
constexpr double kTileBytes = 1 << 20;     // in the second-level cache
constexpr double kMostSumBytes = 1e6;      // sums of weight gradients that are made in parts
constexpr double kMostPartBytes = 3e6;     // sums of weight gradients, all parts together
constexpr double kMostSharedBytes = 64e6;  // of all tiles, where they are kept for all tasks
constexpr double kMostPlaces = 8;          // for each output
constexpr std::int64_t kMostTaps = 128;
constexpr std::int64_t kMostStride = 8;
constexpr std::int64_t kMostReach = std::int64_t{1} << 24;  // along an axis
// Steps of products between loading and storing sums.
constexpr std::int64_t kStepsAtOnce = 8;

int pieces_of(DType dtype) { return dtype == DType::bfloat16 ? 1 : 2; }

// Whether such numbers and their products are normal, and far enough from those that are not.
bool are_normal(const Magnitudes& a, const Magnitudes& b) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr int kLeastExponent = -100;
  const auto exponent = [](const Magnitudes& found) {
    return found.least == UINT32_MAX ? 127 : static_cast<int>((found.least + 1) >> 23) - 127;
  };
  return a.most < kInfinity && b.most < kInfinity && exponent(a) >= kLeastExponent &&
         exponent(b) >= kLeastExponent && exponent(a) + exponent(b) >= kLeastExponent;
}

Magnitudes joined(const Magnitudes& a, const Magnitudes& b) {
  return {std::min(a.least, b.least), std::max(a.most, b.most)};
}

class MatrixEngine : public ConvEngine {
 public:
  MatrixEngine(const ConvShape& shape, const ConvCuts& cuts, Rounding rounding, DType dtype,
               Isa isa)
      : s_(shape),
        kernels_(conv_kernels(isa, dtype)),
        sum_kernels_(conv_kernels(isa, DType::float32)),
        matrix_(*matrix_kernels(isa)),
        copy_(kernels_, rounding, pool_kernels(isa, dtype)),
        n_(s_, kLanes),
        order_(n_, sum_kernels_, nullptr),
        wanted_(cuts.parts()),
        is_shared_(weight_bytes() > kMostSumBytes),
        place_bytes_(MatrixLayout::place_bytes(s_, n_, pieces_of(dtype))),
        tiles_(choose_tiles()),
        m_(s_, n_, tiles_, pieces_of(dtype)) {
    if (!tiles_.fit()) return;
    list_runs();
    place_tensors();
    schedule();
  }

  bool is_usable() const {
    if (!tiles_.fit()) return false;
    const double bytes = static_cast<double>(tiles_.count()) * static_cast<double>(tile_bytes_);
    return places_of(tiles_) <= most_places() && (!is_shared_ || bytes <= kMostSharedBytes);
  }

  void set_careful(std::unique_ptr<const ConvEngine> careful) { careful_ = std::move(careful); }

  std::string name() const override {
    return std::string("matrix:") + name_of(matrix_.isa) + (is_shared_ ? ":by_outputs" : "");
  }
  Activations activations() const override { return Activations::tensors; }

  std::size_t engine_bytes() const override {
    return magnitudes_at() + static_cast<std::size_t>(magnitude_count()) * sizeof(Magnitudes);
  }
  std::size_t worker_bytes() const override {
    return std::max(worker_bytes_, careful_->worker_bytes());
  }

  // Pack the weights, and bring the tiles if tasks share them; the gradients; add the parts. Then,
  // if there were numbers that are not normal, everything again with care.
  int phases() const override { return kOwnPhases + careful_->phases(); }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) return pack_tasks() + (is_shared_ ? grad_tasks() + input_tasks() : 0);
    if (phase == 1) return static_cast<std::int64_t>(tasks_.size());
    if (phase == 2) return has_parts() || s_.wants_bias ? n_.all_output_pairs() : 0;
    return careful_->tasks(phase - kOwnPhases);
  }

  bool is_done(int phase, const ConvBuffers& b) const override {
    return phase >= kOwnPhases && are_all_normal(b);
  }

  bool work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase >= kOwnPhases) return careful_->work(phase - kOwnPhases, task, b);
    if (phase == 0) {
      prepare(b, task);
    } else if (phase == 1) {
      matrix_.begin();
      work_task(b, tasks_[static_cast<std::size_t>(task)]);
      matrix_.end();
    } else {
      if (has_parts()) write_weights(b, task, sums(b, 0), parts_);
      if (s_.wants_bias) write_bias(b, task);
    }
    return true;
  }

 private:
  static constexpr int kOwnPhases = 3;

  // All of some tiles; or the weights of a pair of output blocks; or a pair of input blocks of some
  // tiles.
  enum class Kind : std::uint8_t { tiles, outputs, inputs };
  struct Task {
    Kind kind;
    Range tiles;
    std::int64_t number;  // of the part or the pair
  };

  // Tiles for all tasks, if the places around them are not too many.
  MatrixTiles choose_tiles() const {
    const auto tiles_of = [this](std::int64_t least) {
      return MatrixTiles(s_, kTileBytes / place_bytes_, least);
    };
    MatrixTiles tiles = tiles_of(is_shared_ ? wanted_ : tasks_wanted());
    return places_of(tiles) <= most_places() ? tiles : tiles_of(1);
  }
  // As products take them: 32 at a time.
  static double places_of(const MatrixTiles& tiles) {
    const std::int64_t places = ceil_divide(tiles.places(), kTileDepth) * kTileDepth;
    return static_cast<double>(tiles.count()) * static_cast<double>(places);
  }
  double most_places() const {
    return kMostPlaces * static_cast<double>(s_.batch * s_.out_positions());
  }
  std::int64_t tasks_wanted() const { return tasks_per_thread(s_, wanted_) * wanted_; }

  double weight_bytes() const {
    return static_cast<double>(n_.padded_weights()) * static_cast<double>(sizeof(float));
  }
  // Of the input gradient, by the remainders of its positions.
  void list_runs() {
    const std::int64_t* const s = s_.stride;
    input_runs_.resize(static_cast<std::size_t>(s[0] * s[1] * s[2]));
    for (std::int64_t pair = 0; pair < n_.output_pairs(); ++pair) {
      m_.for_taps([&](std::int64_t tap, const auto& d, const auto& h, const auto& w) {
        const auto at =
            static_cast<std::size_t>((d.remainder * s[1] + h.remainder) * s[2] + w.remainder);
        input_runs_[at].push_back({pair * m_.grad_pair() - tiles_.shift(d, h, w) * kTileDepth,
                                   (pair * n_.taps + tap) * m_.weight_tap()});
      });
    }
  }

  // A tile's memory, then a worker's.
  void place_tensors() {
    const auto after = [](std::size_t at, std::int64_t count, std::size_t bytes) {
      return at + whole_lines(static_cast<std::size_t>(count) * bytes);
    };
    const std::int64_t pairs = n_.all_output_pairs();
    rows_at_ = after(0, s_.wants_input ? pairs * m_.grad_pair() : 0, sizeof(BFloat16Bits));
    input_at_ = after(rows_at_, s_.wants_weight ? pairs * kPair * m_.rows_block() : 0,
                      sizeof(BFloat16Bits));
    tile_bytes_ = after(input_at_, s_.wants_weight ? input_blocks() * m_.input_block() : 0,
                        sizeof(BFloat16Bits));

    staged_at_ = is_shared_ ? 0 : tile_bytes_;
    const std::int64_t weights = s_.wants_input ? kPair * kPair * kLanes * kLanes * n_.taps : 0;
    results_at_ = after(staged_at_, std::max(kPair * staged_pitch(), weights), sizeof(float));
    own_sums_at_ = after(results_at_, s_.wants_input ? kPair * result_pitch() : 0, sizeof(float));
    const bool has_own = s_.wants_weight && is_shared_;
    worker_bytes_ = after(own_sums_at_, has_own ? kPair * kLanes * n_.padded_inputs() * n_.taps : 0,
                          sizeof(float));
  }
  std::int64_t staged_pitch() const { return m_.staged_places() * kLanes; }
  std::int64_t result_pitch() const { return (m_.grad_places() * s_.stride[2] | 1) * kLanes; }

  // Sums of weight gradients that are few are made tile by tile, in parts. Else all tiles are kept
  // until the sums of some outputs are complete.
  void schedule() {
    const std::int64_t tiles = tiles_.count();
    if (!is_shared_) {
      parts_ = tasks_wanted();
      if (s_.wants_weight) {
        parts_ = std::min(
            parts_, std::max(wanted_, static_cast<std::int64_t>(kMostPartBytes / weight_bytes())));
      }
      parts_ = std::min(parts_, tiles);
      for (std::int64_t part = 0; part < parts_; ++part) {
        tasks_.push_back({Kind::tiles, share_of(tiles, parts_, part), part});
      }
      return;
    }
    parts_ = tiles;  // of the bias gradient
    for (std::int64_t pair = 0; s_.wants_weight && pair < n_.all_output_pairs(); ++pair) {
      tasks_.push_back({Kind::outputs, {0, tiles}, pair});
    }
    const std::int64_t ranges =
        std::min(ceil_divide(kTasksPerThread * wanted_, n_.all_input_pairs()), tiles);
    for (std::int64_t pair = 0; s_.wants_input && pair < n_.all_input_pairs(); ++pair) {
      for (std::int64_t range = 0; range < ranges; ++range) {
        tasks_.push_back({Kind::inputs, share_of(tiles, ranges, range), pair});
      }
    }
  }

  // The engine's memory: packed weights, sums of parts, tiles that are shared, magnitudes of
  // what was packed. The careful engine begins anew.
  bool has_parts() const { return s_.wants_weight && !is_shared_; }
  std::int64_t weight_sums() const { return has_parts() ? n_.padded_weights() : 0; }
  std::int64_t part_sums() const {
    return weight_sums() + (s_.wants_bias ? n_.groups * n_.padded_outputs() : 0);
  }
  std::size_t packed_bytes() const {
    if (!s_.wants_input) return 0;
    return static_cast<std::size_t>(n_.all_input_pairs() * m_.weight_pair()) * sizeof(BFloat16Bits);
  }
  std::size_t tiles_at() const {
    const auto sums = static_cast<std::size_t>(parts_ * part_sums());
    return whole_lines(packed_bytes() + sums * sizeof(float));
  }
  std::size_t magnitudes_at() const {
    const auto tiles = is_shared_ ? static_cast<std::size_t>(tiles_.count()) : 0;
    return whole_lines(std::max(tiles_at() + tiles * tile_bytes_, careful_->engine_bytes()));
  }

  std::int64_t input_blocks() const { return n_.groups * n_.input_blocks; }
  std::int64_t pack_tasks() const {
    return s_.wants_input ? n_.all_input_pairs() * n_.output_pairs() : 0;
  }
  std::int64_t grad_tasks() const { return tiles_.count() * n_.all_output_pairs(); }
  std::int64_t input_tasks() const {
    return s_.wants_weight ? tiles_.count() * n_.all_input_pairs() : 0;
  }
  std::int64_t grad_magnitudes() const { return is_shared_ ? grad_tasks() : parts_; }
  std::int64_t input_magnitudes() const { return is_shared_ ? input_tasks() : parts_; }
  std::int64_t magnitude_count() const {
    return grad_magnitudes() + input_magnitudes() + pack_tasks();
  }

  BFloat16Bits* packed_weights(const ConvBuffers& b, std::int64_t pair) const {
    return reinterpret_cast<BFloat16Bits*>(b.memory) + pair * m_.weight_pair();
  }
  float* sums(const ConvBuffers& b, std::int64_t part) const {
    return reinterpret_cast<float*>(b.memory + packed_bytes()) + part * part_sums();
  }
  float* bias_sums(const ConvBuffers& b, std::int64_t part) const {
    return sums(b, part) + weight_sums();
  }
  Magnitudes* magnitudes(const ConvBuffers& b) const {
    return reinterpret_cast<Magnitudes*>(b.memory + magnitudes_at());
  }
  char* tile_memory(const ConvBuffers& b, std::int64_t index) const {
    if (!is_shared_) return b.scratch;
    return b.memory + tiles_at() + static_cast<std::size_t>(index) * tile_bytes_;
  }
  BFloat16Bits* grad_of(char* tile) const { return reinterpret_cast<BFloat16Bits*>(tile); }
  BFloat16Bits* rows_of(char* tile) const {
    return reinterpret_cast<BFloat16Bits*>(tile + rows_at_);
  }
  BFloat16Bits* input_of(char* tile) const {
    return reinterpret_cast<BFloat16Bits*>(tile + input_at_);
  }
  float* staged(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.scratch + staged_at_);
  }
  float* results(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.scratch + results_at_);
  }
  float* own_sums(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.scratch + own_sums_at_);
  }

  bool are_all_normal(const ConvBuffers& b) const {
    const Magnitudes* from = magnitudes(b);
    const auto next = [&](std::int64_t count) {
      Magnitudes all;
      for (std::int64_t i = 0; i < count; ++i) all = joined(all, *from++);
      return all;
    };
    const Magnitudes grad = next(grad_magnitudes()), input = next(input_magnitudes());
    const Magnitudes weight = next(pack_tasks());
    return (!s_.wants_weight || are_normal(grad, input)) &&
           (!s_.wants_input || are_normal(grad, weight));
  }

  void prepare(const ConvBuffers& b, std::int64_t task) const {
    if (task < pack_tasks()) {
      magnitudes(b)[grad_magnitudes() + input_magnitudes() + task] =
          pack_weights(b, task / n_.output_pairs(), task % n_.output_pairs());
    } else if (task -= pack_tasks(); task < grad_tasks()) {
      const std::int64_t index = task / n_.all_output_pairs();
      magnitudes(b)[task] = bring_grad(b, index, task % n_.all_output_pairs(), index, true);
    } else {
      task -= grad_tasks();
      magnitudes(b)[grad_magnitudes() + task] =
          bring_input(b, task / n_.all_input_pairs(), task % n_.all_input_pairs());
    }
  }

  Magnitudes pack_weights(const ConvBuffers& b, std::int64_t input_pair,
                          std::int64_t output_pair) const {
    Magnitudes found;
    const std::int64_t width = n_.blocks_of_input_pair(input_pair) * kLanes;
    const std::int64_t block_sums = n_.taps * kLanes * width;
    const std::int64_t first = output_pair * kPair;
    float* const ordered = staged(b);
    for (std::int64_t i = 0; i < kPair; ++i) {
      if (first + i < n_.output_blocks) {
        order_.pack(b.weight, input_pair, first + i, ordered - first * block_sums);
      } else {
        std::fill_n(ordered + i * block_sums, block_sums, 0.0f);
      }
    }
    BFloat16Bits* to = packed_weights(b, input_pair) + output_pair * n_.taps * m_.weight_tap();
    for (std::int64_t tap = 0; tap < n_.taps; ++tap, to += m_.weight_tap()) {
      for (std::int64_t i = 0; i < kPair; ++i) {
        const float* const from = ordered + i * block_sums + tap * kLanes * width;
        for (std::int64_t tile = 0; tile < width / kLanes; ++tile) {
          BFloat16Bits* const own = to + tile * kTileSize + i * kTileSize / 2;
          matrix_.pack_pairs({from + tile * kLanes,
                              width,
                              kLanes / 2,
                              {own, m_.weight_piece(), m_.pieces, &found}});
        }
      }
    }
    return found;
  }

  // Channels of a box, as numbers in the order of the tile, with zeros around.
  void stage(const ConvBuffers& b, const Activation& tensor,
             const std::int64_t (&shape)[kMaxConvRank], const Box& box, std::int64_t at,
             const Range& channels) const {
    const bool is_whole = channels.size() % kLanes == 0 && !box.has_gaps();
    const std::int64_t begin = is_whole ? at : m_.staged_places(), end = begin + box.positions();
    for (std::int64_t block = 0; block * kLanes < channels.size(); ++block) {
      float* const places = staged(b) + block * staged_pitch();
      std::fill(places, places + begin * kLanes, 0.0f);
      if (is_whole) std::fill(places + end * kLanes, places + staged_pitch(), 0.0f);
    }
    copy_.bring(tensor, shape, box, channels, staged(b) + at * kLanes, staged_pitch());
  }

  // A pair of blocks of outputs, and their share of the bias gradient.
  Magnitudes bring_grad(const ConvBuffers& b, std::int64_t index, std::int64_t pair,
                        std::int64_t part, bool is_first) const {
    const MatrixTile tile = tiles_.tile(index);
    Box box{};
    box.images = tile.images;
    box.image_step = tile.image_step;
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      box.axes[axis] = tile.axes[axis].grad;
      box.step[axis] = tile.step[axis];
    }
    const int blocks = n_.blocks_of_output_pair(pair);
    const std::int64_t first = n_.first_block(pair);
    const Range own = tile.span(&MatrixAxis::Section::outputs);
    stage(b, b.grad_output, s_.out, box, tile.span(&MatrixAxis::Section::grad).begin,
          {first * kLanes, std::min((first + blocks) * kLanes, s_.outputs)});
    Magnitudes found;
    char* const memory = tile_memory(b, index);
    if (s_.wants_input) {
      const float* const second = blocks == kPair ? staged(b) + staged_pitch() : nullptr;
      matrix_.pack_channels(
          {staged(b),
           second,
           m_.grad_places(),
           {grad_of(memory) + pair * m_.grad_pair(), m_.grad_piece(), m_.pieces, &found}});
    }
    for (int i = 0; i < blocks; ++i) {
      const float* const from = staged(b) + i * staged_pitch() + own.begin * kLanes;
      if (s_.wants_bias) {
        float* const to = bias_sums(b, part) + (first + i) * kLanes;
        if (is_first) std::fill_n(to, kLanes, 0.0f);
        kernels_.sum({from, kLanes, own.size(), to});
      }
      if (s_.wants_weight) {
        matrix_.pack_rows({from,
                           m_.steps,
                           {rows_of(memory) + (pair * kPair + i) * m_.rows_block(), m_.rows_piece(),
                            m_.pieces, &found}});
      }
    }
    return found;
  }

  // The planes of a pair of blocks of inputs. Those that differ along the last axis only are
  // brought together.
  Magnitudes bring_input(const ConvBuffers& b, std::int64_t index, std::int64_t pair) const {
    Magnitudes found;
    const MatrixTile tile = tiles_.tile(index);
    const std::int64_t stride = s_.stride[2];
    Box box{};
    box.images = tile.images;
    box.image_step = tile.image_step * stride;
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      box.axes[axis] = tile.axes[axis].all;
      box.step[axis] = tile.step[axis] * stride;
    }
    box.axes[2] = {box.axes[2].begin * stride, box.axes[2].end * stride};
    box.step[2] = 1;
    std::size_t plane = 0;
    while (plane < m_.planes.size()) {
      const std::int64_t* const r = m_.planes[plane].remainder;
      Activation rows = b.input;
      for (int axis = 0; axis < 2; ++axis) {
        rows.data += r[axis] * b.input.stride_bytes[axis];
        rows.stride_bytes[axis] *= s_.stride[axis];
      }
      stage(b, rows, {tiles_.axis(0).plane_size(r[0]), tiles_.axis(1).plane_size(r[1]), s_.in[2]},
            box, 0, input_channels(pair));
      for (; plane < m_.planes.size() && m_.planes[plane].remainder[0] == r[0] &&
             m_.planes[plane].remainder[1] == r[1];
           ++plane) {
        pack_plane(b, index, pair, static_cast<std::int64_t>(plane), found);
      }
    }
    return found;
  }

  void pack_plane(const ConvBuffers& b, std::int64_t index, std::int64_t pair, std::int64_t plane,
                  Magnitudes& found) const {
    const std::int64_t stride = s_.stride[2];
    const std::int64_t remainder = m_.planes[static_cast<std::size_t>(plane)].remainder[2];
    for (int i = 0; i < n_.blocks_of_input_pair(pair); ++i) {
      for (std::int64_t parity = 0; parity < 2; ++parity) {
        if (!m_.has_order(parity)) continue;
        const float* const from =
            staged(b) + i * staged_pitch() + (parity * stride + remainder) * kLanes;
        BFloat16Bits* const to = input_of(tile_memory(b, index)) +
                                 (input_block(pair) + i) * m_.input_block() + m_.order_at(parity) +
                                 plane * m_.input_plane();
        matrix_.pack_pairs(
            {from, stride * kLanes, m_.place_pairs(), {to, m_.input_piece(), m_.pieces, &found}});
      }
    }
  }

  // The first block of a pair, and its channels.
  std::int64_t input_block(std::int64_t pair) const {
    return pair / n_.input_pairs() * n_.input_blocks + pair % n_.input_pairs() * kPair;
  }
  Range input_channels(std::int64_t pair) const {
    const std::int64_t group = pair / n_.input_pairs() * n_.inputs;
    const std::int64_t first = pair % n_.input_pairs() * kPair * kLanes;
    return {group + first, group + std::min(first + kPair * kLanes, n_.inputs)};
  }

  void work_task(const ConvBuffers& b, const Task& task) const {
    if (task.kind == Kind::outputs) {
      float* const all_sums = own_sums(b) - n_.sums_of_pair(task.number);
      add_weights(b, task.tiles, task.number, all_sums, false);
      write_weights(b, task.number, all_sums, 1);
    } else if (task.kind == Kind::inputs) {
      for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
        write_inputs(b, index, task.number);
      }
    } else {
      work_tiles(b, task);
    }
  }

  void work_tiles(const ConvBuffers& b, const Task& task) const {
    Magnitudes grad, input;
    const std::int64_t part = task.number;
    for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
      const bool is_first = index == task.tiles.begin;
      for (std::int64_t pair = 0; pair < n_.all_output_pairs(); ++pair) {
        grad = joined(grad, bring_grad(b, index, pair, part, is_first));
      }
      for (std::int64_t pair = 0; s_.wants_weight && pair < n_.all_input_pairs(); ++pair) {
        input = joined(input, bring_input(b, index, pair));
      }
      for (std::int64_t pair = 0; s_.wants_weight && pair < n_.all_output_pairs(); ++pair) {
        add_weights(b, {index, index + 1}, pair, sums(b, part), !is_first);
      }
      for (std::int64_t pair = 0; s_.wants_input && pair < n_.all_input_pairs(); ++pair) {
        write_inputs(b, index, pair);
      }
    }
    magnitudes(b)[part] = grad;
    magnitudes(b)[grad_magnitudes() + part] = input;
  }

  // Sums of a pair of output blocks: (pairs of input blocks, taps, outputs, inputs).
  void add_weights(const ConvBuffers& b, const Range& tiles, std::int64_t pair, float* all_sums,
                   bool adds) const {
    const std::int64_t group = pair / n_.output_pairs();
    const std::int64_t tile_numbers = static_cast<std::int64_t>(tile_bytes_ / sizeof(BFloat16Bits));
    const std::int64_t runs_at_once =
        std::clamp<std::int64_t>(kStepsAtOnce / m_.steps, 1, kStepsAtOnce);
    const std::int64_t steps_at_once = ceil_divide(m_.steps, ceil_divide(m_.steps, kStepsAtOnce));
    MatrixRun runs[kStepsAtOnce];
    std::int64_t starts[kStepsAtOnce];
    MatrixProducts p{};
    p.runs = runs;
    p.pieces = m_.pieces;
    p.left_tile = m_.rows_block();
    p.left_pitch = m_.rows_piece();
    p.right_tile = m_.input_block();
    p.right_pitch = m_.input_piece();
    p.sum_tile = kLanes;
    p.row_tiles = n_.blocks_of_output_pair(pair);
    float* sums_of_inputs = all_sums + n_.sums_of_pair(pair);
    for (std::int64_t i = 0; i < n_.input_pairs(); ++i) {
      const std::int64_t inputs = group * n_.input_pairs() + i;
      p.column_tiles = n_.blocks_of_input_pair(inputs);
      p.sum_step = p.column_tiles * kLanes;
      const std::int64_t tap_sums = p.row_tiles * kLanes * p.sum_step;
      for (std::int64_t first = tiles.begin; first < tiles.end; first += runs_at_once) {
        char* const base = tile_memory(b, first);
        p.run_count = std::min(runs_at_once, tiles.end - first);
        for (std::int64_t run = 0; run < p.run_count; ++run) {
          starts[run] = tiles_.tile(first + run).span(&MatrixAxis::Section::outputs).begin;
        }
        for (std::int64_t step = 0; step < m_.steps; step += steps_at_once) {
          p.steps = std::min(steps_at_once, m_.steps - step);
          p.left = rows_of(base) + pair * kPair * m_.rows_block() + step * kTileSize;
          p.right = input_of(base) + input_block(inputs) * m_.input_block() + step * kTileSize;
          p.adds = adds || first > tiles.begin || step > 0;
          for (std::int64_t tap = 0; tap < n_.taps; ++tap) {
            const MatrixLayout::Tap& own = m_.taps[static_cast<std::size_t>(tap)];
            for (std::int64_t run = 0; run < p.run_count; ++run) {
              const std::int64_t at = run * tile_numbers;
              runs[run] = {at, at + m_.input_at(own.plane, starts[run] + own.shift)};
            }
            p.sums = sums_of_inputs + tap * tap_sums;
            matrix_.multiply(p);
          }
        }
      }
      sums_of_inputs += n_.taps * tap_sums;
    }
  }

  // Adds up the parts.
  void write_weights(const ConvBuffers& b, std::int64_t pair, float* all_sums,
                     std::int64_t parts) const {
    const std::int64_t group = pair / n_.output_pairs();
    const std::int64_t outputs = n_.blocks_of_output_pair(pair) * kLanes;
    const std::int64_t first = n_.first_block(pair) * kLanes;
    const std::int64_t end = std::min(first + outputs, (group + 1) * n_.outputs);
    float* const total = all_sums + n_.sums_of_pair(pair);
    const std::int64_t count = outputs * n_.padded_inputs() * n_.taps;
    for (std::int64_t part = 1; part < parts; ++part) {
      const float* const more = total + part * part_sums();
      for (std::int64_t i = 0; i < count; ++i) total[i] += more[i];
    }
    float* from = total;
    for (std::int64_t i = 0; i < n_.input_pairs(); ++i) {
      const std::int64_t width = n_.blocks_of_input_pair(i) * kLanes;
      const std::int64_t inputs = std::min(width, n_.inputs - i * kPair * kLanes);
      for (std::int64_t o = first; o < end; ++o) {
        float* const to =
            static_cast<float*>(b.grad_weight) + (o * n_.inputs + i * kPair * kLanes) * n_.taps;
        constexpr std::int64_t kBytes = sizeof(float);
        sum_kernels_.from_lanes({reinterpret_cast<char*>(to), n_.taps * kBytes, kBytes,
                                 from + (o - first) * width, outputs * width, kLanes, inputs,
                                 n_.taps});
      }
      from += n_.taps * outputs * width;
    }
  }

  // A pair of input blocks of a tile.
  void write_inputs(const ConvBuffers& b, std::int64_t index, std::int64_t pair) const {
    const MatrixTile tile = tiles_.tile(index);
    if (!tile.has_results()) return;
    const Range own = tile.span(&MatrixAxis::Section::results);
    const std::int64_t group = pair / n_.input_pairs();
    const std::int64_t* const s = s_.stride;
    MatrixProducts p{};
    p.steps = 1;
    p.pieces = m_.pieces;
    p.left_tile = kTileSize;
    p.left_pitch = m_.grad_piece();
    p.right = packed_weights(b, pair);
    p.right_tile = kTileSize;
    p.right_pitch = m_.weight_piece();
    p.sum_step = s[2] * kLanes;
    p.sum_tile = result_pitch();
    p.column_tiles = n_.blocks_of_input_pair(pair);
    const BFloat16Bits* const grad =
        grad_of(tile_memory(b, index)) + group * n_.output_pairs() * m_.grad_pair();
    for (std::int64_t row = 0; row < s[0] * s[1]; ++row) {
      for (std::int64_t column = 0; column < s[2]; ++column) {
        const auto& runs = input_runs_[static_cast<std::size_t>(row * s[2] + column)];
        p.runs = runs.data();
        p.run_count = static_cast<std::int64_t>(runs.size());
        for (std::int64_t place = own.begin; place < own.end; place += kPair * kTileRows) {
          p.row_tiles = own.end - place > kTileRows ? 2 : 1;
          p.left = grad + place * kTileDepth;
          p.sums = results(b) + ((place - own.begin) * s[2] + column) * kLanes;
          matrix_.multiply(p);
        }
      }
      put_rows(b, tile, pair, row / s[1], row % s[1]);
    }
  }

  // Those rows that have these remainders.
  void put_rows(const ConvBuffers& b, const MatrixTile& tile, std::int64_t pair, std::int64_t d,
                std::int64_t h) const {
    const std::int64_t start = tile.span(&MatrixAxis::Section::results).begin;
    const std::int64_t* const s = s_.stride;
    const Range columns = tile.axes[2].results;
    const std::int64_t column = columns.begin * s[2];
    const std::int64_t count = std::min(columns.end * s[2], s_.in[2]) - column;
    const Range channels = input_channels(pair);
    Range rows[kMaxConvRank] = {tile.axes[0].results, tile.axes[1].results, columns};
    rows[0].end = std::min(rows[0].end, tiles_.axis(0).plane_size(d));
    rows[1].end = std::min(rows[1].end, tiles_.axis(1).plane_size(h));
    for_rows(tile.images, rows, [&](std::int64_t image, std::int64_t i, std::int64_t j) {
      const std::int64_t place = tile.place(image, i, j, columns.begin) - start;
      char* const to =
          copy_.element(b.grad_input, channels.begin, image, i * s[0] + d, j * s[1] + h, column);
      kernels_.from_lanes({to, b.grad_input.channel_stride_bytes, b.grad_input.stride_bytes[2],
                           results(b) + place * s[2] * kLanes, kLanes, result_pitch(),
                           channels.size(), count});
    });
  }

  void write_bias(const ConvBuffers& b, std::int64_t pair) const {
    const Range blocks = n_.output_blocks_of({pair, pair + 1});
    const std::int64_t end = std::min(blocks.end * kLanes, s_.outputs);
    for (std::int64_t o = blocks.begin * kLanes; o < end; ++o) {
      float sum = bias_sums(b, 0)[o];
      for (std::int64_t part = 1; part < parts_; ++part) sum += bias_sums(b, part)[o];
      static_cast<float*>(b.grad_bias)[o] = sum;
    }
  }

  const ConvShape s_;
  const ConvKernels& kernels_;      // of the tensors' dtype
  const ConvKernels& sum_kernels_;  // of the sums'
  const MatrixKernels& matrix_;
  const BlockCopy<float> copy_;
  const BlockSizes n_;
  const BlockOrder<float> order_;
  const std::int64_t wanted_;
  const bool is_shared_;
  const double place_bytes_;
  const MatrixTiles tiles_;
  const MatrixLayout m_;
  std::unique_ptr<const ConvEngine> careful_;
  std::vector<std::vector<MatrixRun>> input_runs_;
  std::vector<Task> tasks_;
  std::int64_t parts_ = 1;
  std::size_t rows_at_ = 0, input_at_ = 0, tile_bytes_ = 0;
  std::size_t staged_at_ = 0, results_at_ = 0, own_sums_at_ = 0, worker_bytes_ = 0;
};

// float16 needs four products for one, which does not pay where packing takes most of the time.
bool is_worth_it(const ConvShape& s, DType dtype) {
  const bool is_float16 = dtype == DType::float16 && s.kernel_positions() > 1;
  if (dtype != DType::bfloat16 && !is_float16) return false;
  if (!s.wants_input && !s.wants_weight) return false;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    if (s.stride[axis] > kMostStride || s.padding[axis] > kMostReach || s.in[axis] > kMostReach ||
        s.kernel[axis] > kMostTaps || s.dilation[axis] > kMostReach) {
      return false;
    }
  }
  return s.kernel_positions() <= kMostTaps;
}

}  // namespace

std::unique_ptr<const ConvEngine> make_matrix_engine(const ConvShape& shape, const ConvCuts& cuts,
                                                     Rounding rounding, DType dtype, Isa isa,
                                                     std::unique_ptr<const ConvEngine>& careful) {
  if (!careful || matrix_kernels(isa) == nullptr || !is_worth_it(shape, dtype)) return nullptr;
  if (conv_kernels(isa, dtype).lanes != kTileRows) return nullptr;
  auto engine = std::make_unique<MatrixEngine>(shape, cuts, rounding, dtype, isa);
  if (!engine->is_usable()) return nullptr;
  engine->set_careful(std::move(careful));
  return engine;
}

}  // namespace backops

// Each engine says which problems it refuses, and what the others would cost: cycles of one core,
// from the multiplications, those on padding included, and from what it packs beyond what all
// engines copy.
#include "ops/conv/choose.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/error.h"
#include "kernels/conv/conv.h"
#include "ops/conv/blocks/engine.h"
#include "ops/conv/blocks/folds.h"
#include "ops/conv/lanes/engine.h"
#include "ops/conv/lanes/order.h"
#include "ops/conv/matrix/engine.h"
#include "ops/conv/pairs/engine.h"
#include "ops/conv/pairs/weight_layout.h"
#include "ops/conv/pairs/weight_product.h"
#include "ops/conv/plain.h"
#include "ops/conv/rows/engine.h"

namespace backops {
namespace {

// Where a problem is so far from what engines are made for that their lists would not fit.
constexpr double kMostClasses = 4096;  // of input positions, by what taps reach them
constexpr double kMostTaps = 65536;
constexpr double kMostWeights = 1e12;  // far from what 64 bits count

// Parts of the peak that kernels reach where nothing else slows them down.
constexpr double kProductRate = 0.85;
constexpr double kTapRate = 0.6;     // they load a vector for each multiplication
constexpr double kJoinedRate = 0.7;  // or spread one for every three, of groups
constexpr double kPlainCycles = 30;

double as_double(std::int64_t value) { return static_cast<double>(value); }

double product_of(const std::int64_t (&values)[kMaxConvRank]) {
  return as_double(values[0]) * as_double(values[1]) * as_double(values[2]);
}

std::int64_t width_of(const ConvTask& task, VectorSize size) {
  return conv_kernels(task.cpu.isa(), task.dtype, size).width;
}

double cycles_of_vectors(const ConvTask& task, double vectors, VectorSize size, double rate) {
  const auto bytes = width_of(task, size) * static_cast<std::int64_t>(task.shape.sum_bytes());
  return vectors / (task.cpu.products_per_cycle(bytes) * rate);
}

std::string refusal_of_lists(const ConvShape& s) {
  if (product_of(s.stride) > kMostClasses) return "strides of more than 4096 positions";
  if (product_of(s.kernel) > kMostTaps) return "a kernel of more than 65536 elements";
  if (as_double(s.outputs) * as_double(s.group_inputs()) * product_of(s.kernel) > kMostWeights) {
    return "more than 10^12 weights";
  }
  return "";
}

// ---- lanes ----

std::string refuse_lanes(const ConvTask& task) {
  const ConvShape& s = task.shape;
  if (s.groups == 1 && s.inputs * s.outputs > 1) return "one group: lanes are groups";
  return refusal_of_lists(s);
}

double lanes_cycles(const ConvTask& task, VectorSize size) {
  const ConvShape& s = task.shape;
  const double products = (s.makes_input ? 1 : 0) + (s.makes_weight ? 1 : 0);
  const ConvKernels& kernels = conv_kernels(task.cpu.isa(), task.dtype, size);
  const std::int64_t width = kernels.width, joined = joined_channels(s, kernels);
  const std::int64_t lanes = s.groups * joined;
  const double vectors =
      as_double(ceil_divide(lanes, width)) * s.multiplications() / as_double(lanes);
  // As many instructions load, convert and store half as many numbers.
  const double half = size_of(task.dtype) == s.sum_bytes() ? 1.15 : 1.4;
  const double loading = size == VectorSize::half ? half : 1;
  return cycles_of_vectors(task, loading * products * vectors, size,
                           joined > 1 ? kJoinedRate : kTapRate);
}

// ---- blocks ----

std::string refuse_blocks(const ConvTask& task) { return refusal_of_lists(task.shape); }

// Vectors on the side of the inputs for the input product; on either side for the weights, where a
// few sums at a time wait for each other.
double blocks_cycles(const ConvTask& task, VectorSize size) {
  const ConvShape& s = task.shape;
  const std::int64_t width = width_of(task, size);
  const double inputs = as_double(s.group_inputs()), outputs = as_double(s.group_outputs());
  const double input_vectors = as_double(ceil_divide(s.group_inputs(), width));
  const double output_vectors = as_double(ceil_divide(s.group_outputs(), width));
  const auto waiting = [](double rows, double vectors) {
    constexpr double kSumsAtOnce = 8;
    return std::max(1.0, kSumsAtOnce / (std::min(rows, kSumsAtOnce) * std::min(vectors, 2.0)));
  };
  double vectors = 0;
  if (s.makes_input) vectors += input_vectors * outputs;
  if (s.makes_weight) {
    vectors += std::min(output_vectors * inputs * waiting(inputs, output_vectors),
                        input_vectors * outputs * waiting(outputs, input_vectors));
  }
  vectors *= s.multiplications() / (inputs * outputs);
  // Twice as many instructions for the same products: 3 to 13 % more time on a Zen 4.
  if (size == VectorSize::half) vectors *= 1.08;
  return cycles_of_vectors(task, vectors, size, kProductRate);
}

// ---- folded ----

std::string refuse_folded(const ConvTask& task) {
  const ConvShape& s = task.shape;
  if (!s.makes_input && !s.makes_weight) return "bias sums only";
  if (s.groups != 1) return "groups: a fold has all channels";
  // Folds lie where windows begin, which are then apart on the side that is read.
  if (s.is_turned && s.has_strides()) return "strides of an output product";
  if (s.dilation[2] != 1) return "a dilation along the row: folds are neighbours";
  if (s.is_turned && (s.padding[2] >= s.kernel[2] || s.in[2] > s.out[2] + s.padding[2])) {
    return "zeros that fill a window";
  }
  if (s.kernel[2] == 1) return "a kernel of one column: nothing to fold";
  if (s.inputs >= width_of(task, VectorSize::full)) return "input channels that fill a vector";
  // Rows of folds have the gaps between them, too.
  if (s.stride[2] > std::max<std::int64_t>(16, 2 * s.kernel[2])) return "folds far apart";
  if (s.kernel[2] > FoldedTaps::kMostNumbers / s.inputs) return "folds of more than 1024 numbers";
  return refusal_of_lists(FoldedTaps(s, 1).problem());
}

// Folds of an input product are added where they overlap, which short rows are dominated by.
double folded_cycles(const ConvTask& task, VectorSize size) {
  constexpr double kVectorCycles = 3.5, kResultCycles = 5, kMore = 1.1;
  const ConvShape& s = task.shape;
  ConvTask own = task;
  own.shape = FoldedTaps(s, width_of(task, size)).problem();
  double cycles = kMore * blocks_cycles(own, size);
  if (s.makes_input) {
    const double vectors = as_double(ceil_divide(own.shape.inputs, width_of(task, size)));
    cycles += as_double(s.batch) * (kVectorCycles * vectors * as_double(own.shape.in_positions()) +
                                    kResultCycles * as_double(s.in_image()));
  }
  return cycles;
}

// ---- rows ----

// Of the channels on the side that is read, those of a window in one row.
std::string refuse_row_windows(const ConvTask& task, std::int64_t channels) {
  constexpr std::int64_t kMostNumbers = 4096;
  const ConvShape& s = task.shape;
  if (s.groups != 1) return "groups: a row has all channels";
  if (s.dilation[2] != 1) return "a dilation along the row: windows are neighbours";
  if (s.kernel[2] == 1) return "a kernel of one column: windows have no rows";
  if (channels >= width_of(task, VectorSize::full)) return "channels that fill a vector";
  if (s.kernel[2] > kMostNumbers / channels) return "windows of more than 4096 numbers in a row";
  if (s.stride[2] > std::max<std::int64_t>(16, 2 * s.kernel[2])) return "windows far apart";
  return refusal_of_lists(s);
}

std::string refuse_rows(const ConvTask& task) {
  const ConvShape& s = task.shape;
  if (s.makes_weight) {
    if (s.makes_input) return "two products at once";
    if (row_pairs(task, VectorSize::full) == nullptr)
      return "a weight product of other numbers than bfloat16 pairs";
    return refuse_row_windows(task, s.inputs);
  }
  if (!s.is_turned || !s.makes_input) return "an input product that is not turned";
  if (s.makes_bias) return "bias sums beside it";
  return refuse_row_windows(task, s.outputs);
}

// A weight product by pairs of positions: runs are rows of outputs. Sums are those of some vectors
// of outputs times some of the numbers that a window has in a row.
double position_pair_cycles(const ConvTask& task, VectorSize size, std::int64_t numbers,
                            double packing) {
  constexpr std::int64_t kMostRows = 14;
  constexpr double kSumsAtOnce = 9.5;                   // fewer wait for each other
  constexpr double kRunCycles = 24, kCallCycles = 100;  // that beginning a run or a tap takes
  constexpr double kRowCycles = 10;                     // that bringing a row of a channel takes
  const ConvShape& s = task.shape;
  const double vectors = as_double(ceil_divide(s.group_outputs(), width_of(task, size)));
  const double rows = as_double(numbers) / as_double(ceil_divide(numbers, kMostRows));
  const double sums = rows * std::min(vectors, 2.0);
  // As many numbers are spread for vectors of half the width.
  const double spreading = size == VectorSize::half ? 1.15 : 1;
  const double step =
      spreading * cycles_of_vectors(task, std::max(sums, kSumsAtOnce), size, kProductRate);
  const double steps = as_double(ceil_divide(s.out[2], 2));
  const double runs =
      vectors / sums * s.multiplications() / as_double(s.group_outputs() * s.out[2]);
  const double elements = as_double(s.in_image() + s.out_image());
  const double all_rows = as_double(s.in_image() / s.in[2] + s.out_image() / s.out[2]);
  return runs * (steps * step + kRunCycles + kCallCycles / as_double(s.out[1])) +
         as_double(s.batch) * (elements * packing + all_rows * kRowCycles);
}

// Runs of products are as long as a row of a window, not as the channels are many.
double rows_cycles(const ConvTask& task, VectorSize size) {
  constexpr double kLongRuns = 0.9, kPackingCycles = 0.4;
  const ConvShape& s = task.shape;
  if (s.makes_weight) {
    return position_pair_cycles(task, size, s.kernel[2] * s.inputs, kPackingCycles);
  }
  const double pairs = row_pairs(task, size) != nullptr ? 2 : 1;
  return kLongRuns * blocks_cycles(task, size) / pairs;
}

// ---- matrix ----

// How many times as many positions there are with the zeros between rows, which neighbours share.
double with_zeros(const ConvShape& s) {
  double factor = 1;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    const double size = as_double(s.is_turned ? s.in[axis] : s.out[axis]);
    const double reach =
        as_double((s.kernel[axis] - 1) * s.dilation[axis]) / as_double(s.stride[axis]);
    factor *= 1 + reach / (2 * size);
  }
  return factor;
}

double matrix_cycles(const ConvTask& task, VectorSize) {
  constexpr double kTileProducts = 400, kPackingCycles = 1, kPairRate = 0.82;
  // A pair for each lane of a vector, as often as there are products of such vectors.
  const double pair_products = kPairRate * 32 * task.cpu.products_per_cycle(64);
  const double rate = task.cpu.has(Capability::amx) ? kTileProducts : pair_products;
  const ConvShape& s = task.shape;
  const double pieces = task.dtype == DType::bfloat16 ? 1 : 2;
  // Tiles alone in their row or column are loaded more often.
  const auto tiles = [](std::int64_t channels) {
    constexpr double kAlone = 1.1;
    const std::int64_t count = ceil_divide(channels, 16);
    return as_double(count) * (count == 1 ? kAlone : 1);
  };
  const double channels =
      256 * tiles(s.group_inputs()) * tiles(s.group_outputs()) * as_double(s.groups);
  const double products = (s.makes_input ? 1 : 0) + (s.makes_weight ? 1 : 0);
  const std::int64_t packed =
      (s.makes_input ? s.out_image() : 0) + (s.makes_weight ? s.out_image() + s.in_image() : 0);
  const double elements = as_double(s.batch) * as_double(packed) * pieces;
  return products * with_zeros(s) * as_double(s.batch * s.windows()) * product_of(s.kernel) *
             channels * pieces * pieces / rate +
         elements * kPackingCycles;
}

std::unique_ptr<const ConvEngine> make_matrix(const ConvTask& task, VectorSize size) {
  return make_matrix_engine(task, make_blocks_engine(task, size));
}

// ---- pairs ----

std::string refuse_pairs(const ConvTask& task) {
  const std::string refusal = pairs_refusal(task);
  return refusal.empty() ? refusal_of_lists(task.shape) : refusal;
}

double pairs_cycles(const ConvTask& task, VectorSize size) {
  if (task.shape.makes_weight) {
    constexpr double kPackingCycles = 0.27;
    ConvTask own = task;
    own.shape = with_joined_rows(task.shape);
    return position_pair_cycles(own, size, own.shape.group_inputs(), kPackingCycles);
  }
  // Runs of small groups are as short as the pairs are few.
  constexpr double kShortRuns = 1.3;
  ConvTask own = task;
  own.shape = of_pairs(task.shape);
  const bool is_part =
      task.shape.groups > 1 && task.shape.group_inputs() < width_of(task, VectorSize::full);
  return blocks_cycles(own, size) * (is_part ? kShortRuns : 1);
}

std::unique_ptr<const ConvEngine> make_pairs(const ConvTask& task, VectorSize size) {
  auto careful = make_blocks_engine(task, size);
  return task.shape.makes_weight ? make_pair_weights(task, size, std::move(careful))
                                 : make_pairs_engine(task, size, std::move(careful));
}

// ---- plain ----

std::string refuse_plain(const ConvTask&) { return ""; }
double plain_cycles(const ConvTask& task, VectorSize) {
  return 2 * task.shape.multiplications() * kPlainCycles;
}
std::unique_ptr<const ConvEngine> make_plain(const ConvTask& task, VectorSize) {
  return make_plain_engine(task);
}

// ---- the table ----

struct Row {
  const char* name;
  const char* takes;
  std::string (*refusal)(const ConvTask&);  // empty, or the reason
  double (*cycles)(const ConvTask&, VectorSize size);
  std::unique_ptr<const ConvEngine> (*make)(const ConvTask&, VectorSize size);
  bool has_half;  // vectors of half the width are tried, too
};

constexpr Row kEngines[] = {
    {"lanes", "groups as the lanes of vectors: depthwise, and many small groups", refuse_lanes,
     lanes_cycles, make_lanes_engine, true},
    {"blocks", "channels in blocks of a vector: dense layers, larger groups", refuse_blocks,
     blocks_cycles, make_blocks_engine, true},
    {"folded", "few input channels: the taps of a row take the place of channels", refuse_folded,
     folded_cycles, make_folded_engine, true},
    {"rows", "few channels on the side that is read: a row of a window takes their place",
     refuse_rows, rows_cycles, make_rows_engine, true},
    {"matrix", "bfloat16 and float16 on CPUs with products of bfloat16", matrix_refusal,
     matrix_cycles, make_matrix, false},
    {"pairs", "bfloat16 products, one at a time, on CPUs with products of bfloat16 pairs",
     refuse_pairs, pairs_cycles, make_pairs, true},
    {"plain", "everything, element by element", refuse_plain, plain_cycles, make_plain, false},
};

struct Offer {
  const Row* row;
  VectorSize size;
  double cycles;
  std::string refusal;
};

Offer offer_of(const Row& row, const ConvTask& task) {
  Offer offer{&row, VectorSize::full, std::numeric_limits<double>::infinity(), row.refusal(task)};
  if (!offer.refusal.empty()) return offer;
  offer.cycles = row.cycles(task, VectorSize::full);
  if (!row.has_half || width_of(task, VectorSize::half) == width_of(task, VectorSize::full))
    return offer;
  const double half = row.cycles(task, VectorSize::half);
  if (half < offer.cycles) {
    offer.size = VectorSize::half;
    offer.cycles = half;
  }
  return offer;
}

std::string cycles_text(double cycles) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g million cycles", cycles / 1e6);
  return text;
}

std::string line_of(const Offer& offer, bool is_chosen) {
  std::string line = offer.row->name;
  line += ": ";
  if (is_chosen) line += "chosen, ";
  if (offer.refusal.empty()) {
    line += cycles_text(offer.cycles);
    if (offer.size == VectorSize::half) line += ", vectors of half width";
  } else {
    line += "does not take " + offer.refusal;
  }
  return line;
}

const Row* forced_row() {
  const char* const name = std::getenv("BACKOPS_ENGINE");
  if (name == nullptr || *name == '\0') return nullptr;
  std::string names;
  for (const Row& row : kEngines) {
    if (std::string(name) == row.name) return &row;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Error(ErrorKind::param, "BACKOPS_ENGINE", "'" + std::string(name) + "'",
              "expected one of " + names);
}

std::vector<Offer> offers_for(const ConvTask& task) {
  std::vector<Offer> offers;
  for (const Row& row : kEngines) offers.push_back(offer_of(row, task));
  return offers;
}

// Null where nothing is left.
Offer* cheapest(std::vector<Offer>& offers, const Row* forced) {
  Offer* best = nullptr;
  for (Offer& offer : offers) {
    const bool is_open = offer.refusal.empty() && (forced == nullptr || forced == offer.row);
    if (is_open && (best == nullptr || offer.cycles < best->cycles)) best = &offer;
  }
  return best;
}

std::string text_of(const std::vector<Offer>& offers, const Offer* chosen) {
  std::string text;
  for (const Offer& offer : offers) {
    text += (text.empty() ? "" : "\n") + line_of(offer, &offer == chosen);
  }
  return text;
}

}  // namespace

ConvChoice choose_engine(const ConvTask& task) {
  const Row* const forced = forced_row();
  std::vector<Offer> offers = offers_for(task);
  while (Offer* const chosen = cheapest(offers, forced)) {
    auto engine = chosen->row->make(task, chosen->size);
    if (engine) return {std::move(engine), text_of(offers, chosen)};
    chosen->refusal = "windows that reach so far: its tiles would be too large";
  }
  // Only one that is forced takes less than everything.
  const Offer& refused = offers[static_cast<std::size_t>(forced - kEngines)];
  throw Error(ErrorKind::param, "BACKOPS_ENGINE", "'" + std::string(forced->name) + "'",
              "which does not take " + refused.refusal);
}

bool is_input_better_apart(const ConvTask& task) {
  constexpr double kTwice = 1.02;
  if (!task.shape.makes_input || !task.shape.makes_weight) return false;
  const Row* const forced = forced_row();
  ConvTask input = task, others = task;
  input.shape.makes_weight = input.shape.makes_bias = false;
  others.shape.makes_input = false;
  std::vector<Offer> together = offers_for(task), alone = offers_for(input),
                     rest = offers_for(others);
  const Offer* const best = cheapest(together, forced);
  const Offer *const own = cheapest(alone, forced), *const other = cheapest(rest, forced);
  if (best == nullptr || own == nullptr || other == nullptr) return false;
  // What makes both at once brings outputs once; estimates of one product have that in them.
  constexpr double kBringCycles = 0.6, kBeginCycles = 2e5;
  const bool could_be_both = own->row->refusal(task).empty();
  const double outputs = as_double(task.shape.batch) * as_double(task.shape.out_image());
  const double again = could_be_both ? kBeginCycles + kBringCycles * outputs : 0;
  return kTwice * (own->cycles + other->cycles) + again < best->cycles;
}

std::string explain_choice(const ConvTask& task) {
  std::vector<Offer> offers = offers_for(task);
  return text_of(offers, cheapest(offers, nullptr));
}

std::vector<EngineText> engine_texts() {
  std::vector<EngineText> texts;
  for (const Row& row : kEngines) texts.push_back({row.name, row.takes});
  return texts;
}

}  // namespace backops

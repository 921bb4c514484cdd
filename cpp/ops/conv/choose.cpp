// Which problems each engine refuses, how it is made, and which of those that are left is the
// cheapest. What they cost is in costs.cpp.
#include "ops/conv/choose.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/error.h"
#include "kernels/conv/conv.h"
#include "ops/conv/blocks/engine.h"
#include "ops/conv/blocks/folds.h"
#include "ops/conv/costs.h"
#include "ops/conv/lanes/engine.h"
#include "ops/conv/matrix/engine.h"
#include "ops/conv/pairs/engine.h"
#include "ops/conv/pairs/weight_product.h"
#include "ops/conv/plain.h"
#include "ops/conv/rows/engine.h"

namespace backops {
namespace {

// Where a problem is so far from what engines are made for that their lists would not fit.
constexpr double kMostClasses = 4096;  // of input positions, by what taps reach them
constexpr double kMostTaps = 65536;
constexpr double kMostWeights = 1e12;  // far from what 64 bits count

// As floating point: no size overflows.
double product_of(const std::int64_t (&values)[kMaxConvRank]) {
  double product = 1;
  for (const std::int64_t value : values) product *= static_cast<double>(value);
  return product;
}

std::string refusal_of_lists(const ConvShape& s) {
  if (product_of(s.stride) > kMostClasses) return "strides of more than 4096 positions";
  if (product_of(s.kernel) > kMostTaps) return "a kernel of more than 65536 elements";
  const double channel_pairs =
      static_cast<double>(s.outputs) * static_cast<double>(s.group_inputs());
  if (channel_pairs * product_of(s.kernel) > kMostWeights) return "more than 10^12 weights";
  return "";
}

// ---- lanes ----

std::string refuse_lanes(const ConvTask& task) {
  const ConvShape& s = task.shape;
  if (s.groups == 1 && s.inputs * s.outputs > 1) return "one group: lanes are groups";
  return refusal_of_lists(s);
}

// ---- blocks ----

std::string refuse_blocks(const ConvTask& task) { return refusal_of_lists(task.shape); }

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

// ---- matrix ----

std::unique_ptr<const ConvEngine> make_matrix(const ConvTask& task, VectorSize size) {
  return make_matrix_engine(task, make_blocks_engine(task, size));
}

// ---- pairs ----

std::string refuse_pairs(const ConvTask& task) {
  const std::string refusal = pairs_refusal(task);
  return refusal.empty() ? refusal_of_lists(task.shape) : refusal;
}

std::unique_ptr<const ConvEngine> make_pairs(const ConvTask& task, VectorSize size) {
  auto careful = make_blocks_engine(task, size);
  return task.shape.makes_weight ? make_pair_weights(task, size, std::move(careful))
                                 : make_pairs_engine(task, size, std::move(careful));
}

// ---- plain ----

std::string refuse_plain(const ConvTask&) { return ""; }
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
  const double outputs =
      static_cast<double>(task.shape.batch) * static_cast<double>(task.shape.out_image());
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

// The only place that knows which engines there are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/export.h"
#include "ops/conv/engine.h"

namespace backops {

struct ConvChoice {
  std::unique_ptr<const ConvEngine> engine;
  std::string why;  // a line for each engine
};

// The cheapest engine that takes the problem, or the one that BACKOPS_ENGINE names. Throws Error if
// that one does not take it, or is none.
ConvChoice choose_engine(const ConvTask& task);

// Whether the input product of a problem with others is better made apart, though what both read is
// read twice: by an engine that makes no other, or because each is best on another engine.
bool is_input_better_apart(const ConvTask& task);

// The same lines for a CPU that need not be this one: nothing is made.
std::string explain_choice(const ConvTask& task);

// Names and what they are for, for people.
struct EngineText {
  const char* name;
  const char* takes;
};
BACKOPS_API std::vector<EngineText> engine_texts();

}  // namespace backops

#pragma once

#include <memory>
#include <string>

#include "kernels/conv/conv.h"
#include "ops/conv/engine.h"

namespace backops {

// Why a problem is not taken, or empty.
std::string pairs_refusal(const ConvTask& task);

// The same problem with a pair of outputs in the place of each: what it costs is what blocks of
// these cost.
ConvShape of_pairs(const ConvShape& shape);

// `careful`, which takes the same problem, computes what has infinite or tiny numbers in it. Null
// without one, and where even the smallest tile is larger than a cache.
std::unique_ptr<const ConvEngine> make_pairs_engine(const ConvTask& task, VectorSize size,
                                                    std::unique_ptr<const ConvEngine> careful);

}  // namespace backops

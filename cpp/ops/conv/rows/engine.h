#pragma once

#include <memory>

#include "kernels/conv/conv.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/engine.h"

namespace backops {

// Null where even a row is larger than a cache.
std::unique_ptr<const ConvEngine> make_rows_engine(const ConvTask& task, VectorSize size);

// What multiplies bfloat16 numbers in pairs; null where they are sums.
const PairKernels* row_pairs(const ConvTask& task, VectorSize size);

}  // namespace backops

#pragma once

#include <memory>

#include "kernels/conv/conv.h"
#include "ops/conv/engine.h"

namespace backops {

// Null where even a row is larger than a cache.
std::unique_ptr<const ConvEngine> make_rows_engine(const ConvTask& task, VectorSize size);

}  // namespace backops

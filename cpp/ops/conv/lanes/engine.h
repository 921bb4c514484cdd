#pragma once

#include <memory>

#include "kernels/conv/conv.h"
#include "ops/conv/engine.h"

namespace backops {

// Null where even the smallest tile is larger than a cache.
std::unique_ptr<const ConvEngine> make_lanes_engine(const ConvTask& task, VectorSize size);

}  // namespace backops

#pragma once

#include <memory>

#include "kernels/conv/conv.h"
#include "ops/conv/engine.h"

namespace backops {

// Both are null where even the smallest tile is larger than a cache.

// Blocks of channels, one vector wide.
std::unique_ptr<const ConvEngine> make_blocks_engine(const ConvTask& task, VectorSize size);
// The same, of the taps of a row and few input channels together.
std::unique_ptr<const ConvEngine> make_folded_engine(const ConvTask& task, VectorSize size);

}  // namespace backops

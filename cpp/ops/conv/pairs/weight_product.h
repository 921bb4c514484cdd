#pragma once

#include <memory>

#include "kernels/conv/conv.h"
#include "ops/conv/engine.h"

namespace backops {

// For problems of bfloat16 tensors without an input product. `careful` takes the same problem. Null
// without it, without products of pairs, and where even a row is larger than a cache.
std::unique_ptr<const ConvEngine> make_pair_weights(const ConvTask& task, VectorSize size,
                                                    std::unique_ptr<const ConvEngine> careful);

}  // namespace backops

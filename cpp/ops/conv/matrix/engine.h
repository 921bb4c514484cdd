#pragma once

#include <memory>
#include <string>

#include "ops/conv/engine.h"

namespace backops {

// Why a problem is not taken, or empty.
std::string matrix_refusal(const ConvTask& task);

// `careful`, which takes the same problem, computes what has infinite or tiny numbers in it. Null
// without one, and where the tiles of a problem would be mostly zeros or need too much memory.
std::unique_ptr<const ConvEngine> make_matrix_engine(const ConvTask& task,
                                                     std::unique_ptr<const ConvEngine> careful);

}  // namespace backops

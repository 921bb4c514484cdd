// What each engine would cost: cycles of one core, from the multiplications, those on padding
// included, and from what it packs beyond what all engines copy. Of problems that it takes.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "ops/conv/engine.h"

namespace backops {

// Numbers of a vector.
std::int64_t width_of(const ConvTask& task, VectorSize size);

double lanes_cycles(const ConvTask& task, VectorSize size);
double blocks_cycles(const ConvTask& task, VectorSize size);
double folded_cycles(const ConvTask& task, VectorSize size);
double rows_cycles(const ConvTask& task, VectorSize size);
double matrix_cycles(const ConvTask& task, VectorSize size);
double pairs_cycles(const ConvTask& task, VectorSize size);
double plain_cycles(const ConvTask& task, VectorSize size);

}  // namespace backops

#pragma once

#include <memory>

#include "ops/conv/engine.h"

namespace backops {

std::unique_ptr<const ConvEngine> make_plain_engine(const ConvTask& task);

}  // namespace backops

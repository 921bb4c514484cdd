// The functions that XLA calls; what they take is said where they are defined.
#pragma once

#include "python/xla_abi.h"

namespace backops::xla {

Error* pool_backward(Call* call) noexcept;
Error* conv_backward(Call* call) noexcept;

}  // namespace backops::xla

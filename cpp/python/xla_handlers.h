// The functions that XLA calls; what they take is said where they are defined.
#pragma once

#include "python/xla_abi.h"

namespace backops::xla {

Error* pool(Call* call) noexcept;
Error* pool_backward(Call* call) noexcept;
Error* conv(Call* call) noexcept;
Error* conv_grad_input(Call* call) noexcept;
Error* conv_grad_weight(Call* call) noexcept;
Error* channel_sums(Call* call) noexcept;

}  // namespace backops::xla

// Pooling windows along one axis, from their definition.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ops/pool/windows.h"

namespace backops {
namespace test {

// The definition, word for word.
struct Definition {
  std::int64_t in, out;
  bool adaptive;
  std::int64_t kernel = 1, stride = 1, padding = 0;
  bool include_pad = true;

  using Wide = __int128;
  std::int64_t full_begin(std::int64_t o) const {
    if (adaptive) return static_cast<std::int64_t>(static_cast<Wide>(o) * in / out);
    return o * stride - padding;
  }
  std::int64_t full_end(std::int64_t o) const {
    if (!adaptive) return full_begin(o) + kernel;
    return static_cast<std::int64_t>((static_cast<Wide>(o + 1) * in + out - 1) / out);
  }
  std::int64_t begin(std::int64_t o) const { return std::max<std::int64_t>(0, full_begin(o)); }
  std::int64_t end(std::int64_t o) const { return std::min(in, full_end(o)); }
  bool holds(std::int64_t o, std::int64_t i) const { return begin(o) <= i && i < end(o); }
  std::int64_t divisor(std::int64_t o) const {
    if (adaptive || !include_pad) return end(o) - begin(o);
    return std::min(full_end(o), in + padding) - full_begin(o);
  }
  AxisWindows windows() const {
    return adaptive ? AxisWindows::adaptive(in, out)
                    : AxisWindows::fixed(in, out, kernel, stride, padding, include_pad);
  }
  std::string text() const {
    std::string result = (adaptive ? "adaptive in=" : "fixed in=") + std::to_string(in) +
                         " out=" + std::to_string(out);
    if (adaptive) return result;
    return result + " kernel=" + std::to_string(kernel) + " stride=" + std::to_string(stride) +
           " padding=" + std::to_string(padding) + (include_pad ? " include_pad" : "");
  }
};

inline std::int64_t pooled_size(std::int64_t in, std::int64_t kernel, std::int64_t stride,
                                std::int64_t padding, bool ceil_mode) {
  const std::int64_t room = in + 2 * padding - kernel;
  std::int64_t out = room / stride + 1;
  if (ceil_mode && room % stride != 0 && out * stride < in + padding) ++out;
  return out;
}

}  // namespace test
}  // namespace backops

// Element types of tensors, and how float16 and bfloat16 are stored.
#pragma once

#include <cstddef>
#include <cstdint>

namespace backops {

enum class DType : std::uint8_t { float16, bfloat16, float32, float64 };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    case DType::float32: return "float32";
    default: return "float64";
  }
}

// Bit patterns only: arithmetic happens in float.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

}  // namespace backops

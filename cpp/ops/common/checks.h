// Checks that operators share. All throw Error; names stand in braces, see Error.
#pragma once

#include <cstdint>
#include <string>

#include "base/export.h"
#include "base/tensor.h"

namespace backops {

// "{stride}[1]"
std::string element_name(const char* name, int axis);

// Parameters from `low` to 2**60: every sum of sizes and parameters stays inside 63 bits.
void check_range(const char* name, int axis, std::int64_t value, std::int64_t low);

// Positive sizes, but for the batch, and bytes that fit 63 bits.
void check_sizes(const char* name, const std::int64_t* shape, int ndim, bool batched);
void check_bytes(const char* name, const std::int64_t* shape, int ndim, DType dtype);

// `because` follows the expected dtype. What came may be a dtype that is none of ours.
void check_dtype(const char* name, DType got, DType expected, const char* because);
BACKOPS_API void check_dtype(const char* name, const std::string& got, DType expected,
                             const char* because);

// One memory location per element.
void check_no_overlap_within(const char* name, const TensorView& result);

// No result in memory of another tensor, no tensor in the workspace. What is read comes first.
void check_memory(const RunTensor* tensors, std::size_t count, const void* workspace,
                  std::size_t bytes);

}  // namespace backops

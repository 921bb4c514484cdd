// Gradients of a convolution with respect to its input, weight and bias: 1-D to 3-D, groups,
// stride, padding, dilation.
//
//   ConvProblem  what is asked        (check_conv_problem says whether it is legal)
//   ConvPlan     how it will be done  (immutable; any number of threads may run one plan at once)
//   run          the work             (throws nothing)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/cpu.h"
#include "base/export.h"
#include "base/tensor.h"
#include "ops/conv/shape.h"
#include "ops/precision.h"

namespace backops {

struct ConvProblem {
  int rank = 2;  // number of spatial axes, the last ones
  DType dtype = DType::float32;
  Rounding rounding = Rounding::none;
  int ndim = 4;  // of input and grad_output: rank + 1 (unbatched) or rank + 2
  std::int64_t input_shape[kMaxDims] = {};
  std::int64_t weight_shape[kMaxDims] = {};  // rank + 2 axes
  std::int64_t stride[kMaxConvRank] = {};
  // Zeros before the first element of an axis and after the last; they may differ.
  std::int64_t padding_before[kMaxConvRank] = {}, padding_after[kMaxConvRank] = {};
  std::int64_t dilation[kMaxConvRank] = {};
  std::int64_t groups = 1;
  bool wants_input = true, wants_weight = true, wants_bias = true;

  // For callers that know one padding for both ends, and have set the one before.
  void pad_both_ends() { std::copy_n(padding_before, kMaxConvRank, padding_after); }
};

// The tensors of one run. Those the problem does not need are null: `input` where no weight
// gradient is wanted, `weight` where no input gradient is, and gradients that are not wanted.
struct ConvTensors {
  const TensorView* grad_output = nullptr;
  const TensorView* input = nullptr;
  const TensorView* weight = nullptr;
  const TensorView* grad_input = nullptr;
  const TensorView* grad_weight = nullptr;
  const TensorView* grad_bias = nullptr;
};

class BACKOPS_API ConvPlan {
 public:
  // For up to `threads` threads. `deterministic`: the same bits for any number of them. Throws
  // Error for a problem that has no answer.
  ConvPlan(const ConvProblem& problem, int threads, bool deterministic,
           const Cpu& cpu = active_cpu());
  ~ConvPlan();
  ConvPlan(const ConvPlan&) = delete;
  ConvPlan& operator=(const ConvPlan&) = delete;

  const ConvProblem& problem() const;
  const std::int64_t* output_shape() const;  // of grad_output; ndim as the problem's
  const std::string& kernel() const;         // what will run, for people
  const std::string& why() const;            // a line for each engine: why it was chosen, or not
  std::size_t workspace_bytes() const;

  // Throw Error unless the tensors fit the problem: first what is read, then what is written.
  void check_inputs(const ConvTensors& tensors) const;
  void check_results(const ConvTensors& tensors) const;
  void check_workspace(const void* workspace, std::size_t bytes, const ConvTensors& tensors) const;

  // The tensors have passed their checks; `workspace` has workspace_bytes() bytes.
  void run(const ConvTensors& tensors, void* workspace, int threads) const noexcept;

  struct Impl;

 private:
  std::unique_ptr<const Impl> impl_;
};

// The lines of ConvPlan::why() for a CPU that need not be this one. Throws like ConvPlan.
BACKOPS_API std::string explain_conv(const ConvProblem& problem, const Cpu& cpu);

// The number of spatial axes of a weight. Throws Error unless it is 1 to 3.
BACKOPS_API int conv_rank(const std::int64_t* weight_shape, int ndim);

// Throws Error unless the problem is legal, and gives the shape of grad_output.
BACKOPS_API void check_conv_problem(const ConvProblem& problem,
                                    std::int64_t output_shape[kMaxDims]);

// The same, and that what is read fits: all that can be said before a plan is made.
BACKOPS_API void check_conv_inputs(const ConvProblem& problem, const ConvTensors& tensors);

}  // namespace backops

// Convolutions and transposed convolutions, and the gradients of both with respect to input, weight
// and bias: 1-D to 3-D, groups, stride, padding, dilation.
//
//   ConvProblem       what is asked
//   LegalConvProblem  that it has an answer
//   ConvPlan          how it will be done  (immutable; any number of threads may run one at once)
//   run               the work             (allocates nothing, throws nothing)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/cpu.h"
#include "base/export.h"
#include "base/tensor.h"
#include "ops/common/precision.h"
#include "ops/conv/shape.h"

namespace backops {

enum class ConvOperator : std::uint8_t { conv, backward, transpose, transpose_backward };

constexpr bool is_backward(ConvOperator op) {
  return op == ConvOperator::backward || op == ConvOperator::transpose_backward;
}
constexpr bool is_transposed(ConvOperator op) {
  return op == ConvOperator::transpose || op == ConvOperator::transpose_backward;
}

struct ConvProblem {
  ConvOperator op = ConvOperator::backward;
  int rank = 2;  // number of spatial axes, the last ones
  DType dtype = DType::float32;
  Rounding rounding = Rounding::none;
  int ndim = 4;  // of input and output: rank + 1 (unbatched) or rank + 2
  std::int64_t input_shape[kMaxDims] = {};
  // rank + 2 axes: (outputs, inputs of a group, kernel), transposed (inputs, outputs of a group,
  // kernel).
  std::int64_t weight_shape[kMaxDims] = {};
  std::int64_t stride[kMaxConvRank] = {};
  // Zeros before the first element of an axis and after the last; they may differ. Transposed: how
  // much of the output is cut off.
  std::int64_t padding_before[kMaxConvRank] = {}, padding_after[kMaxConvRank] = {};
  std::int64_t output_padding[kMaxConvRank] = {};  // transposed: outputs behind the last window
  std::int64_t dilation[kMaxConvRank] = {};
  std::int64_t groups = 1;
  bool has_bias = false;                                            // of forward operators
  bool wants_input = true, wants_weight = true, wants_bias = true;  // of backward operators

  // For callers that know one padding for both ends, and have set the one before.
  void pad_both_ends() { std::copy_n(padding_before, kMaxConvRank, padding_after); }
};

// The tensors of one run. Those the problem does not need are null.
struct ConvTensors {
  // Read. Backward, `input` is needed for the gradient of the weight, `weight` for that of the
  // input.
  const TensorView* input = nullptr;
  const TensorView* weight = nullptr;
  const TensorView* bias = nullptr;         // forward
  const TensorView* grad_output = nullptr;  // backward
  // Written.
  const TensorView* output = nullptr;  // forward
  const TensorView* grad_input = nullptr;
  const TensorView* grad_weight = nullptr;
  const TensorView* grad_bias = nullptr;
};

// A problem that was checked: whoever has one need not check it again. A plan takes long to make,
// so tensors can be held against the problem before.
class BACKOPS_API LegalConvProblem {
 public:
  // Throws Error for a problem that has no answer.
  explicit LegalConvProblem(const ConvProblem& problem);

  const ConvProblem& problem() const { return problem_; }
  // Of the output, which backward is grad_output; as many axes as the input.
  const std::int64_t* output_shape() const { return output_shape_; }
  std::int64_t output_channels() const { return output_shape_[problem_.ndim - problem_.rank - 1]; }

  // Throws Error unless what is read fits; what is not there is not looked at.
  void check_inputs(const ConvTensors& tensors) const;

 private:
  ConvProblem problem_;
  std::int64_t output_shape_[kMaxDims] = {};
};

class BACKOPS_API ConvPlan {
 public:
  // For up to `threads` threads. `deterministic`: the same bits for any number of them.
  ConvPlan(const LegalConvProblem& problem, int threads, bool deterministic,
           const Cpu& cpu = active_cpu());
  // Throws Error for a problem that has no answer.
  ConvPlan(const ConvProblem& problem, int threads, bool deterministic,
           const Cpu& cpu = active_cpu())
      : ConvPlan(LegalConvProblem(problem), threads, deterministic, cpu) {}
  ~ConvPlan();
  ConvPlan(const ConvPlan&) = delete;
  ConvPlan& operator=(const ConvPlan&) = delete;

  const LegalConvProblem& legal() const;
  const ConvProblem& problem() const { return legal().problem(); }
  const std::int64_t* output_shape() const { return legal().output_shape(); }
  const std::string& kernel() const;  // what will run, for people
  const std::string& why() const;     // a line for each engine: why it was chosen, or not
  std::size_t workspace_bytes() const;

  // Throw Error unless the tensors fit the problem: first what is read, then what is written.
  void check_inputs(const ConvTensors& tensors) const { legal().check_inputs(tensors); }
  void check_results(const ConvTensors& tensors) const;
  // Where they lie, if they have data: results apart from everything else, all from the workspace.
  void check_memory(const ConvTensors& tensors, const void* workspace = nullptr,
                    std::size_t bytes = 0) const;

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

}  // namespace backops

// Average pooling and its gradient with respect to the input: fixed or adaptive windows, 1-D to
// 3-D.
//
//   PoolProblem       what is asked
//   LegalPoolProblem  that it has an answer
//   PoolPlan          how it will be done  (immutable; any number of threads may run one at once)
//   run               the work             (allocates nothing, throws nothing)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/export.h"
#include "base/isa.h"
#include "base/tensor.h"
#include "ops/common/precision.h"

namespace backops {

constexpr int kMaxRank = 3;

// What is read, the source, and what is written, the target.
enum class PoolDirection : std::uint8_t {
  backward,  // {grad_output} to {grad_input}, which has the shape of {input}
  forward    // {input} to {output}
};

struct PoolProblem {
  PoolDirection direction = PoolDirection::backward;
  int rank = 2;  // number of pooled axes, the last ones
  DType dtype = DType::float32;
  Rounding rounding = Rounding::none;
  int ndim = 4;                             // rank + 1 (unbatched) or rank + 2
  std::int64_t input_shape[kMaxDims] = {};  // of the forward operator, whatever the direction

  bool adaptive = false;
  std::int64_t output_size[kMaxRank] = {};  // adaptive only

  std::int64_t kernel_size[kMaxRank] = {};  // fixed windows only, from here on
  std::int64_t stride[kMaxRank] = {};
  std::int64_t padding[kMaxRank] = {};
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::int64_t divisor_override = 0;  // 0: none

  bool is_forward() const { return direction == PoolDirection::forward; }
  // As errors name the tensors.
  const char* source_name() const { return is_forward() ? "{input}" : "{grad_output}"; }
  const char* target_name() const { return is_forward() ? "{output}" : "{grad_input}"; }
};

// A problem that was checked: whoever has one need not check it again. A plan may take long to
// make, so tensors can be held against the problem before.
class BACKOPS_API LegalPoolProblem {
 public:
  // Throws Error for a problem that has no answer.
  explicit LegalPoolProblem(const PoolProblem& problem);

  const PoolProblem& problem() const { return problem_; }
  const std::int64_t* output_shape() const { return output_shape_; }  // of {output}, {grad_output}
  const std::int64_t* source_shape() const {
    return problem_.is_forward() ? problem_.input_shape : output_shape_;
  }
  const std::int64_t* target_shape() const {
    return problem_.is_forward() ? output_shape_ : problem_.input_shape;
  }
  void set_rounding(Rounding rounding) { problem_.rounding = rounding; }  // all are legal

  // Throw Error unless the tensor fits; the target's elements must not share memory.
  void check_source(const TensorView& source) const;
  void check_target(const TensorView& target) const;

 private:
  void check_output(const TensorView& output, const char* name, const char* because) const;

  PoolProblem problem_;
  std::int64_t output_shape_[kMaxDims] = {};
};

// What check_target does for a gradient, of every problem, legal or not: throws Error unless the
// tensor has the input's dtype and shape, and one memory location per element.
BACKOPS_API void check_pool_grad_input(const PoolProblem& problem, const TensorView& grad_input);

class BACKOPS_API PoolPlan {
 public:
  explicit PoolPlan(const LegalPoolProblem& problem, Isa isa = active_isa());
  // Throws Error for a problem that has no answer.
  explicit PoolPlan(const PoolProblem& problem, Isa isa = active_isa())
      : PoolPlan(LegalPoolProblem(problem), isa) {}
  ~PoolPlan();
  PoolPlan(const PoolPlan&) = delete;
  PoolPlan& operator=(const PoolPlan&) = delete;

  const LegalPoolProblem& legal() const;
  const PoolProblem& problem() const { return legal().problem(); }
  const std::int64_t* output_shape() const { return legal().output_shape(); }
  const std::string& kernel() const;  // what will run, for people
  std::string why() const;            // a line for each way of running: chosen, or not
  std::size_t workspace_bytes(int threads) const;
  std::size_t table_bytes() const;  // what the plan itself holds, as far as it grows with shapes

  // As those of the problem.
  void check_source(const TensorView& source) const { legal().check_source(source); }
  void check_target(const TensorView& target) const { legal().check_target(target); }
  // Where they lie, if they have data: the target apart from the source, both from the workspace.
  void check_memory(const TensorView& source, const TensorView& target,
                    const void* workspace = nullptr, std::size_t bytes = 0) const;

  // Both tensors have passed their checks; `workspace` has workspace_bytes(threads) bytes.
  void run(const TensorView& source, const TensorView& target, void* workspace,
           int threads) const noexcept;

  struct Impl;

 private:
  std::unique_ptr<const Impl> impl_;
};

}  // namespace backops

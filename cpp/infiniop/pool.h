// What all pooling operators have in common: a source that is read, a target that is written, and
// parameters as clients give them.
#pragma once

#include <cstddef>

#include "infiniop/operand.h"
#include "infiniop/operator.h"
#include "ops/pool/plan.h"

namespace backops::infini {

// Arrays of size_t with one value for each spatial axis. `strides` may be null: the kernel's sizes;
// so may `pads`: 0.
struct PoolWindows {
  const void* kernel_size;
  const void* strides;
  const void* pads;
  bool ceil_mode = false;
};

// Of the input, (N, C, *spatial), whose number of axes tells the rank; the windows are still to be
// said. Throws Error for a rank outside the bounds.
PoolProblem pool_problem(PoolDirection direction, const InfiniopTensorDescriptor& input,
                         int lowest_rank, int highest_rank);

// The same with fixed windows.
PoolProblem pool_problem(PoolDirection direction, const InfiniopTensorDescriptor& input,
                         int lowest_rank, int highest_rank, const PoolWindows& windows);

// An Operator (operator.h) but for its kKind.
class PoolOperator {
 public:
  static constexpr infiniStatus_t kTooSmallWorkspace = INFINI_STATUS_BAD_PARAM;

  struct Data {
    void* target;
    const void* source;
  };

  PoolOperator(const InfiniopTensorDescriptor& target, const InfiniopTensorDescriptor& source,
               const PoolProblem& problem);

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  static bool has_all(const Data& data) { return !any_null(data.target, data.source); }
  void check_memory(const Data& data, const void* workspace, std::size_t bytes) const;
  void run(const Data& data, void* workspace) const noexcept;

 private:
  LegalPoolProblem checked(const PoolProblem& problem) const;

  const int threads_;
  const Operand target_, source_;
  const PoolPlan plan_;
  const std::size_t workspace_bytes_;
};

}  // namespace backops::infini

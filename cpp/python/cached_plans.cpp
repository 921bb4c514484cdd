#include "python/cached_plans.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "python/plan_cache.h"

namespace backops::python {
namespace {

constexpr std::size_t kPlainPoolFields = 9;
using PoolKey = std::array<std::int64_t, kPlainPoolFields + kMaxDims + 4 * kMaxRank>;

PoolKey key_of(const PoolProblem& p) {
  PoolKey key{};
  std::int64_t* at = key.data();
  for (const std::int64_t value :
       {std::int64_t{p.is_forward()}, std::int64_t{p.rank},
        std::int64_t{static_cast<std::uint8_t>(p.dtype)},
        std::int64_t{static_cast<std::uint8_t>(p.rounding)}, std::int64_t{p.ndim},
        std::int64_t{p.adaptive}, std::int64_t{p.ceil_mode}, std::int64_t{p.count_include_pad},
        p.divisor_override}) {
    *at++ = value;
  }
  at = std::copy(p.input_shape, p.input_shape + kMaxDims, at);
  for (const std::int64_t* list : {p.output_size, p.kernel_size, p.stride, p.padding}) {
    at = std::copy(list, list + kMaxRank, at);
  }
  return key;
}

PlanCache<PoolKey, PoolPlan>& pool_cache() {
  static PlanCache<PoolKey, PoolPlan> cache(256);
  return cache;
}

constexpr std::size_t kPlainConvFields = 12;
using ConvKey = std::array<std::int64_t, kPlainConvFields + 2 * kMaxDims + 5 * kMaxConvRank>;

ConvKey key_of(const ConvProblem& p, int threads, bool deterministic) {
  ConvKey key{};
  std::int64_t* at = key.data();
  for (const std::int64_t value :
       {std::int64_t{static_cast<std::uint8_t>(p.op)}, std::int64_t{p.rank},
        std::int64_t{static_cast<std::uint8_t>(p.dtype)},
        std::int64_t{static_cast<std::uint8_t>(p.rounding)}, std::int64_t{p.ndim}, p.groups,
        std::int64_t{p.has_bias}, std::int64_t{p.wants_input}, std::int64_t{p.wants_weight},
        std::int64_t{p.wants_bias}, std::int64_t{threads}, std::int64_t{deterministic}}) {
    *at++ = value;
  }
  at = std::copy(p.input_shape, p.input_shape + kMaxDims, at);
  at = std::copy(p.weight_shape, p.weight_shape + kMaxDims, at);
  for (const std::int64_t* list :
       {p.stride, p.padding_before, p.padding_after, p.output_padding, p.dilation}) {
    at = std::copy(list, list + kMaxConvRank, at);
  }
  return key;
}

PlanCache<ConvKey, ConvPlan>& conv_cache() {
  // More than any network has distinct layers: one plan too few, and a training step, which comes
  // to them in the same order every time, would make them all again. A plan takes 0.3 MB.
  static PlanCache<ConvKey, ConvPlan> cache(256);
  return cache;
}

}  // namespace

std::shared_ptr<const PoolPlan> find_plan(const PoolProblem& problem) {
  return pool_cache().find(key_of(problem));
}

std::shared_ptr<const ConvPlan> find_plan(const ConvProblem& problem, int threads,
                                          bool deterministic) {
  return conv_cache().find(key_of(problem, threads, deterministic));
}

std::shared_ptr<const PoolPlan> make_plan(const LegalPoolProblem& problem) {
  const auto plan = std::make_shared<const PoolPlan>(problem);
  pool_cache().add(key_of(problem.problem()), plan, plan->table_bytes());
  return plan;
}

std::shared_ptr<const ConvPlan> make_plan(const LegalConvProblem& problem, int threads,
                                          bool deterministic) {
  const auto plan = std::make_shared<const ConvPlan>(problem, threads, deterministic);
  conv_cache().add(key_of(problem.problem(), threads, deterministic), plan, 0);
  return plan;
}

}  // namespace backops::python

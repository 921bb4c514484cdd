// One gradient by oneDNN, in float32 on dense channels-last tensors, cut into parts that run at the
// same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ops/conv_engine.h"

namespace backops {

struct GradientTensors {
  const float* grad_output;
  const float* input;
  float* grad_input;
};

class InputGradient {
 public:
  virtual ~InputGradient() = default;
  virtual std::string name() const = 0;
  virtual std::size_t scratch_bytes() const = 0;  // of a worker

  // The weights as it wants them are prepared once, before the parts.
  virtual std::size_t weight_bytes() const = 0;
  virtual void prepare(const float* weight, float* prepared, char* scratch) const = 0;

  virtual std::int64_t parts() const = 0;
  virtual void run(std::int64_t part, const GradientTensors& tensors, const float* prepared,
                   char* scratch) const = 0;
};

class WeightGradient {
 public:
  virtual ~WeightGradient() = default;
  virtual std::string name() const = 0;
  virtual std::size_t scratch_bytes() const = 0;

  virtual std::int64_t parts() const = 0;
  virtual std::int64_t sum_elements() const = 0;  // that a part writes
  virtual void run(std::int64_t part, const GradientTensors& tensors, float* sums,
                   char* scratch) const = 0;
  // Brings the added sums into the order of grad_weight.
  virtual void write(const float* sums, float* grad_weight, char* scratch) const = 0;
};

// These throw dnnl::error, or return null, where there is no fast implementation.
std::unique_ptr<const InputGradient> make_conv_input_gradient(const ConvShape& shape,
                                                              const ConvCuts& cuts);
std::unique_ptr<const WeightGradient> make_conv_weight_gradient(const ConvShape& shape,
                                                                const ConvCuts& cuts);

// Parts that have nothing to be added: more of them, because they cost nothing and even out the
// work.
inline std::int64_t free_cuts(const ConvCuts& cuts) { return 2 * cuts.parts(); }

}  // namespace backops

// Engines whose instructions take subnormal numbers for zero, or let zeros around tensors meet
// infinities. They watch what they multiply; if there was anything of the kind, a careful engine
// computes everything again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/matrix/matrix.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/engine.h"

namespace backops {

// Whether such numbers and their products are normal, and far enough from those that are not.
inline bool are_normal(const Magnitudes& a, const Magnitudes& b) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr int kLeastExponent = -100;
  const auto exponent = [](const Magnitudes& found) {
    return found.least == UINT32_MAX ? 127 : static_cast<int>((found.least + 1) >> 23) - 127;
  };
  return a.most < kInfinity && b.most < kInfinity && exponent(a) >= kLeastExponent &&
         exponent(b) >= kLeastExponent && exponent(a) + exponent(b) >= kLeastExponent;
}

// What a task has seen, as float32 numbers.
inline Magnitudes joined(const PairMagnitudes& found) {
  Magnitudes all;
  for (int lane = 0; lane < PairMagnitudes::kLanes; ++lane) {
    const auto least = std::uint32_t{found.least[lane]}, most = std::uint32_t{found.most[lane]};
    all.add({least == UINT16_MAX ? UINT32_MAX : ((least + 1) << 16) - 1, most << 16});
  }
  return all;
}

class WatchingEngine : public ConvEngine {
 public:
  // Whether what all phases have seen is normal.
  virtual bool saw_normal_only(const ConvBuffers& buffers) const = 0;
};

class CarefulEngine : public ConvEngine {
 public:
  // Both for the same problem.
  CarefulEngine(std::unique_ptr<const WatchingEngine> fast,
                std::unique_ptr<const ConvEngine> careful)
      : fast_(std::move(fast)), careful_(std::move(careful)) {}

  std::string name() const override { return fast_->name(); }
  std::size_t engine_bytes() const override {
    return std::max(fast_->engine_bytes(), careful_->engine_bytes());
  }
  std::size_t worker_bytes() const override {
    return std::max(fast_->worker_bytes(), careful_->worker_bytes());
  }
  int phases() const override { return fast_->phases() + careful_->phases(); }
  std::int64_t tasks(int phase) const override {
    return is_fast(phase) ? fast_->tasks(phase) : careful_->tasks(phase - fast_->phases());
  }
  void work(int phase, std::int64_t task, const ConvBuffers& buffers) const noexcept override {
    is_fast(phase) ? fast_->work(phase, task, buffers)
                   : careful_->work(phase - fast_->phases(), task, buffers);
  }
  // Once the careful one has begun, the memory is its own.
  bool is_done(int phase, const ConvBuffers& buffers) const override {
    return phase == fast_->phases() && fast_->saw_normal_only(buffers);
  }

 private:
  bool is_fast(int phase) const { return phase < fast_->phases(); }

  const std::unique_ptr<const WatchingEngine> fast_;
  const std::unique_ptr<const ConvEngine> careful_;
};

}  // namespace backops

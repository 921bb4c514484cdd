// The weight gradient of layers with more weights than input: cut by outputs. Cutting the batch, as
// others do, would give every thread sums of all weights, to be added afterwards, and few images to
// work on for each of them.
#include <algorithm>
#include <memory>

#include "ops/onednn.h"
#include "ops/onednn_gradients.h"

namespace backops {
namespace {

// Outputs that oneDNN's kernels work on together.
constexpr std::int64_t kUnit = 64;

class WeightGradientByOutputs : public WeightGradient {
 public:
  WeightGradientByOutputs(const ConvShape& shape, const ConvCuts& cuts)
      : s_(shape), units_{s_.outputs / kUnit, std::min(s_.outputs / kUnit, free_cuts(cuts))} {
    gradients_ = {units_, [this](std::int64_t units) {
                    ConvShape own = s_;
                    own.outputs = units * kUnit;
                    const ConvCuts whole{1, false};
                    std::shared_ptr<const WeightGradient> gradient =
                        make_pointwise_weight_gradient(own, whole);
                    if (!gradient) gradient = make_conv_weight_gradient(own, whole);
                    return gradient;
                  }};
  }

  bool is_usable() const { return gradients_.smaller && gradients_.larger; }
  std::string name() const override { return "by_outputs:" + gradients_.smaller->name(); }
  std::size_t scratch_bytes() const override {
    return slice_bytes() +
           std::max(gradients_.smaller->scratch_bytes(), gradients_.larger->scratch_bytes());
  }
  std::int64_t parts() const override { return units_.count; }
  bool adds_up() const override { return false; }
  std::int64_t sum_elements() const override {
    return std::max(gradients_.smaller->sum_elements(), gradients_.larger->sum_elements());
  }

  void run(std::int64_t part, const GradientTensors& t, float* sums, char* scratch) const override {
    const WeightGradient& gradient = *gradients_.of(units_, part);
    const std::int64_t first = units_.first(part) * kUnit;
    const std::int64_t count = units_.first(part + 1) * kUnit - first;
    float* const slice = reinterpret_cast<float*>(scratch);
    for (std::int64_t row = 0; row < rows(); ++row) {
      std::copy_n(t.grad_output + row * s_.outputs + first, count, slice + row * count);
    }
    char* const more = scratch + slice_bytes();
    gradient.run(0, {slice, t.input, nullptr, nullptr, false}, sums, more);
    gradient.write(sums, t.grad_weight + first * (s_.weights() / s_.outputs), more);
  }

  void write(const float*, float*, char*) const override {}

 private:
  std::int64_t rows() const { return s_.batch * s_.out_positions(); }
  std::size_t slice_bytes() const {
    return whole_lines(static_cast<std::size_t>(rows() * units_.larger() * kUnit) * sizeof(float));
  }

  const ConvShape s_;
  const EvenParts units_;
  ByPart<std::shared_ptr<const WeightGradient>> gradients_;
};

// Every part reads the whole input, where otherwise every part would have sums of all weights.
bool has_many_weights(const ConvShape& s) {
  return s.groups == 1 && s.outputs % kUnit == 0 && s.weights() > s.batch * s.in_image();
}

}  // namespace

std::unique_ptr<const WeightGradient> make_weight_gradient_by_outputs(const ConvShape& shape,
                                                                      const ConvCuts& cuts) {
  const bool is_cut = cuts.deterministic || cuts.threads > 1;
  if (!is_cut || !has_many_weights(shape)) return nullptr;
  auto gradient = std::make_unique<const WeightGradientByOutputs>(shape, cuts);
  if (!gradient->is_usable()) return nullptr;
  return gradient;
}

}  // namespace backops

// What a call through InfiniOp costs beyond the core's own time: both run the same small problem in
// turns, and the fastest turn of each counts. Prints a line for each operator.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "base/threads.h"
#include "infiniop.h"
#include "infinirt.h"
#include "ops/conv/plan.h"
#include "ops/pool/plan.h"

namespace {

using namespace backops;

constexpr int kCalls = 200, kTurns = 300;

template <class Body>
double nanoseconds_per_call(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) body();
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return time.count() / kCalls;
}

template <class Core, class Infini>
void compare(const char* name, const Core& core, const Infini& infini) {
  double core_time = 1e9, infini_time = 1e9;
  for (int turn = 0; turn < kTurns; ++turn) {
    core_time = std::min(core_time, nanoseconds_per_call(core));
    infini_time = std::min(infini_time, nanoseconds_per_call(infini));
  }
  std::printf("%s: core %.0f ns, through InfiniOp %.0f ns, %.0f ns more\n", name, core_time,
              infini_time, infini_time - core_time);
}

infiniopTensorDescriptor_t describe(const std::vector<std::size_t>& shape) {
  infiniopTensorDescriptor_t desc = nullptr;
  infiniopCreateTensorDescriptor(&desc, shape.size(), shape.data(), nullptr, INFINI_DTYPE_F32);
  return desc;
}

TensorView dense(std::vector<float>& data, const std::vector<std::size_t>& shape) {
  TensorView view{};
  view.data = reinterpret_cast<char*>(data.data());
  view.dtype = DType::float32;
  view.ndim = static_cast<int>(shape.size());
  std::int64_t stride = sizeof(float);
  for (int i = view.ndim - 1; i >= 0; --i) {
    view.shape[i] = static_cast<std::int64_t>(shape[static_cast<std::size_t>(i)]);
    view.stride_bytes[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

std::vector<float> elements(const std::vector<std::size_t>& shape) {
  std::size_t count = 1;
  for (const std::size_t size : shape) count *= size;
  return std::vector<float>(count, 1.0f);
}

void measure_pool(infiniopHandle_t handle) {
  const std::vector<std::size_t> large = {1, 2, 8, 8}, small = {1, 2, 4, 4};
  std::vector<float> grad_input = elements(large), grad_output = elements(small);
  std::size_t kernel[2] = {2, 2}, size = 0;
  infiniopAvgPoolBackwardDescriptor_t desc = nullptr;
  infiniopCreateAvgPoolBackwardDescriptor(handle, &desc, describe(large), describe(small),
                                          describe(large), kernel, nullptr, nullptr, false);
  infiniopGetAvgPoolBackwardWorkspaceSize(desc, &size);
  std::vector<char> workspace(size);
  PoolProblem problem;
  std::copy(large.begin(), large.end(), problem.input_shape);
  for (int axis = 0; axis < 2; ++axis) problem.kernel_size[axis] = problem.stride[axis] = 2;
  const PoolPlan plan(problem);
  const int threads = default_thread_count();
  const TensorView source = dense(grad_output, small), target = dense(grad_input, large);
  compare(
      "AvgPoolBackward", [&] { plan.run(source, target, workspace.data(), threads); },
      [&] {
        infiniopAvgPoolBackward(desc, workspace.data(), size, grad_input.data(), grad_output.data(),
                                grad_input.data(), nullptr);
      });
}

void measure_conv(infiniopHandle_t handle) {
  const std::vector<std::size_t> out = {1, 2, 4, 4}, in = {1, 2, 4, 4}, kernel = {2, 2, 3, 3},
                                 channels = {2};
  std::vector<float> grad_output = elements(out), input = elements(in), weight = elements(kernel);
  std::vector<float> grad_input = input, grad_weight = weight, grad_bias = elements(channels);
  std::size_t pads[2] = {1, 1}, size = 0;
  infiniopConvBackwardDescriptor_t desc = nullptr;
  infiniopCreateConvBackwardDescriptor(handle, &desc, describe(out), describe(in), describe(kernel),
                                       describe(channels), pads, nullptr, nullptr, 1);
  infiniopGetConvBackwardWorkspaceSize(desc, &size);
  std::vector<char> workspace(size);
  ConvProblem problem;
  std::copy(in.begin(), in.end(), problem.input_shape);
  std::copy(kernel.begin(), kernel.end(), problem.weight_shape);
  for (int axis = 0; axis < 2; ++axis) {
    problem.stride[axis] = problem.dilation[axis] = problem.padding_before[axis] = 1;
  }
  problem.pad_both_ends();
  const int threads = default_thread_count();
  const ConvPlan plan(problem, threads, false);
  const TensorView grad_output_view = dense(grad_output, out), input_view = dense(input, in),
                   weight_view = dense(weight, kernel), grad_input_view = dense(grad_input, in),
                   grad_weight_view = dense(grad_weight, kernel),
                   grad_bias_view = dense(grad_bias, channels);
  ConvTensors tensors;
  tensors.grad_output = &grad_output_view;
  tensors.input = &input_view;
  tensors.weight = &weight_view;
  tensors.grad_input = &grad_input_view;
  tensors.grad_weight = &grad_weight_view;
  tensors.grad_bias = &grad_bias_view;
  compare(
      "ConvBackward", [&] { plan.run(tensors, workspace.data(), threads); },
      [&] {
        infiniopConvBackward(desc, workspace.data(), size, grad_input.data(), grad_weight.data(),
                             grad_bias.data(), grad_output.data(), input.data(), weight.data(),
                             nullptr);
      });
}

}  // namespace

int main() {
  infiniopHandle_t handle = nullptr;
  if (infiniopCreateHandle(&handle) != INFINI_STATUS_SUCCESS) return 1;
  measure_pool(handle);
  measure_conv(handle);
  return 0;
}

// Gradients of a 1-D convolution with respect to its input, weight and bias.
#include "aclnnop/aclnn_convolution_backward.h"

#include "device.h"

int main() {
  const Device device;
  const Tensor grad_output({1, 1, 3}, ACL_FORMAT_NCL, {1, 2, 3});
  const Tensor input({1, 1, 4}, ACL_FORMAT_NCL, {1, 1, 2, 2});
  const Tensor weight({1, 1, 2}, ACL_FORMAT_NCL, {10, 1});
  const Tensor grad_input({1, 1, 4}, ACL_FORMAT_NCL, {0, 0, 0, 0});
  const Tensor grad_weight({1, 1, 2}, ACL_FORMAT_NCL, {0, 0});
  const Tensor grad_bias({1}, ACL_FORMAT_ND, {0});
  const IntArray one = int_array({1}), zero = int_array({0});
  const bool wanted[3] = {true, true, true};
  const std::unique_ptr<aclBoolArray, aclnnStatus (*)(const aclBoolArray*)> mask(
      aclCreateBoolArray(wanted, 3), aclDestroyBoolArray);

  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnConvolutionBackwardGetWorkspaceSize(
      grad_output.get(), input.get(), weight.get(), one.get(), one.get(), zero.get(), one.get(),
      false, nullptr, 1, mask.get(), KEEP_DTYPE, grad_input.get(), grad_weight.get(),
      grad_bias.get(), &size, &executor));
  const Memory workspace = allocate(size);
  CHECK(aclnnConvolutionBackward(workspace.get(), size, executor, device.stream));
  CHECK(aclrtSynchronizeStream(device.stream));

  std::vector<float> all = grad_input.read();
  for (const Tensor* each : {&grad_weight, &grad_bias}) {
    for (const float value : each->read()) all.push_back(value);
  }
  return compare(all, {10, 1 + 20, 2 + 30, 3, 1 + 2 + 6, 1 + 4 + 6, 6});
}

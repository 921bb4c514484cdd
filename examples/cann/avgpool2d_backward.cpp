// Gradient of 2-D average pooling: windows of 1x3, stride 2, padding 1 that counts.
#include "aclnnop/aclnn_avgpool2d_backward.h"

#include "device.h"

int main() {
  const Device device;
  // Outputs 0 and 1 have the inputs -1 to 1 and 1 to 3, a third of their gradient each.
  const Tensor grad_output({1, 1, 1, 2}, ACL_FORMAT_NCHW, {3, 6});
  const Tensor self({1, 1, 1, 4}, ACL_FORMAT_NCHW, {0, 0, 0, 0});
  const Tensor grad_input({1, 1, 1, 4}, ACL_FORMAT_NCHW, {0, 0, 0, 0});
  const IntArray kernel = int_array({1, 3}), stride = int_array({1, 2}),
                 padding = int_array({0, 1});

  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnAvgPool2dBackwardGetWorkspaceSize(grad_output.get(), self.get(), kernel.get(),
                                               stride.get(), padding.get(), false, true, 0,
                                               KEEP_DTYPE, grad_input.get(), &size, &executor));
  const Memory workspace = allocate(size);
  CHECK(aclnnAvgPool2dBackward(workspace.get(), size, executor, device.stream));
  CHECK(aclrtSynchronizeStream(device.stream));
  return compare(grad_input.read(), {1, 1 + 2, 2, 2});
}

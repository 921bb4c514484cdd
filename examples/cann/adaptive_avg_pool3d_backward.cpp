// Gradient of 3-D adaptive average pooling, by an executor that is launched twice.
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"

#include "device.h"

int main() {
  const Device device;
  // 5 inputs for 2 outputs: 0 to 2 and 2 to 4, a third of their gradient each.
  const Tensor grad_output({1, 1, 1, 1, 2}, ACL_FORMAT_NCDHW, {3, 6});
  const Tensor self({1, 1, 1, 1, 5}, ACL_FORMAT_NCDHW, {0, 0, 0, 0, 0});
  const Tensor out({1, 1, 1, 1, 5}, ACL_FORMAT_NCDHW, {0, 0, 0, 0, 0});

  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad_output.get(), self.get(), out.get(),
                                                       &size, &executor));
  CHECK(aclSetAclOpExecutorRepeatable(executor));
  const Memory workspace = allocate(size);
  for (int launch = 0; launch < 2; ++launch) {
    CHECK(aclnnAdaptiveAvgPool3dBackward(workspace.get(), size, executor, device.stream));
  }
  CHECK(aclrtSynchronizeStream(device.stream));
  CHECK(aclDestroyAclOpExecutor(executor));
  return compare(out.read(), {1, 1, 1 + 2, 2, 2});
}

// What happens when there is no memory: first stages, with the first, second, third ... allocation
// failing. A code each time, no out-parameter written, nothing leaked.
#include "failing_malloc.h"  // before anything that allocates

#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "aclnnop/aclnn_adaptive_avg_pool2d.h"
#include "aclnnop/aclnn_adaptive_avg_pool2d_backward.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
#include "aclnnop/aclnn_avgpool2d.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"
#include "aclnnop/aclnn_avgpool3d.h"
#include "aclnnop/aclnn_avgpool3d_backward.h"
#include "aclnnop/aclnn_convolution.h"
#include "aclnnop/aclnn_convolution_backward.h"
#include "check.h"

namespace {

aclTensor* tensor(const std::vector<int64_t>& shape, aclFormat format = ACL_FORMAT_ND) {
  return aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, nullptr, 0, format, shape.data(),
                         shape.size(), nullptr);
}

aclIntArray* ints(const std::vector<int64_t>& values) {
  return aclCreateIntArray(values.data(), values.size());
}

using FirstStage = std::function<aclnnStatus(uint64_t*, aclOpExecutor**)>;

void fail_at_every_allocation(const char* name, const FirstStage& plan) {
  aclOpExecutor* const untouched = reinterpret_cast<aclOpExecutor*>(&failures);
  // What is allocated once per process or thread, such as room for messages, is not what this is
  // about.
  uint64_t bytes = 0;
  aclOpExecutor* first = nullptr;
  CHECK_STATUS(plan(nullptr, &first), ACLNN_ERR_PARAM_NULLPTR);
  CHECK_STATUS(plan(&bytes, &first), 0);
  CHECK_STATUS(aclDestroyAclOpExecutor(first), 0);
  long allocations = 0;
  for (; allocations < 10000; ++allocations) {
    uint64_t size = 77;
    aclOpExecutor* executor = untouched;
    const long before = held;
    left = allocations + 1;
    const aclnnStatus status = plan(&size, &executor);
    left = -1;
    if (status == ACLNN_SUCCESS) {
      CHECK_STATUS(aclDestroyAclOpExecutor(executor), 0);
      CHECK(held == before);
      break;
    }
    CHECK_STATUS(status, ACLNN_ERR_INNER);
    CHECK(size == 77 && executor == untouched);
    CHECK(held == before);
  }
  CHECK(allocations > 0 && allocations < 10000);
  std::printf("%s: %ld allocations\n", name, allocations);
}

void convolutions() {
  aclIntArray *const one = ints({1}), *const none = ints({0});
  const bool all[] = {true, true, true};
  aclBoolArray* const mask = aclCreateBoolArray(all, 3);
  aclTensor *const bias = tensor({4}), *const grad_bias = tensor({4});
  for (const bool transposed : {false, true}) {
    aclTensor* const input = tensor({2, 3, transposed ? 6 : 8});
    aclTensor* const output = tensor({2, 4, transposed ? 8 : 6});
    aclTensor* const weight = transposed ? tensor({3, 4, 3}) : tensor({4, 3, 3});
    fail_at_every_allocation("Convolution", [&](uint64_t* size, aclOpExecutor** executor) {
      return aclnnConvolutionGetWorkspaceSize(input, weight, bias, one, none, one, transposed, none,
                                              1, output, KEEP_DTYPE, size, executor);
    });
    fail_at_every_allocation("ConvolutionBackward", [&](uint64_t* size, aclOpExecutor** executor) {
      return aclnnConvolutionBackwardGetWorkspaceSize(output, input, weight, nullptr, one, none,
                                                      one, transposed, none, 1, mask, KEEP_DTYPE,
                                                      input, weight, grad_bias, size, executor);
    });
  }
}

void pooling() {
  aclIntArray *const two = ints({2}), *const none = ints({0});
  aclTensor* const large2d = tensor({2, 3, 8, 8}, ACL_FORMAT_NCHW);
  aclTensor* const small2d = tensor({2, 3, 4, 4}, ACL_FORMAT_NCHW);
  aclTensor *const large3d = tensor({2, 3, 8, 8, 8}), *const small3d = tensor({2, 3, 4, 4, 4});
  aclIntArray *const size2d = ints({4, 4}), *const size3d = ints({4, 4, 4});
  fail_at_every_allocation("AvgPool2d", [&](uint64_t* size, aclOpExecutor** executor) {
    return aclnnAvgPool2dGetWorkspaceSize(large2d, two, nullptr, none, false, true, 0, KEEP_DTYPE,
                                          small2d, size, executor);
  });
  fail_at_every_allocation("AvgPool2dBackward", [&](uint64_t* size, aclOpExecutor** executor) {
    return aclnnAvgPool2dBackwardGetWorkspaceSize(small2d, large2d, two, nullptr, none, false, true,
                                                  0, KEEP_DTYPE, large2d, size, executor);
  });
  fail_at_every_allocation("AvgPool3d", [&](uint64_t* size, aclOpExecutor** executor) {
    return aclnnAvgPool3dGetWorkspaceSize(large3d, two, nullptr, none, false, true, 0, small3d,
                                          size, executor);
  });
  fail_at_every_allocation("AvgPool3dBackward", [&](uint64_t* size, aclOpExecutor** executor) {
    return aclnnAvgPool3dBackwardGetWorkspaceSize(small3d, large3d, two, nullptr, none, false, true,
                                                  0, large3d, size, executor);
  });
  fail_at_every_allocation("AdaptiveAvgPool2d", [&](uint64_t* size, aclOpExecutor** executor) {
    return aclnnAdaptiveAvgPool2dGetWorkspaceSize(large2d, size2d, small2d, size, executor);
  });
  fail_at_every_allocation("AdaptiveAvgPool2dBackward",
                           [&](uint64_t* size, aclOpExecutor** executor) {
                             return aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(
                                 small2d, large2d, large2d, size, executor);
                           });
  fail_at_every_allocation("AdaptiveAvgPool3d", [&](uint64_t* size, aclOpExecutor** executor) {
    return aclnnAdaptiveAvgPool3dGetWorkspaceSize(large3d, size3d, small3d, size, executor);
  });
  fail_at_every_allocation("AdaptiveAvgPool3dBackward",
                           [&](uint64_t* size, aclOpExecutor** executor) {
                             return aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(
                                 small3d, large3d, large3d, size, executor);
                           });
}

}  // namespace

int main() {
  CHECK_STATUS(aclInit(nullptr), 0);
  CHECK_STATUS(aclrtSetDevice(0), 0);
  convolutions();
  pooling();
  CHECK_STATUS(aclFinalize(), 0);
  return failures == 0 ? 0 : 1;
}

// What a launch through the two-stage interface costs the caller, and beyond the core's own time:
// the fastest turn counts. Prints a line for each.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "aclnnop/aclnn_avgpool2d_backward.h"
#include "base/operand.h"
#include "base/threads.h"
#include "ops/pool/plan.h"

namespace {

using namespace backops;

constexpr int kCalls = 200, kTurns = 200;

template <class Body>
double nanoseconds_per_call(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) body();
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return time.count() / kCalls;
}

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
  return memory;
}

aclTensor* tensor(const std::vector<std::int64_t>& shape, void* data) {
  return aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_NCHW,
                         shape.data(), shape.size(), data);
}

}  // namespace

int main() {
  if (aclInit(nullptr) != 0 || aclrtSetDevice(0) != 0) return 1;
  const std::vector<std::int64_t> large = {1, 2, 8, 8}, small = {1, 2, 4, 4};
  for (int i = 0; i < 1000; ++i) allocate(64);  // a program has more memory than one operator's
  void* const grad_output = allocate(128);
  void* const self = allocate(512);
  void* const grad_input = allocate(512);
  const std::int64_t two = 2, zero = 0;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  aclnnAvgPool2dBackwardGetWorkspaceSize(tensor(small, grad_output), tensor(large, self),
                                         aclCreateIntArray(&two, 1), nullptr,
                                         aclCreateIntArray(&zero, 1), false, true, 0, KEEP_DTYPE,
                                         tensor(large, grad_input), &size, &executor);
  aclSetAclOpExecutorRepeatable(executor);
  void* const workspace = allocate(size + 1);
  PoolProblem problem;
  std::copy(large.begin(), large.end(), problem.input_shape);
  for (int axis = 0; axis < 2; ++axis) problem.kernel_size[axis] = problem.stride[axis] = 2;
  const PoolPlan plan(problem);
  const int threads = default_thread_count();
  const auto dense = [](const std::vector<std::int64_t>& shape, void* data) {
    return Operand(DType::float32, shape.data(), shape.size(), nullptr, 0, "tensor").at(data);
  };
  const TensorView source = dense(small, grad_output), target = dense(large, grad_input);

  double core = 1e9, launch = 1e9, whole = 1e9;
  for (int turn = 0; turn < kTurns; ++turn) {
    core =
        std::min(core, nanoseconds_per_call([&] { plan.run(source, target, workspace, threads); }));
    launch = std::min(launch, nanoseconds_per_call([&] {
                        aclnnAvgPool2dBackward(workspace, size, executor, nullptr);
                      }));
    aclrtSynchronizeStream(nullptr);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) aclnnAvgPool2dBackward(workspace, size, executor, nullptr);
    aclrtSynchronizeStream(nullptr);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    whole = std::min(whole, time.count() / kCalls);
  }
  std::printf("AvgPool2dBackward: core %.0f ns, launch %.0f ns, launched and done %.0f ns\n", core,
              launch, whole);
  return 0;
}

// Many threads on four streams: operators, repeatable executors, events, copies, wrong calls, empty
// tensors, memory that is freed while work on it is queued. Prints the number of failures.
//
//   acl_stress THREADS ROUNDS
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "aclnnop/aclnn_adaptive_avg_pool2d_backward.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"

namespace {

constexpr int kStreams = 4;
std::atomic<int> failures{0};

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      const char* const message = aclGetRecentErrMsg();                                            \
      std::printf("%s:%d: not %s (%s)\n", __FILE__, __LINE__, #condition, message ? message : ""); \
      ++failures;                                                                                  \
    }                                                                                              \
  } while (0)

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  EXPECT(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
  return memory;
}

aclTensor* tensor(const std::vector<int64_t>& shape, aclFormat format, void* data) {
  return aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, nullptr, 0, format, shape.data(),
                         shape.size(), data);
}

const std::vector<int64_t> kSmall = {1, 2, 4, 4}, kLarge = {1, 2, 8, 8};
constexpr std::size_t kSmallBytes = 32 * sizeof(float), kLargeBytes = 128 * sizeof(float);

// Tensors of one 2x2 pooling, and its executor.
struct Pool {
  Pool()
      : grad_output(allocate(kSmallBytes)),
        self(allocate(kLargeBytes)),
        grad_input(allocate(kLargeBytes)),
        tensors{tensor(kSmall, ACL_FORMAT_NCHW, grad_output), tensor(kLarge, ACL_FORMAT_NCHW, self),
                tensor(kLarge, ACL_FORMAT_NCHW, grad_input)} {
    const int64_t two = 2, zero = 0;
    aclIntArray* const kernel = aclCreateIntArray(&two, 1);
    aclIntArray* const padding = aclCreateIntArray(&zero, 1);
    EXPECT(aclnnAvgPool2dBackwardGetWorkspaceSize(tensors[0], tensors[1], kernel, nullptr, padding,
                                                  false, true, 0, KEEP_DTYPE, tensors[2], &size,
                                                  &executor) == 0);
    EXPECT(aclDestroyIntArray(kernel) == 0 && aclDestroyIntArray(padding) == 0);
    workspace = allocate(size + 1);
  }
  ~Pool() {
    for (aclTensor* each : tensors) EXPECT(aclDestroyTensor(each) == 0);
    for (void* memory : {grad_output, self, grad_input, workspace}) EXPECT(aclrtFree(memory) == 0);
  }

  void set(float value, aclrtStream stream) {
    std::vector<float> values(32, value);
    EXPECT(aclrtMemcpy(grad_output, kSmallBytes, values.data(), kSmallBytes,
                       ACL_MEMCPY_HOST_TO_DEVICE) == 0);
    EXPECT(aclrtMemsetAsync(grad_input, kLargeBytes, 0xff, kLargeBytes, stream) == 0);
  }
  int launch(aclrtStream stream) {
    return aclnnAvgPool2dBackward(workspace, size, executor, stream);
  }
  void check(float value) const {
    std::vector<float> values(128);
    EXPECT(aclrtMemcpy(values.data(), kLargeBytes, grad_input, kLargeBytes,
                       ACL_MEMCPY_DEVICE_TO_HOST) == 0);
    bool all = true;
    for (const float each : values) all = all && each == value / 4;
    EXPECT(all);
  }

  void *grad_output, *self, *grad_input, *workspace = nullptr;
  aclTensor* tensors[3];
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
};

void run_once(float value, aclrtStream stream) {
  Pool pool;
  pool.set(value, stream);
  EXPECT(pool.launch(stream) == 0);
  EXPECT(pool.launch(stream) == ACLNN_ERR_PARAM_INVALID);  // served
  EXPECT(aclrtSynchronizeStream(stream) == 0);
  pool.check(value);
}

void run_repeatedly(Pool& pool, float value, aclrtStream stream, aclrtStream other) {
  aclrtEvent event = nullptr;
  EXPECT(aclrtCreateEvent(&event) == 0);
  pool.set(value, stream);
  EXPECT(aclSetOutputTensorAddr(pool.executor, 0, pool.tensors[2], pool.grad_input) == 0);
  EXPECT(pool.launch(stream) == 0);
  EXPECT(aclrtRecordEvent(event, stream) == 0);
  EXPECT(aclrtStreamWaitEvent(other, event) == 0);
  // On the other stream, after the first: the result again, by way of a copy.
  void* const copy = allocate(kLargeBytes);
  EXPECT(aclrtMemcpyAsync(copy, kLargeBytes, pool.grad_input, kLargeBytes,
                          ACL_MEMCPY_DEVICE_TO_DEVICE, other) == 0);
  EXPECT(aclrtMemcpyAsync(pool.grad_input, kLargeBytes, copy, kLargeBytes,
                          ACL_MEMCPY_DEVICE_TO_DEVICE, other) == 0);
  EXPECT(aclrtFree(copy) == 0);  // what is queued keeps it
  EXPECT(aclrtSynchronizeStream(other) == 0);
  EXPECT(aclrtDestroyEvent(event) == 0);
  pool.check(value);
}

void free_early(aclrtStream stream) {
  Pool pool;
  EXPECT(pool.launch(stream) == 0);
}

void make_mistakes(aclrtStream stream) {
  Pool pool;
  float host[32] = {0};
  EXPECT(aclrtMemcpy(pool.grad_output, 4, host, 8, ACL_MEMCPY_HOST_TO_DEVICE) ==
         ACL_ERROR_RT_PARAM_INVALID);
  const std::size_t most = SIZE_MAX - 7;
  EXPECT(aclrtMemcpyAsync(pool.grad_output, most, host, most, ACL_MEMCPY_HOST_TO_DEVICE, stream) ==
         ACL_ERROR_RT_PARAM_INVALID);
  EXPECT(aclrtMemsetAsync(pool.grad_output, most, 1, most, stream) == ACL_ERROR_RT_PARAM_INVALID);
  EXPECT(aclrtFree(host) == ACL_ERROR_RT_PARAM_INVALID);
  EXPECT(aclnnAvgPool2dBackward(host, pool.size, pool.executor, stream) == ACLNN_ERR_RUNTIME_ERROR);
  EXPECT(aclnnAdaptiveAvgPool3dBackward(pool.workspace, pool.size, pool.executor, stream) ==
         ACLNN_ERR_PARAM_INVALID);
  EXPECT(aclDestroyAclOpExecutor(pool.executor) == 0);
  EXPECT(pool.launch(stream) == ACLNN_ERR_PARAM_INVALID);
}

// Nothing to read, so zeros are written; a list takes its scalars along.
void use_empty_tensors(aclrtStream stream) {
  Pool pool;
  aclTensor* const none = tensor({1, 2, 0, 4}, ACL_FORMAT_NCHW, nullptr);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT(aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(none, pool.tensors[1], pool.tensors[2],
                                                        &size, &executor) == 0);
  EXPECT(aclnnAdaptiveAvgPool2dBackward(nullptr, size, executor, stream) == 0);
  EXPECT(aclrtSynchronizeStream(stream) == 0);
  pool.check(0);
  EXPECT(aclDestroyTensor(none) == 0 && aclDestroyAclOpExecutor(pool.executor) == 0);
  float value = 1;
  const aclScalar* const scalars[] = {aclCreateScalar(&value, ACL_FLOAT), nullptr};
  EXPECT(aclDestroyScalarList(aclCreateScalarList(scalars, 2)) == 0);
}

void work(int thread, int rounds, aclrtContext context, const aclrtStream* streams) {
  EXPECT(aclrtSetCurrentContext(context) == 0);
  Pool repeated;
  EXPECT(aclSetAclOpExecutorRepeatable(repeated.executor) == 0);
  for (int round = 0; round < rounds; ++round) {
    aclrtStream stream = streams[(thread + round) % kStreams];
    const float value = static_cast<float>(4 * (thread * rounds + round));
    run_once(value, stream);
    run_repeatedly(repeated, value, stream, streams[(thread + round + 1) % kStreams]);
    free_early(stream);
    make_mistakes(stream);
    use_empty_tensors(stream);
  }
  EXPECT(aclDestroyAclOpExecutor(repeated.executor) == 0);
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 16;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 50;
  EXPECT(aclInit(nullptr) == 0 && aclrtSetDevice(0) == 0);
  aclrtContext context = nullptr;
  EXPECT(aclrtGetCurrentContext(&context) == 0);
  aclrtStream streams[kStreams];
  for (aclrtStream& stream : streams) EXPECT(aclrtCreateStream(&stream) == 0);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(work, i, rounds, context, streams);
  for (std::thread& worker : workers) worker.join();
  for (aclrtStream stream : streams) EXPECT(aclrtDestroyStream(stream) == 0);
  EXPECT(aclrtResetDevice(0) == 0 && aclFinalize() == 0);
  std::printf("%d failures\n", failures.load());
  return failures == 0 ? 0 : 1;
}

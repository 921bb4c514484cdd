// What every program here does: a device, a stream, and tensors in device memory.
#ifndef EXAMPLES_CANN_DEVICE_H
#define EXAMPLES_CANN_DEVICE_H

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"

#define CHECK(call)                                                                      \
  do {                                                                                   \
    const int status = (call);                                                           \
    if (status != 0) {                                                                   \
      std::fprintf(stderr, "%s returned %d: %s\n", #call, status, aclGetRecentErrMsg()); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

class Device {
 public:
  Device() {
    CHECK(aclInit(nullptr));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
  }
  ~Device() {
    aclrtDestroyStream(stream);
    aclrtResetDevice(0);
    aclFinalize();
  }

  aclrtStream stream = nullptr;
};

using Memory = std::unique_ptr<void, aclError (*)(void*)>;
using IntArray = std::unique_ptr<aclIntArray, aclnnStatus (*)(const aclIntArray*)>;

inline Memory allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes > 0) CHECK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  return Memory(memory, aclrtFree);
}

inline IntArray int_array(const std::vector<int64_t>& values) {
  return IntArray(aclCreateIntArray(values.data(), values.size()), aclDestroyIntArray);
}

// A float tensor, contiguous, and its memory.
class Tensor {
 public:
  Tensor(const std::vector<int64_t>& shape, aclFormat format, const std::vector<float>& values)
      : bytes_(values.size() * sizeof(float)),
        memory_(allocate(bytes_)),
        tensor_(aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, nullptr, 0, format,
                                shape.data(), shape.size(), memory_.get()),
                aclDestroyTensor) {
    write(values);
  }

  aclTensor* get() const { return tensor_.get(); }

  void write(const std::vector<float>& values) {
    CHECK(aclrtMemcpy(memory_.get(), bytes_, values.data(), bytes_, ACL_MEMCPY_HOST_TO_DEVICE));
  }

  std::vector<float> read() const {
    std::vector<float> values(bytes_ / sizeof(float));
    CHECK(aclrtMemcpy(values.data(), bytes_, memory_.get(), bytes_, ACL_MEMCPY_DEVICE_TO_HOST));
    return values;
  }

 private:
  std::size_t bytes_;
  Memory memory_;
  std::unique_ptr<aclTensor, aclnnStatus (*)(const aclTensor*)> tensor_;
};

// Prints the values, and how far they are from what they should be. Returns what main does.
inline int compare(const std::vector<float>& values, const std::vector<float>& expected) {
  float error = 0;
  std::printf("gradient:");
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::printf(" %g", static_cast<double>(values[i]));
    error = std::fmax(error, std::fabs(values[i] - expected[i]));
  }
  std::printf("\nlargest error: %g\n", static_cast<double>(error));
  return error < 1e-6f ? 0 : 1;
}

#endif

// Whole training steps: forward, gradient of the loss, backward, update. A convolution, then means
// of 2x2, learn a kernel and a bias from what these made of random numbers.
#include "aclnnop/aclnn_avgpool2d.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"
#include "aclnnop/aclnn_convolution.h"
#include "aclnnop/aclnn_convolution_backward.h"
#include "device.h"

namespace {

// Planned once, launched in every step.
class Operator {
 public:
  using Launch = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

  Operator(Launch launch, uint64_t size, aclOpExecutor* executor)
      : launch_(launch), size_(size), executor_(executor), workspace_(allocate(size)) {
    CHECK(aclSetAclOpExecutorRepeatable(executor_));
  }
  ~Operator() { aclDestroyAclOpExecutor(executor_); }
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  void run(aclrtStream stream) const { CHECK(launch_(workspace_.get(), size_, executor_, stream)); }

 private:
  Launch launch_;
  uint64_t size_;
  aclOpExecutor* executor_;
  Memory workspace_;
};

std::vector<float> random_numbers(std::size_t count, unsigned seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) / (1 << 23) - 1;  // -1 to 1
  }
  return values;
}

// The mean square of the differences, and its gradient.
float loss_of(const std::vector<float>& output, const std::vector<float>& target,
              std::vector<float>* gradient) {
  const float count = static_cast<float>(output.size());
  float loss = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    const float difference = output[i] - target[i];
    loss += difference * difference / count;
    (*gradient)[i] = 2 * difference / count;
  }
  return loss;
}

void update(Tensor* parameter, const Tensor& gradient) {
  const float rate = 1.5f;
  std::vector<float> values = parameter->read();
  const std::vector<float> gradients = gradient.read();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= rate * gradients[i];
  parameter->write(values);
}

}  // namespace

int main() {
  const Device device;
  // A convolution of (4, 1, 8, 8) to two channels, then means of 2x2.
  const std::vector<int64_t> in = {4, 1, 8, 8}, mid = {4, 2, 8, 8}, out = {4, 2, 4, 4};
  const std::vector<int64_t> kernel = {2, 1, 3, 3};
  const std::size_t inputs = 256, hidden = 512, outputs = 128, weights = 18;
  const auto zeros = [](std::size_t count) { return std::vector<float>(count); };
  const Tensor input(in, ACL_FORMAT_NCHW, random_numbers(inputs, 1));
  Tensor weight(kernel, ACL_FORMAT_NCHW, random_numbers(weights, 2));
  Tensor bias({2}, ACL_FORMAT_ND, {0.5f, -0.5f});
  const Tensor convolved(mid, ACL_FORMAT_NCHW, zeros(hidden));
  const Tensor output(out, ACL_FORMAT_NCHW, zeros(outputs));
  Tensor grad_output(out, ACL_FORMAT_NCHW, zeros(outputs));
  const Tensor grad_convolved(mid, ACL_FORMAT_NCHW, zeros(hidden));
  const Tensor grad_weight(kernel, ACL_FORMAT_NCHW, zeros(weights));
  const Tensor grad_bias({2}, ACL_FORMAT_ND, zeros(2));
  const IntArray none = int_array({0}), one = int_array({1}), two = int_array({2});
  const bool wanted[3] = {false, true, true};  // nothing lies before the input
  const std::unique_ptr<aclBoolArray, aclnnStatus (*)(const aclBoolArray*)> mask(
      aclCreateBoolArray(wanted, 3), aclDestroyBoolArray);

  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnConvolutionGetWorkspaceSize(input.get(), weight.get(), bias.get(), one.get(),
                                         one.get(), one.get(), false, nullptr, 1, convolved.get(),
                                         KEEP_DTYPE, &size, &executor));
  const Operator convolve(aclnnConvolution, size, executor);
  CHECK(aclnnAvgPool2dGetWorkspaceSize(convolved.get(), two.get(), two.get(), none.get(), false,
                                       true, 0, KEEP_DTYPE, output.get(), &size, &executor));
  const Operator pool(aclnnAvgPool2d, size, executor);
  CHECK(aclnnAvgPool2dBackwardGetWorkspaceSize(grad_output.get(), convolved.get(), two.get(),
                                               two.get(), none.get(), false, true, 0, KEEP_DTYPE,
                                               grad_convolved.get(), &size, &executor));
  const Operator pool_backward(aclnnAvgPool2dBackward, size, executor);
  CHECK(aclnnConvolutionBackwardGetWorkspaceSize(
      grad_convolved.get(), input.get(), weight.get(), two.get(), one.get(), one.get(), one.get(),
      false, nullptr, 1, mask.get(), KEEP_DTYPE, nullptr, grad_weight.get(), grad_bias.get(), &size,
      &executor));
  const Operator convolve_backward(aclnnConvolutionBackward, size, executor);

  const auto forward = [&] {
    convolve.run(device.stream);
    pool.run(device.stream);
    CHECK(aclrtSynchronizeStream(device.stream));
    return output.read();
  };
  // What is to be learned is what the parameters make now; then they are forgotten.
  const std::vector<float> target = forward();
  weight.write(zeros(weights));
  bias.write(zeros(2));

  std::vector<float> gradient(outputs);
  for (int step = 0; step <= 100; ++step) {
    const float loss = loss_of(forward(), target, &gradient);
    if (step % 10 == 0) std::printf("step %d: loss %g\n", step, static_cast<double>(loss));
    grad_output.write(gradient);
    pool_backward.run(device.stream);
    convolve_backward.run(device.stream);
    CHECK(aclrtSynchronizeStream(device.stream));
    update(&weight, grad_weight);
    update(&bias, grad_bias);
  }
  return 0;
}

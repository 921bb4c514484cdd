/* Gradients of a 1-D convolution with a bias, computed on a stream.
 *
 *   cc conv_backward.c -I$INFINI_ROOT/include -L$INFINI_ROOT/lib -linfiniop -linfinirt -lm
 */
#include <infiniop.h>
#include <infinirt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check(infiniStatus_t status, const char* call) {
  if (status == INFINI_STATUS_SUCCESS) return;
  fprintf(stderr, "%s returned %d\n", call, (int)status);
  exit(1);
}
#define CHECK(call) check(call, #call)

static infiniopTensorDescriptor_t describe(size_t ndim, size_t last) {
  const size_t shape[3] = {1, 1, last};
  infiniopTensorDescriptor_t desc;
  CHECK(infiniopCreateTensorDescriptor(&desc, ndim, shape, NULL, INFINI_DTYPE_F32));
  return desc;
}

static float report(const char* name, const float* got, const float* expected, int count) {
  float error = 0;
  printf("%s:", name);
  for (int i = 0; i < count; ++i) {
    printf(" %g", got[i]);
    error = fmaxf(error, fabsf(got[i] - expected[i]));
  }
  printf(", largest error: %g\n", error);
  return error;
}

int main(void) {
  /* output[o] = input[o] * weight[0] + input[o + 1] * weight[1] + bias */
  const float input[3] = {1, 2, 3}, weight[2] = {10, 1}, grad_output[2] = {1, 2};
  const float expected_input[3] = {1 * 10, 1 * 1 + 2 * 10, 2 * 1};
  const float expected_weight[2] = {1 * 1 + 2 * 2, 1 * 2 + 2 * 3}, expected_bias[1] = {1 + 2};
  float grad_input[3], grad_weight[2], grad_bias[1];

  infiniopHandle_t handle;
  infinirtStream_t stream;
  CHECK(infinirtSetDevice(INFINI_DEVICE_CPU, 0));
  CHECK(infiniopCreateHandle(&handle));
  CHECK(infinirtStreamCreate(&stream));

  infiniopTensorDescriptor_t output_desc = describe(3, 2), input_desc = describe(3, 3);
  infiniopTensorDescriptor_t weight_desc = describe(3, 2), bias_desc = describe(1, 1);
  size_t pad = 0, dilation = 1;
  ptrdiff_t stride = 1;
  infiniopConvBackwardDescriptor_t desc;
  CHECK(infiniopCreateConvBackwardDescriptor(handle, &desc, output_desc, input_desc, weight_desc,
                                             bias_desc, &pad, &stride, &dilation, 1));
  CHECK(infiniopDestroyTensorDescriptor(output_desc));
  CHECK(infiniopDestroyTensorDescriptor(input_desc));
  CHECK(infiniopDestroyTensorDescriptor(weight_desc));
  CHECK(infiniopDestroyTensorDescriptor(bias_desc));

  size_t workspace_size;
  void* workspace;
  CHECK(infiniopGetConvBackwardWorkspaceSize(desc, &workspace_size));
  CHECK(infinirtMalloc(&workspace, workspace_size));
  CHECK(infiniopConvBackward(desc, workspace, workspace_size, grad_input, grad_weight, grad_bias,
                             grad_output, input, weight, stream));
  CHECK(infinirtFreeAsync(workspace, stream));
  CHECK(infinirtStreamSynchronize(stream));
  CHECK(infiniopDestroyConvBackwardDescriptor(desc));
  CHECK(infinirtStreamDestroy(stream));
  CHECK(infiniopDestroyHandle(handle));

  float error = report("grad_input", grad_input, expected_input, 3);
  error = fmaxf(error, report("grad_weight", grad_weight, expected_weight, 2));
  error = fmaxf(error, report("grad_bias", grad_bias, expected_bias, 1));
  return error < 1e-6f ? 0 : 1;
}

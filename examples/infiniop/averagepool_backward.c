/* Gradient of 1-D average pooling: windows of 3, stride 2, padding 1, counted as part of a window.
 *
 *   cc averagepool_backward.c -I$INFINI_ROOT/include -L$INFINI_ROOT/lib -linfiniop -linfinirt -lm
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

int main(void) {
  /* Outputs 0 and 1 have the inputs -1 to 1 and 1 to 3, a third of their gradient each. */
  const float input[4] = {0};
  const float grad_output[2] = {3, 6};
  const float expected[4] = {1, 1 + 2, 2, 2};
  float grad_input[4];

  infiniopHandle_t handle;
  CHECK(infinirtSetDevice(INFINI_DEVICE_CPU, 0));
  CHECK(infiniopCreateHandle(&handle));

  const size_t input_shape[3] = {1, 1, 4}, output_shape[3] = {1, 1, 2};
  infiniopTensorDescriptor_t input_desc, output_desc;
  CHECK(infiniopCreateTensorDescriptor(&input_desc, 3, input_shape, NULL, INFINI_DTYPE_F32));
  CHECK(infiniopCreateTensorDescriptor(&output_desc, 3, output_shape, NULL, INFINI_DTYPE_F32));

  size_t kernel_size = 3, stride = 2, pad = 1;
  infiniopAvgPoolBackwardDescriptor_t desc;
  CHECK(infiniopCreateAvgPoolBackwardDescriptor(handle, &desc, input_desc, output_desc, input_desc,
                                                &kernel_size, &stride, &pad, false));
  CHECK(infiniopDestroyTensorDescriptor(input_desc));
  CHECK(infiniopDestroyTensorDescriptor(output_desc));

  size_t workspace_size;
  void* workspace;
  CHECK(infiniopGetAvgPoolBackwardWorkspaceSize(desc, &workspace_size));
  CHECK(infinirtMalloc(&workspace, workspace_size));
  CHECK(infiniopAvgPoolBackward(desc, workspace, workspace_size, grad_input, grad_output, input,
                                NULL));
  CHECK(infinirtFree(workspace));
  CHECK(infiniopDestroyAvgPoolBackwardDescriptor(desc));
  CHECK(infiniopDestroyHandle(handle));

  float error = 0;
  printf("grad_input:");
  for (int i = 0; i < 4; ++i) {
    printf(" %g", grad_input[i]);
    error = fmaxf(error, fabsf(grad_input[i] - expected[i]));
  }
  printf("\nlargest error: %g\n", error);
  return error < 1e-6f ? 0 : 1;
}

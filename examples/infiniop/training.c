/* A network learns by gradient descent: a convolution and average pooling, forward and backward.
 *
 * It is to give what another network gives, whose weights it does not know.
 *
 *   cc training.c -I$INFINI_ROOT/include -L$INFINI_ROOT/lib -linfiniop -linfinirt -lm
 */
#include <infiniop.h>
#include <infinirt.h>
#include <stdio.h>
#include <stdlib.h>

static void check(infiniStatus_t status, const char* call) {
  if (status == INFINI_STATUS_SUCCESS) return;
  fprintf(stderr, "%s returned %d\n", call, (int)status);
  exit(1);
}
#define CHECK(call) check(call, #call)

enum { BATCH = 8, SIDE = 8, CHANNELS = 4, KERNEL = 3, POOLED = SIDE / 2 };
enum {
  INPUTS = BATCH * SIDE * SIDE,
  MAPS = BATCH * CHANNELS * SIDE * SIDE,
  OUTPUTS = BATCH * CHANNELS * POOLED * POOLED,
  WEIGHTS = CHANNELS * KERNEL * KERNEL
};

static float x[INPUTS], maps[MAPS], outputs[OUTPUTS], wanted[OUTPUTS];
static float grad_outputs[OUTPUTS], grad_maps[MAPS], grad_x[INPUTS];
static float weight[WEIGHTS], bias[CHANNELS], grad_weight[WEIGHTS], grad_bias[CHANNELS];

static infiniopConvDescriptor_t conv;
static infiniopAvgPoolDescriptor_t pool;
static infiniopConvBackwardDescriptor_t conv_backward;
static infiniopAvgPoolBackwardDescriptor_t pool_backward;
static infinirtStream_t stream;
static void* workspace; /* one is enough: a stream does one thing at a time */
static size_t workspace_size;

static infiniopTensorDescriptor_t describe(size_t ndim, size_t n, size_t channels, size_t side) {
  const size_t shape[4] = {n, channels, side, side};
  infiniopTensorDescriptor_t desc;
  CHECK(infiniopCreateTensorDescriptor(&desc, ndim, shape, NULL, INFINI_DTYPE_F32));
  return desc;
}

static void need(size_t size) {
  if (size > workspace_size) workspace_size = size;
}

static void create_operators(void) {
  infiniopHandle_t handle;
  CHECK(infiniopCreateHandle(&handle));
  infiniopTensorDescriptor_t x_desc = describe(4, BATCH, 1, SIDE);
  infiniopTensorDescriptor_t maps_desc = describe(4, BATCH, CHANNELS, SIDE);
  infiniopTensorDescriptor_t outputs_desc = describe(4, BATCH, CHANNELS, POOLED);
  infiniopTensorDescriptor_t weight_desc = describe(4, CHANNELS, 1, KERNEL);
  infiniopTensorDescriptor_t bias_desc = describe(1, CHANNELS, 0, 0);
  size_t pads[2] = {1, 1}, windows[2] = {2, 2}, size;
  CHECK(infiniopCreateConvDescriptor(handle, &conv, maps_desc, x_desc, weight_desc, bias_desc, pads,
                                     NULL, NULL, 1));
  CHECK(infiniopCreateAvgPoolDescriptor(handle, &pool, outputs_desc, maps_desc, windows, NULL, NULL,
                                        false));
  CHECK(infiniopCreateAvgPoolBackwardDescriptor(handle, &pool_backward, maps_desc, outputs_desc,
                                                maps_desc, windows, NULL, NULL, false));
  CHECK(infiniopCreateConvBackwardDescriptor(handle, &conv_backward, maps_desc, x_desc, weight_desc,
                                             bias_desc, pads, NULL, NULL, 1));
  CHECK(infiniopDestroyTensorDescriptor(x_desc));
  CHECK(infiniopDestroyTensorDescriptor(maps_desc));
  CHECK(infiniopDestroyTensorDescriptor(outputs_desc));
  CHECK(infiniopDestroyTensorDescriptor(weight_desc));
  CHECK(infiniopDestroyTensorDescriptor(bias_desc));
  CHECK(infiniopDestroyHandle(handle));

  CHECK(infiniopGetConvWorkspaceSize(conv, &size));
  need(size);
  CHECK(infiniopGetAvgPoolWorkspaceSize(pool, &size));
  need(size);
  CHECK(infiniopGetAvgPoolBackwardWorkspaceSize(pool_backward, &size));
  need(size);
  CHECK(infiniopGetConvBackwardWorkspaceSize(conv_backward, &size));
  need(size);
  CHECK(infinirtMalloc(&workspace, workspace_size));
}

static void destroy_operators(void) {
  CHECK(infinirtFree(workspace));
  CHECK(infiniopDestroyConvDescriptor(conv));
  CHECK(infiniopDestroyAvgPoolDescriptor(pool));
  CHECK(infiniopDestroyAvgPoolBackwardDescriptor(pool_backward));
  CHECK(infiniopDestroyConvBackwardDescriptor(conv_backward));
}

static void run_forward(void) {
  CHECK(infiniopConv(conv, workspace, workspace_size, maps, x, weight, bias, stream));
  CHECK(infiniopAvgPool(pool, workspace, workspace_size, outputs, maps, stream));
  CHECK(infinirtStreamSynchronize(stream));
}

/* The mean square of what the outputs are off by, and its gradient. */
static float run_loss(void) {
  float loss = 0;
  for (int i = 0; i < OUTPUTS; ++i) {
    const float off = outputs[i] - wanted[i];
    loss += off * off / OUTPUTS;
    grad_outputs[i] = 2 * off / OUTPUTS;
  }
  return loss;
}

static void run_backward(void) {
  CHECK(infiniopAvgPoolBackward(pool_backward, workspace, workspace_size, grad_maps, grad_outputs,
                                maps, stream));
  CHECK(infiniopConvBackward(conv_backward, workspace, workspace_size, grad_x, grad_weight,
                             grad_bias, grad_maps, x, weight, stream));
  CHECK(infinirtStreamSynchronize(stream));
}

static void update(float* values, const float* gradient, int count) {
  for (int i = 0; i < count; ++i) values[i] -= gradient[i];
}

/* Numbers from -1 to 1 that look like random ones. */
static void fill(float* values, int count) {
  static unsigned state = 1;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(state >> 8) / (1 << 23) - 1;
  }
}

int main(void) {
  float loss = 0, first = 0;
  CHECK(infinirtSetDevice(INFINI_DEVICE_CPU, 0));
  CHECK(infinirtStreamCreate(&stream));
  create_operators();

  fill(x, INPUTS);
  fill(weight, WEIGHTS); /* of the other network, for now */
  fill(bias, CHANNELS);
  run_forward();
  for (int i = 0; i < OUTPUTS; ++i) wanted[i] = outputs[i];

  fill(weight, WEIGHTS);
  fill(bias, CHANNELS);
  for (int step = 0; step <= 200; ++step) {
    run_forward();
    loss = run_loss();
    if (step == 0) first = loss;
    if (step % 20 == 0) printf("step %d: loss %g\n", step, loss);
    run_backward();
    update(weight, grad_weight, WEIGHTS);
    update(bias, grad_bias, CHANNELS);
  }

  destroy_operators();
  CHECK(infinirtStreamDestroy(stream));
  return loss < first / 100 ? 0 : 1;
}

/* The documented table of errors, row by row, from C: for valgrind and sanitizers, which see what
 * is leaked or read beyond its end on the way. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "problems.h"

static infiniopHandle_t handle;
static struct InfiniopDescriptor untouched;

#define POOL_REFUSES(change, expected)                              \
  do {                                                              \
    PoolProblem p = legal_pool();                                   \
    infiniopAvgPoolBackwardDescriptor_t desc = &untouched;          \
    change;                                                         \
    CHECK_STATUS(create_pool_backward(handle, p, &desc), expected); \
    CHECK(desc == &untouched);                                      \
  } while (0)
#define CONV_REFUSES(change, expected)                             \
  do {                                                             \
    ConvProblem p = legal_conv();                                  \
    struct InfiniopDescriptor* desc = &untouched;                  \
    change;                                                        \
    CHECK_STATUS(create_conv(create, handle, p, &desc), expected); \
    CHECK(desc == &untouched);                                     \
  } while (0)

static void set_overlapping(Tensor* tensor) {
  tensor->has_strides = 1;
  memset(tensor->strides, 0, sizeof tensor->strides);
}

static void pool_rows(void) {
  POOL_REFUSES(p.grad_input.is_null = 1, INFINI_STATUS_BAD_PARAM);
  POOL_REFUSES(p.output.is_null = 1, INFINI_STATUS_BAD_PARAM);
  POOL_REFUSES(p.input.is_null = 1, INFINI_STATUS_BAD_PARAM);
  POOL_REFUSES(p.has_no_kernel = 1, INFINI_STATUS_BAD_PARAM);
  POOL_REFUSES(p.input.dtype = INFINI_DTYPE_F16, INFINI_STATUS_BAD_TENSOR_DTYPE);
  POOL_REFUSES(p.output.dtype = INFINI_DTYPE_F64, INFINI_STATUS_BAD_TENSOR_DTYPE);
  POOL_REFUSES(p.grad_input.dtype = 99, INFINI_STATUS_BAD_TENSOR_DTYPE);
  POOL_REFUSES(p.input.ndim = 2, INFINI_STATUS_BAD_TENSOR_SHAPE);
  POOL_REFUSES(p.output.shape[3] = 5, INFINI_STATUS_BAD_TENSOR_SHAPE);
  POOL_REFUSES(p.grad_input.shape[0] = 0, INFINI_STATUS_BAD_TENSOR_SHAPE);
  POOL_REFUSES(p.input.shape[1] = (size_t)-1, INFINI_STATUS_BAD_TENSOR_SHAPE);
  POOL_REFUSES(p.kernel[1] = 0, INFINI_STATUS_BAD_PARAM);
  POOL_REFUSES(p.strides[0] = 0, INFINI_STATUS_BAD_PARAM);
  POOL_REFUSES(p.pads[0] = 2, INFINI_STATUS_BAD_PARAM);
  POOL_REFUSES(set_overlapping(&p.grad_input), INFINI_STATUS_BAD_TENSOR_STRIDES);

  handle->device = INFINI_DEVICE_ASCEND;
  POOL_REFUSES((void)0, INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED);
  handle->device = INFINI_DEVICE_CPU;
}

#define FORWARD_POOL_REFUSES(change, expected)                           \
  do {                                                                   \
    PoolProblem p = legal_forward_pool(pool);                            \
    struct InfiniopDescriptor* desc = &untouched;                        \
    change;                                                              \
    CHECK_STATUS(create_pool(pool->create, handle, p, &desc), expected); \
    CHECK(desc == &untouched);                                           \
  } while (0)

static void forward_pool_rows(const Pool* pool) {
  FORWARD_POOL_REFUSES(p.output.is_null = 1, INFINI_STATUS_BAD_PARAM);
  FORWARD_POOL_REFUSES(p.input.is_null = 1, INFINI_STATUS_BAD_PARAM);
  FORWARD_POOL_REFUSES(p.input.dtype = INFINI_DTYPE_F16, INFINI_STATUS_BAD_TENSOR_DTYPE);
  FORWARD_POOL_REFUSES(p.output.dtype = INFINI_DTYPE_F64, INFINI_STATUS_BAD_TENSOR_DTYPE);
  FORWARD_POOL_REFUSES(p.input.ndim = 2, INFINI_STATUS_BAD_TENSOR_SHAPE);
  FORWARD_POOL_REFUSES(p.output.ndim = 2, INFINI_STATUS_BAD_TENSOR_SHAPE);
  FORWARD_POOL_REFUSES(p.output.shape[1] = 4, INFINI_STATUS_BAD_TENSOR_SHAPE);
  FORWARD_POOL_REFUSES(p.output.shape[2] = 0, INFINI_STATUS_BAD_TENSOR_SHAPE);
  FORWARD_POOL_REFUSES(p.input.shape[1] = (size_t)-1, INFINI_STATUS_BAD_TENSOR_SHAPE);
  FORWARD_POOL_REFUSES(set_overlapping(&p.output), INFINI_STATUS_BAD_TENSOR_STRIDES);
  if (pool->create != create_avg_pool1d && pool->create != create_adaptive_pool1d) {
    FORWARD_POOL_REFUSES(p.has_no_kernel = 1, INFINI_STATUS_BAD_PARAM);
    FORWARD_POOL_REFUSES(p.output.shape[2] = 5, INFINI_STATUS_BAD_TENSOR_SHAPE);
  }
  if (!pool->is_adaptive) {
    FORWARD_POOL_REFUSES(p.kernel[0] = 0, INFINI_STATUS_BAD_PARAM);
    FORWARD_POOL_REFUSES(p.strides[0] = 0, INFINI_STATUS_BAD_PARAM);
    FORWARD_POOL_REFUSES(p.pads[0] = 2, INFINI_STATUS_BAD_PARAM);
  }
  handle->device = INFINI_DEVICE_ASCEND;
  FORWARD_POOL_REFUSES((void)0, INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED);
  handle->device = INFINI_DEVICE_CPU;
}

static void forward_pool_compute_rows(const Pool* pool) {
  static float output[POOL_ELEMENTS], input[POOL_ELEMENTS];
  struct InfiniopDescriptor* desc;
  size_t size = 0;
  CHECK_SUCCESS(create_pool(pool->create, handle, legal_forward_pool(pool), &desc));
  CHECK_SUCCESS(pool->get_workspace_size(desc, &size));
  void* const space = malloc(size);
  CHECK_SUCCESS(pool->compute(desc, space, size, output, input, NULL));
  CHECK_STATUS(pool->compute(NULL, space, size, output, input, NULL), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(pool->compute(desc, NULL, size, output, input, NULL), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(pool->compute(desc, space, size, NULL, input, NULL), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(pool->compute(desc, space, size, output, NULL, NULL), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(pool->compute(desc, space, size - 1, output, input, NULL), INFINI_STATUS_BAD_PARAM);
  desc->device = INFINI_DEVICE_ALI;
  CHECK_STATUS(pool->compute(desc, space, size, output, input, NULL),
               INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED);
  CHECK_STATUS(pool->destroy(desc), INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED);
  desc->device = INFINI_DEVICE_CPU;
  free(space);
  CHECK_SUCCESS(pool->destroy(desc));
}

/* Of what both convolutions refuse. */
static void conv_rows(CreateConv* create) {
  CONV_REFUSES(p.output.is_null = 1, INFINI_STATUS_BAD_PARAM);
  CONV_REFUSES(p.input.is_null = 1, INFINI_STATUS_BAD_PARAM);
  CONV_REFUSES(p.weight.is_null = 1, INFINI_STATUS_BAD_PARAM);
  CONV_REFUSES(p.bias.dtype = INFINI_DTYPE_BF16, INFINI_STATUS_BAD_TENSOR_DTYPE);
  CONV_REFUSES(p.weight.dtype = INFINI_DTYPE_I32, INFINI_STATUS_BAD_TENSOR_DTYPE);
  CONV_REFUSES(p.weight.ndim = 6, INFINI_STATUS_BAD_TENSOR_SHAPE);
  CONV_REFUSES(p.output.shape[0] = 3, INFINI_STATUS_BAD_TENSOR_SHAPE);
  CONV_REFUSES(p.input.shape[2] = 0, INFINI_STATUS_BAD_TENSOR_SHAPE);
  CONV_REFUSES(p.bias.shape[0] = 5, INFINI_STATUS_BAD_TENSOR_SHAPE);
  CONV_REFUSES(p.input.shape[0] = (size_t)1 << 62, INFINI_STATUS_BAD_TENSOR_SHAPE);
  CONV_REFUSES(p.strides[0] = 0, INFINI_STATUS_BAD_PARAM);
  CONV_REFUSES(p.strides[1] = -1, INFINI_STATUS_BAD_PARAM);
  CONV_REFUSES(p.dilations[1] = 0, INFINI_STATUS_BAD_PARAM);
  CONV_REFUSES(p.groups = 0, INFINI_STATUS_BAD_PARAM);

  handle->device = INFINI_DEVICE_ASCEND;
  CONV_REFUSES((void)0, INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED);
  handle->device = INFINI_DEVICE_CPU;
}

/* What is written must not overlap itself: gradients are laid out like what they belong to. */
static void overlap_rows(void) {
  CreateConv* create = infiniopCreateConvDescriptor;
  CONV_REFUSES(set_overlapping(&p.output), INFINI_STATUS_BAD_TENSOR_STRIDES);
  create = infiniopCreateConvBackwardDescriptor;
  CONV_REFUSES(set_overlapping(&p.input), INFINI_STATUS_BAD_TENSOR_STRIDES);
  CONV_REFUSES(set_overlapping(&p.weight), INFINI_STATUS_BAD_TENSOR_STRIDES);
  CONV_REFUSES(set_overlapping(&p.bias), INFINI_STATUS_BAD_TENSOR_STRIDES);
}

/* Arrays of int, as published clients have them; each is as long as its memory. */
static int* ints(int first, int second) {
  int* const values = malloc(2 * sizeof(int));
  if (values == NULL) exit(2);
  values[0] = first;
  values[1] = second;
  return values;
}

static CreateConv* create;
static DestroyDescriptor* destroy;

static infiniStatus_t create_of_ints(int* pads, int* strides, int* dilations) {
  const ConvProblem problem = legal_conv();
  const infiniopTensorDescriptor_t tensors[4] = {describe(problem.output), describe(problem.input),
                                                 describe(problem.weight), describe(problem.bias)};
  struct InfiniopDescriptor* desc = &untouched;
  const infiniStatus_t status = create(handle, &desc, tensors[0], tensors[1], tensors[2],
                                       tensors[3], pads, strides, dilations, problem.groups);
  CHECK((desc == &untouched) == (status != INFINI_STATUS_SUCCESS));
  if (desc != &untouched) CHECK_SUCCESS(destroy(desc));
  for (int i = 0; i < 4; ++i) infiniopDestroyTensorDescriptor(tensors[i]);
  free(pads);
  free(strides);
  free(dilations);
  return status;
}

static void int_rows(CreateConv* of_create, DestroyDescriptor* of_destroy) {
  create = of_create;
  destroy = of_destroy;
  CHECK_SUCCESS(create_of_ints(ints(1, 1), ints(2, 2), ints(1, 1)));
  CHECK_SUCCESS(create_of_ints(ints(1, 1), ints(2, 2), NULL));
  CHECK_STATUS(create_of_ints(ints(1, 1), NULL, ints(1, 1)), INFINI_STATUS_BAD_TENSOR_SHAPE);
  CHECK_STATUS(create_of_ints(ints(1, -1), ints(2, 2), NULL), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(create_of_ints(NULL, ints(2, -1), NULL), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(create_of_ints(NULL, ints(0, 2), NULL), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(create_of_ints(NULL, ints(2, 0), ints(1, 1)), INFINI_STATUS_BAD_PARAM);
}

static void pool_compute_rows(void) {
  static float grad_input[2 * 3 * 8 * 8], grad_output[2 * 3 * 4 * 4], input[2 * 3 * 8 * 8];
  infiniopAvgPoolBackwardDescriptor_t desc;
  size_t size = 0;
  CHECK_SUCCESS(create_pool_backward(handle, legal_pool(), &desc));
  CHECK_SUCCESS(infiniopGetAvgPoolBackwardWorkspaceSize(desc, &size));
  void* const space = malloc(size);
#define COMPUTE(desc, space, size, x, y, z) \
  infiniopAvgPoolBackward(desc, space, size, x, y, z, NULL)
  CHECK_SUCCESS(COMPUTE(desc, space, size, grad_input, grad_output, input));
  CHECK_STATUS(COMPUTE(NULL, space, size, grad_input, grad_output, input), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(COMPUTE(desc, NULL, size, grad_input, grad_output, input), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(COMPUTE(desc, space, size, NULL, grad_output, input), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(COMPUTE(desc, space, size, grad_input, NULL, input), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(COMPUTE(desc, space, size, grad_input, grad_output, NULL), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(COMPUTE(desc, space, size - 1, grad_input, grad_output, input),
               INFINI_STATUS_BAD_PARAM);
  desc->device = INFINI_DEVICE_ALI;
  CHECK_STATUS(COMPUTE(desc, space, size, grad_input, grad_output, input),
               INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED);
  CHECK_STATUS(infiniopDestroyAvgPoolBackwardDescriptor(desc),
               INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED);
  desc->device = INFINI_DEVICE_CPU;
#undef COMPUTE
  free(space);
  CHECK_SUCCESS(infiniopDestroyAvgPoolBackwardDescriptor(desc));
}

static void conv_compute_rows(void) {
  static float y[2 * 6 * 4 * 4], x[2 * 4 * 8 * 8], w[6 * 2 * 3 * 3], bias[6];
  void* pointers[4] = {y, x, w, bias};
  infiniopConvDescriptor_t desc;
  size_t size = 0;
  CHECK_SUCCESS(create_conv(infiniopCreateConvDescriptor, handle, legal_conv(), &desc));
  CHECK_SUCCESS(infiniopGetConvWorkspaceSize(desc, &size));
  void* const space = malloc(size);
#define COMPUTE(desc, space, size) \
  infiniopConv(desc, space, size, pointers[0], pointers[1], pointers[2], pointers[3], NULL)
  CHECK_SUCCESS(COMPUTE(desc, space, size));
  CHECK_STATUS(COMPUTE(NULL, space, size), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(COMPUTE(desc, NULL, size), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(COMPUTE(desc, space, size - 1), INFINI_STATUS_INSUFFICIENT_WORKSPACE);
  for (int i = 0; i < 4; ++i) {
    void* const pointer = pointers[i];
    pointers[i] = NULL;
    CHECK_STATUS(COMPUTE(desc, space, size), INFINI_STATUS_BAD_PARAM);
    pointers[i] = pointer;
  }
  desc->device = INFINI_DEVICE_NVIDIA;
  CHECK_STATUS(COMPUTE(desc, space, size), INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED);
  desc->device = INFINI_DEVICE_CPU;
#undef COMPUTE
  free(space);
  CHECK_SUCCESS(infiniopDestroyConvDescriptor(desc));
}

static void conv_backward_compute_rows(void) {
  static float grad_input[2 * 4 * 8 * 8], grad_weight[6 * 2 * 3 * 3], grad_bias[6];
  static float grad_output[2 * 6 * 4 * 4], input[2 * 4 * 8 * 8], weight[6 * 2 * 3 * 3];
  void* pointers[6] = {grad_input, grad_weight, grad_bias, grad_output, input, weight};
  infiniopConvBackwardDescriptor_t desc;
  size_t size = 0;
  CHECK_SUCCESS(create_conv(infiniopCreateConvBackwardDescriptor, handle, legal_conv(), &desc));
  CHECK_SUCCESS(infiniopGetConvBackwardWorkspaceSize(desc, &size));
  void* const space = malloc(size);
#define COMPUTE(desc, space, size)                                                            \
  infiniopConvBackward(desc, space, size, pointers[0], pointers[1], pointers[2], pointers[3], \
                       pointers[4], pointers[5], NULL)
  CHECK_SUCCESS(COMPUTE(desc, space, size));
  CHECK_STATUS(COMPUTE(NULL, space, size), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(COMPUTE(desc, NULL, size), INFINI_STATUS_BAD_PARAM);
  CHECK_STATUS(COMPUTE(desc, space, size - 1), INFINI_STATUS_INSUFFICIENT_WORKSPACE);
  for (int i = 0; i < 6; ++i) {
    void* const pointer = pointers[i];
    pointers[i] = NULL;
    CHECK_STATUS(COMPUTE(desc, space, size), INFINI_STATUS_BAD_PARAM);
    pointers[i] = pointer;
  }
  desc->device = INFINI_DEVICE_NVIDIA;
  CHECK_STATUS(COMPUTE(desc, space, size), INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED);
  desc->device = INFINI_DEVICE_CPU;
#undef COMPUTE
  free(space);
  CHECK_SUCCESS(infiniopDestroyConvBackwardDescriptor(desc));
}

int main(void) {
  CHECK_SUCCESS(infinirtSetDevice(INFINI_DEVICE_CPU, 0));
  CHECK_STATUS(infiniopCreateHandle(NULL), INFINI_STATUS_NULL_POINTER);
  CHECK_SUCCESS(infiniopCreateHandle(&handle));
  pool_rows();
  for (int i = 0; i < POOLS; ++i) {
    forward_pool_rows(&forward_pools[i]);
    forward_pool_compute_rows(&forward_pools[i]);
  }
  conv_rows(infiniopCreateConvDescriptor);
  conv_rows(infiniopCreateConvBackwardDescriptor);
  overlap_rows();
  int_rows(infiniopCreateConvDescriptor, infiniopDestroyConvDescriptor);
  int_rows(infiniopCreateConvBackwardDescriptor, infiniopDestroyConvBackwardDescriptor);
  pool_compute_rows();
  conv_compute_rows();
  conv_backward_compute_rows();
  CHECK_SUCCESS(infiniopDestroyHandle(handle));
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

/* One legal problem of each operator; tests change what they want to be wrong. */
#ifndef PROBLEMS_H
#define PROBLEMS_H

#include <infiniop.h>
#include <infinirt.h>

typedef struct {
  size_t ndim;
  size_t shape[6];
  ptrdiff_t strides[6];
  int has_strides;
  int dtype;
  int is_null;
} Tensor;

/* A copy of `tensor` as a descriptor; NULL for none. */
static inline infiniopTensorDescriptor_t describe(Tensor tensor) {
  infiniopTensorDescriptor_t desc = NULL;
  if (tensor.is_null) return NULL;
  infiniopCreateTensorDescriptor(&desc, tensor.ndim, tensor.shape,
                                 tensor.has_strides ? tensor.strides : NULL,
                                 (infiniDtype_t)tensor.dtype);
  return desc;
}

/* Of fixed windows in both directions. `output` is AvgPool's, or the gradient that AvgPoolBackward
 * reads, which also has a `grad_input`. */
typedef struct {
  Tensor grad_input, output, input;
  size_t kernel[3], strides[3], pads[3];
  int has_no_kernel;
} PoolProblem;

static inline PoolProblem legal_pool(void) {
  const PoolProblem problem = {{4, {2, 3, 8, 8}, {0}, 0, INFINI_DTYPE_F32, 0},
                               {4, {2, 3, 4, 4}, {0}, 0, INFINI_DTYPE_F32, 0},
                               {4, {2, 3, 8, 8}, {0}, 0, INFINI_DTYPE_F32, 0},
                               {3, 3, 3},
                               {2, 2, 2},
                               {1, 1, 1},
                               0};
  return problem;
}

static inline infiniStatus_t create_pool_backward(infiniopHandle_t handle, PoolProblem problem,
                                                  infiniopAvgPoolBackwardDescriptor_t* desc) {
  const infiniopTensorDescriptor_t grad_input = describe(problem.grad_input);
  const infiniopTensorDescriptor_t output = describe(problem.output);
  const infiniopTensorDescriptor_t input = describe(problem.input);
  const infiniStatus_t status = infiniopCreateAvgPoolBackwardDescriptor(
      handle, desc, grad_input, output, input, problem.has_no_kernel ? NULL : problem.kernel,
      problem.strides, problem.pads, false);
  infiniopDestroyTensorDescriptor(grad_input);
  infiniopDestroyTensorDescriptor(output);
  infiniopDestroyTensorDescriptor(input);
  return status;
}

/* Any of the operators that pool forward, from an input to an output. */
typedef infiniStatus_t CreatePool(infiniopHandle_t, infiniopTensorDescriptor_t output,
                                  infiniopTensorDescriptor_t input, PoolProblem*,
                                  struct InfiniopDescriptor**);

static inline infiniStatus_t create_pool(CreatePool* create, infiniopHandle_t handle,
                                         PoolProblem problem, struct InfiniopDescriptor** desc) {
  const infiniopTensorDescriptor_t output = describe(problem.output);
  const infiniopTensorDescriptor_t input = describe(problem.input);
  const infiniStatus_t status = create(handle, output, input, &problem, desc);
  infiniopDestroyTensorDescriptor(output);
  infiniopDestroyTensorDescriptor(input);
  return status;
}

#define KERNEL(problem) ((problem)->has_no_kernel ? NULL : (problem)->kernel)

static inline infiniStatus_t create_avg_pool(infiniopHandle_t handle,
                                             infiniopTensorDescriptor_t output,
                                             infiniopTensorDescriptor_t input, PoolProblem* problem,
                                             struct InfiniopDescriptor** desc) {
  return infiniopCreateAvgPoolDescriptor(handle, desc, output, input, KERNEL(problem),
                                         problem->strides, problem->pads, false);
}

static inline infiniStatus_t create_avg_pool1d(infiniopHandle_t handle,
                                               infiniopTensorDescriptor_t output,
                                               infiniopTensorDescriptor_t input,
                                               PoolProblem* problem,
                                               struct InfiniopDescriptor** desc) {
  return infiniopCreateAvgPool1dDescriptor(handle, desc, output, input, problem->kernel[0],
                                           problem->strides[0], problem->pads[0]);
}

static inline infiniStatus_t create_avg_pool3d(infiniopHandle_t handle,
                                               infiniopTensorDescriptor_t output,
                                               infiniopTensorDescriptor_t input,
                                               PoolProblem* problem,
                                               struct InfiniopDescriptor** desc) {
  return infiniopCreateAvgPool3dDescriptor(handle, desc, output, input, KERNEL(problem),
                                           problem->strides, problem->pads);
}

static inline infiniStatus_t create_adaptive_pool1d(infiniopHandle_t handle,
                                                    infiniopTensorDescriptor_t output,
                                                    infiniopTensorDescriptor_t input,
                                                    PoolProblem* problem,
                                                    struct InfiniopDescriptor** desc) {
  (void)problem;
  return infiniopCreateAdaptiveAvgPool1dDescriptor(handle, desc, output, input);
}

/* `kernel` stands for the sizes of the output. */
static inline infiniStatus_t create_adaptive_pool3d(infiniopHandle_t handle,
                                                    infiniopTensorDescriptor_t output,
                                                    infiniopTensorDescriptor_t input,
                                                    PoolProblem* problem,
                                                    struct InfiniopDescriptor** desc) {
  return infiniopCreateAdaptiveAvgPool3DDescriptor(handle, desc, output, input, KERNEL(problem));
}

typedef infiniStatus_t GetWorkspaceSize(struct InfiniopDescriptor*, size_t*);
typedef infiniStatus_t ComputePool(struct InfiniopDescriptor*, void*, size_t, void*, const void*,
                                   void*);
typedef infiniStatus_t DestroyDescriptor(struct InfiniopDescriptor*);

typedef struct {
  const char* name;
  size_t ndim;
  CreatePool* create;
  GetWorkspaceSize* get_workspace_size;
  ComputePool* compute;
  DestroyDescriptor* destroy;
  int is_adaptive;
} Pool;

enum { POOLS = 5 };

static const Pool forward_pools[POOLS] = {
    {"AvgPool", 4, create_avg_pool, infiniopGetAvgPoolWorkspaceSize, infiniopAvgPool,
     infiniopDestroyAvgPoolDescriptor, 0},
    {"AvgPool1d", 3, create_avg_pool1d, infiniopGetAvgPool1dWorkspaceSize, infiniopAvgPool1d,
     infiniopDestroyAvgPool1dDescriptor, 0},
    {"AvgPool3d", 5, create_avg_pool3d, infiniopGetAvgPool3dWorkspaceSize, infiniopAvgPool3d,
     infiniopDestroyAvgPool3dDescriptor, 0},
    {"AdaptiveAvgPool1d", 3, create_adaptive_pool1d, infiniopGetAdaptiveAvgPool1dWorkspaceSize,
     infiniopAdaptiveAvgPool1d, infiniopDestroyAdaptiveAvgPool1dDescriptor, 1},
    {"AdaptiveAvgPool3D", 5, create_adaptive_pool3d, infiniopGetAdaptiveAvgPool3DWorkspaceSize,
     infiniopAdaptiveAvgPool3D, infiniopDestroyAdaptiveAvgPool3DDescriptor, 1},
};

/* Of an operator of forward_pools. Its tensors have at most POOL_ELEMENTS elements. */
enum { POOL_ELEMENTS = 2 * 3 * 8 * 8 * 8 };

static inline PoolProblem legal_forward_pool(const Pool* pool) {
  PoolProblem problem = legal_pool();
  problem.output.ndim = problem.input.ndim = pool->ndim;
  problem.output.shape[4] = 4;
  problem.input.shape[4] = 8;
  if (pool->is_adaptive) problem.kernel[0] = problem.kernel[1] = problem.kernel[2] = 4;
  return problem;
}

/* Of both convolutions: `output` is Conv's, or the gradient that ConvBackward reads. */
typedef struct {
  Tensor output, input, weight, bias;
  size_t pads[3];
  ptrdiff_t strides[3];
  size_t dilations[3];
  size_t groups;
} ConvProblem;

static inline ConvProblem legal_conv(void) {
  const ConvProblem problem = {{4, {2, 6, 4, 4}, {0}, 0, INFINI_DTYPE_F32, 0},
                               {4, {2, 4, 8, 8}, {0}, 0, INFINI_DTYPE_F32, 0},
                               {4, {6, 2, 3, 3}, {0}, 0, INFINI_DTYPE_F32, 0},
                               {1, {6}, {0}, 0, INFINI_DTYPE_F32, 0},
                               {1, 1, 1},
                               {2, 2, 2},
                               {1, 1, 1},
                               2};
  return problem;
}

typedef infiniStatus_t CreateConv(infiniopHandle_t, struct InfiniopDescriptor**,
                                  infiniopTensorDescriptor_t, infiniopTensorDescriptor_t,
                                  infiniopTensorDescriptor_t, infiniopTensorDescriptor_t, void*,
                                  void*, void*, size_t);

static inline infiniStatus_t create_conv(CreateConv* create, infiniopHandle_t handle,
                                         ConvProblem problem, struct InfiniopDescriptor** desc) {
  const infiniopTensorDescriptor_t output = describe(problem.output);
  const infiniopTensorDescriptor_t input = describe(problem.input);
  const infiniopTensorDescriptor_t weight = describe(problem.weight);
  const infiniopTensorDescriptor_t bias = describe(problem.bias);
  const infiniStatus_t status = create(handle, desc, output, input, weight, bias, problem.pads,
                                       problem.strides, problem.dilations, problem.groups);
  infiniopDestroyTensorDescriptor(output);
  infiniopDestroyTensorDescriptor(input);
  infiniopDestroyTensorDescriptor(weight);
  infiniopDestroyTensorDescriptor(bias);
  return status;
}

#endif

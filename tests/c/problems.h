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

typedef struct {
  Tensor grad_input, grad_output, input;
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

static inline infiniStatus_t create_pool(infiniopHandle_t handle, PoolProblem problem,
                                         infiniopAvgPoolBackwardDescriptor_t* desc) {
  const infiniopTensorDescriptor_t grad_input = describe(problem.grad_input);
  const infiniopTensorDescriptor_t grad_output = describe(problem.grad_output);
  const infiniopTensorDescriptor_t input = describe(problem.input);
  const infiniStatus_t status = infiniopCreateAvgPoolBackwardDescriptor(
      handle, desc, grad_input, grad_output, input, problem.has_no_kernel ? NULL : problem.kernel,
      problem.strides, problem.pads, false);
  infiniopDestroyTensorDescriptor(grad_input);
  infiniopDestroyTensorDescriptor(grad_output);
  infiniopDestroyTensorDescriptor(input);
  return status;
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

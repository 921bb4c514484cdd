/* What happens when there is no memory, or no thread.
 *
 * Every call that allocates, with the first, second, third ... allocation failing: a status each
 * time, no out-parameter written, nothing leaked; and computing, which does not allocate. */
#include "failing_malloc.h" /* before anything that allocates */

#include "check.h"
#include "problems.h"

static infiniopHandle_t handle;
static infiniopTensorDescriptor_t large, small, weight, bias;
static void* made;

static infiniStatus_t make_handle(void) { return infiniopCreateHandle((infiniopHandle_t*)&made); }
static void drop_handle(void) { infiniopDestroyHandle(made); }

static infiniStatus_t make_tensor(void) {
  const size_t shape[3] = {1, 1, 8};
  const ptrdiff_t strides[3] = {8, 8, 1};
  return infiniopCreateTensorDescriptor((infiniopTensorDescriptor_t*)&made, 3, shape, strides,
                                        INFINI_DTYPE_F32);
}
static void drop_tensor(void) { infiniopDestroyTensorDescriptor(made); }

static infiniStatus_t make_pool_backward(void) {
  size_t kernel[1] = {3}, strides[1] = {2}, pads[1] = {1};
  return infiniopCreateAvgPoolBackwardDescriptor(handle,
                                                 (infiniopAvgPoolBackwardDescriptor_t*)&made, large,
                                                 small, large, kernel, strides, pads, false);
}
static void drop_pool_backward(void) { infiniopDestroyAvgPoolBackwardDescriptor(made); }

/* The operator of forward_pools that is tried. */
static const Pool* pool;
static infiniopTensorDescriptor_t pool_output, pool_input;

static infiniStatus_t make_pool(void) {
  PoolProblem problem = legal_forward_pool(pool);
  return pool->create(handle, pool_output, pool_input, &problem,
                      (struct InfiniopDescriptor**)&made);
}
static void drop_pool(void) { pool->destroy(made); }

static infiniStatus_t make_conv_by(CreateConv* create, infiniopTensorDescriptor_t bias_desc) {
  ptrdiff_t strides[1] = {2};
  return create(handle, (struct InfiniopDescriptor**)&made, small, large, weight, bias_desc, NULL,
                strides, NULL, 1);
}
static infiniStatus_t make_conv(void) { return make_conv_by(infiniopCreateConvDescriptor, bias); }
static void drop_conv(void) { infiniopDestroyConvDescriptor(made); }

static infiniStatus_t make_conv_backward(void) {
  return make_conv_by(infiniopCreateConvBackwardDescriptor, NULL);
}
static void drop_conv_backward(void) { infiniopDestroyConvBackwardDescriptor(made); }

static infiniStatus_t make_stream(void) { return infinirtStreamCreate(&made); }
static void drop_stream(void) { infinirtStreamDestroy(made); }

static infiniStatus_t make_event(void) { return infinirtEventCreate(&made); }
static void drop_event(void) { infinirtEventDestroy(made); }

static infiniStatus_t make_memory(void) { return infinirtMalloc(&made, 100); }
static void drop_memory(void) { infinirtFree(made); }

static void fail_at_every_allocation(const char* name, infiniStatus_t (*make)(void),
                                     void (*drop)(void)) {
  long allocations = 0;
  for (;; ++allocations) {
    const long before = held;
    made = &made;
    left = allocations + 1;
    const infiniStatus_t status = make();
    left = -1;
    if (status == INFINI_STATUS_SUCCESS) {
      drop();
      CHECK(held == before);
      break;
    }
    CHECK_STATUS(status, INFINI_STATUS_INTERNAL_ERROR);
    CHECK(made == &made);
    CHECK(held == before);
    if (allocations == 10000) break;
  }
  CHECK(allocations > 0 && allocations < 10000);
  printf("%s: %ld allocations\n", name, allocations);
}

static infiniStatus_t compute_pool_backward(void) {
  static float grad_input[8], input[8], grad_output[4];
  static char space[1 << 20];
  return infiniopAvgPoolBackward(made, space, sizeof space, grad_input, grad_output, input, NULL);
}

static infiniStatus_t compute_pool(void) {
  static float output[POOL_ELEMENTS], input[POOL_ELEMENTS];
  static char space[1 << 20];
  return pool->compute(made, space, sizeof space, output, input, NULL);
}

static infiniStatus_t compute_conv(void) {
  static float y[4], x[8], w[2], added[1];
  static char space[1 << 20];
  return infiniopConv(made, space, sizeof space, y, x, w, added, NULL);
}

static infiniStatus_t compute_conv_backward(void) {
  static float grad_input[8], input[8], grad_output[4], grad_weight[2], kernel[2];
  static char space[1 << 20];
  return infiniopConvBackward(made, space, sizeof space, grad_input, grad_weight, NULL, grad_output,
                              input, kernel, NULL);
}

static void compute_without_allocating(infiniStatus_t (*make)(void),
                                       infiniStatus_t (*compute)(void), void (*drop)(void)) {
  CHECK_SUCCESS(make());
  CHECK_SUCCESS(compute()); /* threads exist from now on */
  left = 1;
  CHECK_SUCCESS(compute());
  CHECK(left == 1);
  left = -1;
  drop();
}

/* A stream needs a thread for its first operation. */
static void queue_without_thread(void) {
  infinirtStream_t stream;
  char memory[8] = "";
  CHECK_SUCCESS(infinirtStreamCreate(&stream));
  has_threads = 0;
  CHECK_STATUS(infinirtMemsetAsync(memory, 7, 8, stream), INFINI_STATUS_INTERNAL_ERROR);
  has_threads = 1;
  CHECK_SUCCESS(infinirtStreamSynchronize(stream));
  CHECK(memory[0] == 0);
  CHECK_SUCCESS(infinirtMemsetAsync(memory, 7, 8, stream));
  CHECK_SUCCESS(infinirtStreamDestroy(stream));
  CHECK(memory[0] == 7);
}

int main(void) {
  const size_t large_shape[3] = {1, 1, 8}, small_shape[3] = {1, 1, 4}, weight_shape[3] = {1, 1, 2},
               bias_shape[1] = {1};
  CHECK_SUCCESS(infiniopCreateHandle(&handle));
  CHECK_SUCCESS(infiniopCreateTensorDescriptor(&large, 3, large_shape, NULL, INFINI_DTYPE_F32));
  CHECK_SUCCESS(infiniopCreateTensorDescriptor(&small, 3, small_shape, NULL, INFINI_DTYPE_F32));
  CHECK_SUCCESS(infiniopCreateTensorDescriptor(&weight, 3, weight_shape, NULL, INFINI_DTYPE_F32));
  CHECK_SUCCESS(infiniopCreateTensorDescriptor(&bias, 1, bias_shape, NULL, INFINI_DTYPE_F32));
  /* What is allocated once per process or thread is not what this is about. */
  CHECK_SUCCESS(make_pool_backward());
  drop_pool_backward();
  CHECK_SUCCESS(make_conv());
  drop_conv();
  CHECK_SUCCESS(make_conv_backward());
  drop_conv_backward();
  CHECK_SUCCESS(make_stream());
  drop_stream();
  PoolProblem wrong = legal_pool();
  wrong.kernel[0] = 0;
  CHECK_STATUS(create_pool_backward(handle, wrong, (infiniopAvgPoolBackwardDescriptor_t*)&made),
               INFINI_STATUS_BAD_PARAM);
  CHECK_SUCCESS(
      create_pool_backward(handle, legal_pool(), (infiniopAvgPoolBackwardDescriptor_t*)&made));
  drop_pool_backward();
  CHECK_SUCCESS(create_conv(infiniopCreateConvDescriptor, handle, legal_conv(),
                            (infiniopConvDescriptor_t*)&made));
  drop_conv();
  CHECK_SUCCESS(create_conv(infiniopCreateConvBackwardDescriptor, handle, legal_conv(),
                            (infiniopConvBackwardDescriptor_t*)&made));
  drop_conv_backward();

  fail_at_every_allocation("handle", make_handle, drop_handle);
  fail_at_every_allocation("tensor descriptor", make_tensor, drop_tensor);
  fail_at_every_allocation("pool backward descriptor", make_pool_backward, drop_pool_backward);
  fail_at_every_allocation("conv descriptor", make_conv, drop_conv);
  fail_at_every_allocation("conv backward descriptor", make_conv_backward, drop_conv_backward);
  fail_at_every_allocation("stream", make_stream, drop_stream);
  fail_at_every_allocation("event", make_event, drop_event);
  fail_at_every_allocation("memory", make_memory, drop_memory);
  queue_without_thread();
  for (pool = forward_pools; pool < forward_pools + POOLS; ++pool) {
    pool_output = describe(legal_forward_pool(pool).output);
    pool_input = describe(legal_forward_pool(pool).input);
    fail_at_every_allocation(pool->name, make_pool, drop_pool);
    compute_without_allocating(make_pool, compute_pool, drop_pool);
    CHECK_SUCCESS(infiniopDestroyTensorDescriptor(pool_output));
    CHECK_SUCCESS(infiniopDestroyTensorDescriptor(pool_input));
  }
  compute_without_allocating(make_pool_backward, compute_pool_backward, drop_pool_backward);
  compute_without_allocating(make_conv, compute_conv, drop_conv);
  compute_without_allocating(make_conv_backward, compute_conv_backward, drop_conv_backward);
  CHECK_SUCCESS(infiniopDestroyTensorDescriptor(large));
  CHECK_SUCCESS(infiniopDestroyTensorDescriptor(small));
  CHECK_SUCCESS(infiniopDestroyTensorDescriptor(weight));
  CHECK_SUCCESS(infiniopDestroyTensorDescriptor(bias));
  CHECK_SUCCESS(infiniopDestroyHandle(handle));
  return failures == 0 ? 0 : 1;
}

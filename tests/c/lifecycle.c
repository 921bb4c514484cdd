/* Creates, computes and destroys as often as it is told, and prints how much memory it had after
 * the first tenth and at the end.
 *
 *   lifecycle POOLS CONVOLUTIONS */
#include <stdlib.h>

#include "check.h"
#include "problems.h"

static infiniopHandle_t handle;
static infinirtStream_t stream;

/* One of the forward operators in its turn, then the gradient. */
static void pool_life(void) {
  static float output[POOL_ELEMENTS], input[POOL_ELEMENTS], grad_input[2 * 3 * 8 * 8];
  static int turn = 0;
  const Pool* const pool = &forward_pools[turn++ % POOLS];
  struct InfiniopDescriptor *forward, *backward, *none = NULL;
  infinirtEvent_t event;
  size_t forward_size, size;
  void *forward_space, *space;
  PoolProblem wrong = legal_pool();
  wrong.kernel[0] = 0;
  CHECK_STATUS(create_pool_backward(handle, wrong, &none), INFINI_STATUS_BAD_PARAM);
  CHECK_SUCCESS(create_pool(pool->create, handle, legal_forward_pool(pool), &forward));
  CHECK_SUCCESS(create_pool_backward(handle, legal_pool(), &backward));
  CHECK_SUCCESS(pool->get_workspace_size(forward, &forward_size));
  CHECK_SUCCESS(infiniopGetAvgPoolBackwardWorkspaceSize(backward, &size));
  CHECK_SUCCESS(infinirtMallocAsync(&forward_space, forward_size, stream));
  CHECK_SUCCESS(infinirtMallocAsync(&space, size, stream));
  CHECK_SUCCESS(infinirtEventCreate(&event));
  CHECK_SUCCESS(pool->compute(forward, forward_space, forward_size, output, input, stream));
  CHECK_SUCCESS(infiniopAvgPoolBackward(backward, space, size, grad_input, output, input, stream));
  CHECK_SUCCESS(infinirtEventRecord(event, stream));
  CHECK_SUCCESS(infinirtFreeAsync(forward_space, stream));
  CHECK_SUCCESS(infinirtFreeAsync(space, stream));
  CHECK_SUCCESS(pool->destroy(forward)); /* while it is queued */
  CHECK_SUCCESS(infiniopDestroyAvgPoolBackwardDescriptor(backward));
  CHECK_SUCCESS(infinirtStreamSynchronize(stream));
  CHECK_SUCCESS(infinirtEventDestroy(event));
}

static void conv_life(void) {
  static float y[2 * 6 * 4 * 4], grad_input[2 * 4 * 8 * 8], grad_weight[6 * 2 * 3 * 3];
  static float input[2 * 4 * 8 * 8], weight[6 * 2 * 3 * 3], bias[6], grad_bias[6];
  infiniopConvDescriptor_t forward;
  infiniopConvBackwardDescriptor_t backward;
  infinirtStream_t own;
  size_t forward_size, size;
  void *forward_space, *space;
  CHECK_SUCCESS(create_conv(infiniopCreateConvDescriptor, handle, legal_conv(), &forward));
  CHECK_SUCCESS(create_conv(infiniopCreateConvBackwardDescriptor, handle, legal_conv(), &backward));
  CHECK_SUCCESS(infiniopGetConvWorkspaceSize(forward, &forward_size));
  CHECK_SUCCESS(infiniopGetConvBackwardWorkspaceSize(backward, &size));
  CHECK_SUCCESS(infinirtMalloc(&forward_space, forward_size));
  CHECK_SUCCESS(infinirtMalloc(&space, size));
  CHECK_SUCCESS(infinirtStreamCreate(&own));
  CHECK_SUCCESS(infiniopConv(forward, forward_space, forward_size, y, input, weight, bias, own));
  CHECK_SUCCESS(infiniopConvBackward(backward, space, size, grad_input, grad_weight, grad_bias, y,
                                     input, weight, own));
  CHECK_SUCCESS(infiniopDestroyConvDescriptor(forward));
  CHECK_SUCCESS(infiniopDestroyConvBackwardDescriptor(backward));
  CHECK_SUCCESS(infinirtStreamDestroy(own));
  CHECK_SUCCESS(infinirtFree(forward_space));
  CHECK_SUCCESS(infinirtFree(space));
}

static long resident_kilobytes(void) {
  long pages = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*s %ld", &pages) != 1) exit(2);
  fclose(file);
  return pages * 4;
}

static void repeat(const char* name, void (*life)(void), long times) {
  long early = 0;
  for (long i = 0; i < times; ++i) {
    if (i == times / 10) early = resident_kilobytes();
    life();
  }
  printf("%s %ld %ld %ld\n", name, times, early, resident_kilobytes());
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  CHECK_SUCCESS(infiniopCreateHandle(&handle));
  CHECK_SUCCESS(infinirtStreamCreate(&stream));
  repeat("pool", pool_life, atol(arguments[1]));
  repeat("conv", conv_life, atol(arguments[2]));
  CHECK_SUCCESS(infinirtStreamDestroy(stream));
  CHECK_SUCCESS(infiniopDestroyHandle(handle));
  return failures == 0 ? 0 : 1;
}

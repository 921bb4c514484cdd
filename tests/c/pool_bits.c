/* Pools generated numbers in generated windows and prints one number for the bits of each result:
 * the same on every CPU. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "problems.h"

enum { kCases = 300, kMostElements = 4 * 3 * 40 * 40 };

static uint64_t state = 1;

static size_t random_to(size_t least, size_t most) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return least + (size_t)(state >> 33) % (most - least + 1);
}

/* Finite, of any sign, subnormal ones included: what a NaN looks like differs between CPUs. */
static void make_numbers(int dtype, size_t count, unsigned char* to) {
  const size_t size = dtype == INFINI_DTYPE_F32 ? 4 : 2;
  const unsigned exponents = dtype == INFINI_DTYPE_F16 ? 0x1e : 0x9e; /* of the largest ones */
  const int digits = dtype == INFINI_DTYPE_F16 ? 10 : dtype == INFINI_DTYPE_F32 ? 23 : 7;
  for (size_t i = 0; i < count; ++i, to += size) {
    const size_t least = dtype == INFINI_DTYPE_F16 ? 0 : random_to(0, 7) == 0 ? 0 : 0x60;
    const uint32_t fraction = (uint32_t)random_to(0, ((size_t)1 << digits) - 1);
    const uint32_t exponent = (uint32_t)random_to(least, exponents);
    const uint32_t sign = (uint32_t)random_to(0, 1) << (8 * size - 1);
    const uint32_t bits = sign | exponent << digits | fraction;
    const uint16_t half = (uint16_t)bits;
    memcpy(to, size == 4 ? (const void*)&bits : (const void*)&half, size);
  }
}

static PoolProblem random_problem(void) {
  static const int dtypes[] = {INFINI_DTYPE_F32, INFINI_DTYPE_F16, INFINI_DTYPE_BF16};
  static const size_t longest[] = {0, 900, 40, 12};
  PoolProblem problem = legal_pool();
  const size_t rank = random_to(1, 3);
  problem.input.ndim = problem.output.ndim = rank + 2;
  problem.input.dtype = problem.output.dtype = dtypes[random_to(0, 2)];
  problem.input.shape[0] = problem.output.shape[0] = random_to(1, rank == 3 ? 1 : 4);
  problem.input.shape[1] = problem.output.shape[1] = random_to(1, 3);
  for (size_t axis = 0; axis < rank; ++axis) {
    const size_t in = random_to(1, longest[rank]);
    size_t* const kernel = problem.kernel + axis;
    *kernel = random_to(1, in < 5 || random_to(0, 3) == 0 ? in : 5);
    problem.pads[axis] = random_to(0, *kernel / 2);
    problem.strides[axis] = random_to(1, *kernel + 1);
    problem.input.shape[axis + 2] = in;
    problem.output.shape[axis + 2] =
        (in + 2 * problem.pads[axis] - *kernel) / problem.strides[axis] + 1;
  }
  problem.grad_input = problem.input;
  return problem;
}

static size_t count_of(Tensor tensor) {
  size_t count = 1;
  for (size_t axis = 0; axis < tensor.ndim; ++axis) count *= tensor.shape[axis];
  return count;
}

static uint64_t hash_of(const unsigned char* bytes, size_t count) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

/* Both directions, each from numbers of its own, in memory that is as large for either. */
static void run_case(infiniopHandle_t handle, int number) {
  static unsigned char output[4 * kMostElements], input[4 * kMostElements];
  static unsigned char result[4 * kMostElements];
  const PoolProblem problem = random_problem();
  const size_t size = problem.input.dtype == INFINI_DTYPE_F32 ? 4 : 2;
  const size_t outputs = count_of(problem.output), inputs = count_of(problem.input);
  infiniopAvgPoolBackwardDescriptor_t backward = NULL;
  infiniopAvgPoolDescriptor_t forward = NULL;
  size_t backward_size = 0, forward_size = 0;
  void* workspace = NULL;
  CHECK(outputs <= kMostElements && inputs <= kMostElements);
  if (failures > 0) return;
  make_numbers(problem.input.dtype, outputs, output);
  make_numbers(problem.input.dtype, inputs, input);
  CHECK_SUCCESS(create_pool_backward(handle, problem, &backward));
  CHECK_SUCCESS(create_pool(create_avg_pool, handle, problem, &forward));
  CHECK_SUCCESS(infiniopGetAvgPoolBackwardWorkspaceSize(backward, &backward_size));
  CHECK_SUCCESS(infiniopGetAvgPoolWorkspaceSize(forward, &forward_size));
  CHECK_SUCCESS(
      infinirtMalloc(&workspace, backward_size > forward_size ? backward_size : forward_size));
  CHECK_SUCCESS(
      infiniopAvgPoolBackward(backward, workspace, backward_size, result, output, input, NULL));
  const uint64_t backward_hash = hash_of(result, inputs * size);
  CHECK_SUCCESS(infiniopAvgPool(forward, workspace, forward_size, result, input, NULL));
  const uint64_t forward_hash = hash_of(result, outputs * size);
  CHECK_SUCCESS(infinirtFree(workspace));
  CHECK_SUCCESS(infiniopDestroyAvgPoolBackwardDescriptor(backward));
  CHECK_SUCCESS(infiniopDestroyAvgPoolDescriptor(forward));
  printf("%d: %zu elements of dtype %d, bits %016llx, forward %016llx\n", number, inputs,
         problem.input.dtype, (unsigned long long)backward_hash, (unsigned long long)forward_hash);
}

int main(void) {
  infiniopHandle_t handle;
  CHECK_SUCCESS(infiniopCreateHandle(&handle));
  for (int number = 0; number < kCases && failures == 0; ++number) run_case(handle, number);
  CHECK_SUCCESS(infiniopDestroyHandle(handle));
  return failures == 0 ? 0 : 1;
}

/* Checks for the programs here: a failed one prints its place, and the program goes on. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int failures = 0;

#define CHECK_STATUS(call, expected)                                                        \
  do {                                                                                      \
    const int got_ = (int)(call), expected_ = (int)(expected);                              \
    if (got_ != expected_) {                                                                \
      printf("%s:%d: %s is %d, expected %d\n", __FILE__, __LINE__, #call, got_, expected_); \
      ++failures;                                                                           \
    }                                                                                       \
  } while (0)
#define CHECK_SUCCESS(call) CHECK_STATUS(call, INFINI_STATUS_SUCCESS)
#define CHECK(condition) CHECK_STATUS((condition) ? 1 : 0, 1)

#endif

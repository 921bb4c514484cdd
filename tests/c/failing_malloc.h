/* Before malloc and its like: allocations of a thread that fail when they are told to, counted. And
 * threads that cannot be made. Link with -rdynamic and -ldl. */
#ifndef FAILING_MALLOC_H
#define FAILING_MALLOC_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

static __thread long left = -1; /* allocations that still succeed; -1: all of them */
static __thread long held = 0;

static void* count(void* memory) {
  if (memory != NULL) ++held;
  return memory;
}
static int fails(void) {
  if (left > 0) --left;
  return left == 0;
}
void* malloc(size_t n) { return fails() ? NULL : count(__libc_malloc(n)); }
void* calloc(size_t n, size_t m) { return fails() ? NULL : count(__libc_calloc(n, m)); }
void* realloc(void* p, size_t n) {
  if (fails()) return NULL;
  return p == NULL ? count(__libc_realloc(p, n)) : __libc_realloc(p, n);
}
void* aligned_alloc(size_t a, size_t n) { return fails() ? NULL : count(__libc_memalign(a, n)); }
void free(void* p) {
  if (p != NULL) --held;
  __libc_free(p);
}

static int has_threads = 1;

typedef int Create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  if (!has_threads) return EAGAIN;
  Create* real;
  *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  return real(thread, attributes, body, argument);
}

#ifdef __cplusplus
}
#endif

#endif

/* Stands before oneDNN's execution, and fails while it is told to. */
#define _GNU_SOURCE
#include <dlfcn.h>

enum { kOutOfMemory = 1 };

static volatile int fails;

void fail_onednn(int flag) { fails = flag; }

typedef int Execute(const void*, void*, int, const void*);

int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments);
int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments) {
  if (fails) return kOutOfMemory;
  Execute* real;
  /* Not RTLD_NEXT: what an extension of Python loads is in no list that it would search. */
  *(void**)&real = dlsym(dlopen("libdnnl.so.3", RTLD_NOW | RTLD_NOLOAD), "dnnl_primitive_execute");
  return real(primitive, stream, count, arguments);
}

"""Counts what a run allocates, in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from .processes import run_python

# Stands before malloc and its like; counts while armed.
COUNTER = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_int armed;
static pthread_t caller;
static atomic_long calls, large_calls, other_thread_calls;

/* Python's own small objects are at most 512 bytes. */
static void count(size_t bytes) {
  if (!armed) return;
  calls++;
  if (bytes > LARGE) large_calls++;
  if (!pthread_equal(pthread_self(), caller)) other_thread_calls++;
}
void counter_arm(void) {
  calls = large_calls = other_thread_calls = 0;
  caller = pthread_self();
  armed = 1;
}
void counter_disarm(void) { armed = 0; }
long counter_calls(void) { return calls; }
long counter_large_calls(void) { return large_calls; }
long counter_other_thread_calls(void) { return other_thread_calls; }

void *malloc(size_t n) { count(n); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { count(n * m); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { count(n); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { count(n); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { count(n); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
  count(n);
  *p = __libc_memalign(a, n);
  return *p ? 0 : 12;
}
void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset) {
  count(n);
  return (void *)syscall(SYS_mmap, p, n, prot, flags, fd, offset);
}
"""

PRELUDE = """
import ctypes, json
import numpy as np
import backops
from tests.support import conv_cases, floats, layouts, pool_cases

RUNS = 20
counter = ctypes.CDLL(None)
report = {}

def count(function):
    for _ in range(5):
        function()
    counter.counter_arm()
    for _ in range(RUNS):
        function()
    counter.counter_disarm()
    return {
        "large": counter.counter_large_calls(),
        "other_threads": counter.counter_other_thread_calls(),
        "all": counter.counter_calls(),
    }
"""
CONTROL = """
report["control: nothing"] = count(lambda: None)
print(json.dumps(report))
"""


def count_allocations(runs: str, folder: Path, *, large: int) -> dict[str, dict[str, int]]:
    """What `runs` put into `report` with `count`, checked by its "control: without out".

    An allocation of more than `large` bytes is a large one; "other_threads" are those of threads
    other than the caller's.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "this test needs a C compiler"
    source, library = folder / "counter.c", folder / "counter.so"
    source.write_text(COUNTER)
    options = ["-O1", "-shared", "-fPIC", "-pthread", f"-DLARGE={large}"]
    subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
    done = run_python(PRELUDE + runs + CONTROL, LD_PRELOAD=library, OMP_NUM_THREADS=1)
    report: dict[str, dict[str, int]] = json.loads(done.stdout)
    assert report.pop("control: without out")["large"] >= 20
    assert report.pop("control: nothing") == {"large": 0, "other_threads": 0, "all": 0}
    return report

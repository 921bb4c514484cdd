// PyTorch's threads, for calls on its tensors. PyTorch is found if the caller has imported it,
// never imported here.
#pragma once

#include <nanobind/nanobind.h>

#include "base/threads.h"

namespace backops::python {

bool is_pytorch_tensor(nanobind::handle object);

// The next two are for callers that have such a tensor.

// torch.get_num_threads(), within the limits of run_parallel.
int pytorch_thread_count();

// The threads of PyTorch's OpenMP runtime, their number left open. Null where it has none, and in
// the child of a fork, which has none of its parent's threads: OpenMP would wait for them there.
const Team* pytorch_team();

// Must be called once, so that forks are noticed.
void watch_forks();

}  // namespace backops::python

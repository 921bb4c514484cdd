"""What the kernels that PyTorch calls in place of its own have in common.

Each is made around PyTorch's own kernel, `own`, and hands it every call that is not for us: what
is not supported here, and what PyTorch is better at. What is wrong with a call is told as PyTorch
would, by a RuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler

from backops import _native, errors
from backops.torch import choice
from backops.torch.trials import Call, Operator, layer_of

Kernel = Callable[..., Any]

# Subclasses may have other ideas of what a size or a dtype is.
PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))
DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
# Refused here, but not wrong: memory on another device, a result that overlaps.
NOT_FOR_US = (errors.LayoutError, errors.DTypeError, MemoryError)


def are_supported(first: Any, *others: Any) -> bool:
    """Whether all are there, not empty, of PyTorch's own types and of one dtype that is ours."""
    if type(first) not in PLAIN_TYPES or first.dtype not in DTYPES or not first.numel():
        return False
    for other in others:
        if type(other) not in PLAIN_TYPES or other.dtype is not first.dtype or not other.numel():
            return False
    return True


def computed_on_one_side(
    operator: Operator,
    tensors: tuple[Any, ...],
    parameters: tuple[Any, ...],
    ours: Callable[[int], Any],
    pytorchs: Call,
    is_faster: Callable[[], bool],
) -> Any:
    """What one side returns: as trials say, or if there are none, as `is_faster`."""
    threads = torch.get_num_threads()
    trials = choice.active_trials()
    if trials is None:
        return ours(threads) if is_faster() else pytorchs()
    layer = layer_of(operator, threads, tensors, parameters)
    return trials.run(layer, lambda: ours(threads), pytorchs)


def computed_unless_refused(pytorchs: Call, name: str, function: str, *arguments: Any) -> Any:
    """What our `function` returns, or PyTorch's own kernel where this is not for us."""
    try:
        return computed(name, getattr(_native, function), *arguments)
    except NOT_FOR_US:
        pass
    except errors.Error as error:
        raise RuntimeError(str(error)) from None
    return pytorchs()


def computed(name: str, operator: Callable[..., Any], *arguments: Any) -> Any:
    """What `operator` returns; profilers, which know PyTorch's name for it, see ours inside."""
    if not profiler._is_profiler_enabled:  # a range costs some microseconds, watched or not
        return operator(*arguments)
    with profiler.record_function(f"backops::{name}"):
        return operator(*arguments)

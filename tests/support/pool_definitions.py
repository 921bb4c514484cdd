"""Pooling as others compute it: PyTorch, and the definition."""

from __future__ import annotations

import itertools
import math

import numpy as np

from .cases import per_axis
from .pool_cases import Case


def torch_result(case: Case, source):
    """What PyTorch makes of a case in float64, or None where PyTorch cannot."""
    import torch
    import torch.nn.functional as F

    if case.divisor_override is not None and case.rank == 1:
        return None  # avg_pool1d has no divisor_override
    kernels = per_axis(case.kernel_size, case.rank)
    spatial = case.input_shape[-case.rank :]
    if case.rank == 3 and not case.adaptive and any(map(int.__gt__, kernels, spatial)):
        return None  # refused by avg_pool3d only
    forward = case if case.is_forward else case.forward
    keywords = dict(forward.keywords)
    if case.rank == 1:
        keywords.pop("divisor_override", None)
    pool = getattr(F, forward.function)
    values = torch.from_numpy(np.ascontiguousarray(source, dtype=np.float64))
    if case.is_forward:
        return pool(values, *forward.positional, **keywords).numpy()
    if case.adaptive and 0 in case.input_shape:
        return np.zeros(case.input_shape)  # PyTorch's adaptive backward refuses an empty batch
    x = torch.zeros(case.input_shape, dtype=torch.float64, requires_grad=True)
    pool(x, *forward.positional, **keywords).backward(values)
    return x.grad.numpy()


def forward(case: Case, x):
    """Average pooling by its definition: the mean, or sum over the divisor, of each slice of `x`.

    Padding is made real here, so the divisor comes from counting ones, not from a formula.
    """
    rank = case.rank
    spatial = x.shape[-rank:]
    if case.adaptive:
        outputs = per_axis(case.output_size, rank)
        windows = [
            [
                slice(math.floor(o * size / count), math.ceil((o + 1) * size / count))
                for o in range(count)
            ]
            for size, count in zip(spatial, outputs, strict=True)
        ]
        padded, weights = x, np.ones(spatial)
    else:
        kernels = per_axis(case.kernel_size, rank)
        strides = kernels if case.stride is None else per_axis(case.stride, rank)
        pads = [(p, p) for p in per_axis(case.padding, rank)]
        padded = np.pad(x, [(0, 0)] * (x.ndim - rank) + pads)
        weights = np.pad(np.ones(spatial), pads, constant_values=float(case.count_include_pad))
        windows = [
            [slice(o * s, o * s + k) for o in range(count)]
            for k, s, count in zip(kernels, strides, case.output_shape[-rank:], strict=True)
        ]
    result = np.empty((*x.shape[:-rank], *map(len, windows)))
    axes = tuple(range(x.ndim - rank, x.ndim))
    for position in itertools.product(*(range(len(w)) for w in windows)):
        window = tuple(w[o] for w, o in zip(windows, position, strict=True))
        divisor = case.divisor_override or weights[window].sum()
        result[(..., *position)] = padded[(..., *window)].sum(axis=axes) / divisor
    return result

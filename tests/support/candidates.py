"""Candidates for `backops verify --suite --candidate MODULE:NAME`, right and wrong."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import numpy as np

import backops


def right(operator: str, *tensors: Any, **parameters: Any) -> Any:
    return getattr(backops, operator)(*tensors, **parameters)


def flipped_padding(operator: str, *tensors: Any, **parameters: Any) -> Any:
    parameters["count_include_pad"] = not parameters.get("count_include_pad", True)
    return getattr(backops, operator)(*tensors, **parameters)


def crashing(operator: str, grad_output: Any, *tensors: Any, **parameters: Any) -> Any:
    if grad_output.shape[1] == 2:
        ctypes.string_at(0)
    return right(operator, grad_output, *tensors, **parameters)


def raising(operator: str, *tensors: Any, **parameters: Any) -> Any:
    raise RuntimeError("out of luck")


def changing(operator: str, grad_output: Any, *tensors: Any, **parameters: Any) -> Any:
    result = right(operator, grad_output, *tensors, **parameters)
    grad_output[...] = 0
    return result


def changing_weight(operator: str, *tensors: Any, **parameters: Any) -> Any:
    result = right(operator, *tensors, **parameters)
    tensors[2][...] = 0
    return result


def with_torch(operator: str, grad_output: Any, input: Any, **parameters: Any) -> Any:
    import torch

    bits = torch.from_numpy(grad_output.view(np.int16)).view(torch.bfloat16)
    return right(operator, bits, input, **parameters)


def sleeping(operator: str, grad_output: Any, *tensors: Any, **parameters: Any) -> Any:
    if grad_output.shape[1] == 2 and "AWAKE" not in os.environ:
        time.sleep(20)
    return right(operator, grad_output, *tensors, **parameters)


def slow(operator: str, *tensors: Any, **parameters: Any) -> Any:
    time.sleep(0.4)
    return right(operator, *tensors, **parameters)


def doubled(operator: str, *tensors: Any, **parameters: Any) -> Any:
    return right(operator, *tensors, **parameters) * 2


def noisy(operator: str, *tensors: Any, **parameters: Any) -> Any:
    """Right but for errors that are known, and different for each input."""
    return with_noise(getattr(backops.reference, operator)(*tensors, **parameters), 1.0)


def with_noise(result: Any, factor: float) -> Any:
    seed = int(np.abs(result).sum() * 1e6) % 2**32
    noise = np.random.default_rng([seed, int(factor * 10)]).standard_normal(result.shape)
    return (result * (1 + factor * 1e-4 * noise)).astype(np.float32)

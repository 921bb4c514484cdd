"""A call by PyTorch; only those who ask load it."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

import backops
from backops._bench.pytorch import same_threads
from backops._calls import ADAPTIVE, Call
from backops._files import Shape
from backops._geometry import output_padding
from backops._verify.targets import as_numpy
from backops._verify.truth import conv_numbers, pool_numbers

NAME = f"PyTorch {torch.__version__}"


def run(call: Call) -> dict[str, NDArray[Any]] | None:
    """The results by name; None where PyTorch has no such operator."""
    if rounds_operands(call) or is_covered():
        return None
    with same_threads(torch, backops.get_num_threads()):
        try:
            if not call.is_conv:
                return call.named(as_numpy(pool(call)))
            return conv(call) if call.is_forward else conv_backward(call)
        except (RuntimeError, ValueError, TypeError):
            return None  # a dtype or parameters that it does not take


def rounds_operands(call: Call) -> bool:
    precision = call.parameters.get("precision", "keep")
    return precision != "keep" and call.source.dtype == np.float32


def is_covered() -> bool:
    """Whether PyTorch's operators are those of backops at the moment."""
    module: Any = sys.modules.get("backops.torch")
    return module is not None and module.is_enabled()


def pool(call: Call) -> Any:
    if call.is_forward:
        return pool_forward(call, as_torch(call.source))
    grad = as_torch(call.source)
    x = torch.zeros(call.input_shape, dtype=grad.dtype, requires_grad=True)
    return torch.autograd.grad(pool_forward(call, x), x, grad)[0]


def pool_forward(call: Call, x: Any) -> Any:
    rank, given = call.rank, call.parameters
    if call.operator in ADAPTIVE:
        forward = getattr(torch.nn.functional, f"adaptive_avg_pool{rank}d")
        return forward(x, call.output_shape[-rank:])
    forward = getattr(torch.nn.functional, f"avg_pool{rank}d")
    numbers = pool_numbers(call)
    more = {"divisor_override": given["divisor_override"]} if given.get("divisor_override") else {}
    return forward(
        x, *numbers, given.get("ceil_mode", False), given.get("count_include_pad", True), **more
    )


def conv(call: Call) -> dict[str, NDArray[Any]]:
    tensors = [as_torch(tensor) for tensor in call.tensors()]
    if call.bias is None:
        tensors.append(None)
    tensors[0] = tensors[0].reshape(-1, *tensors[0].shape[-call.rank - 1 :])
    with torch.no_grad():
        result = torch.ops.aten.convolution.default(*tensors, *conv_arguments(call))
    return {"output": as_numpy(result).reshape(call.output_shape)}


def conv_backward(call: Call) -> dict[str, NDArray[Any]]:
    tensors = [
        as_torch(tensor) if isinstance(tensor, np.ndarray) else zeros(tensor, call.source)
        for tensor in call.tensors()
    ]
    is_batched = tensors[1].ndim == call.rank + 2
    if not is_batched:
        tensors[:2] = [tensor.unsqueeze(0) for tensor in tensors[:2]]
    gradients: Any = torch.ops.aten.convolution_backward.default(
        *tensors, [call.output_channels], *conv_arguments(call), list(call.output_mask)
    )
    results = call.named(tuple(None if part is None else as_numpy(part) for part in gradients))
    return {name: results[name].reshape(shape) for name, shape in call.result_shapes().items()}


def conv_arguments(call: Call) -> tuple[Any, ...]:
    return (
        *map(list, conv_numbers(call)),
        call.is_transposed,
        list(output_padding(call.rank, call.parameters)),
        call.parameters.get("groups", 1),
    )


def as_torch(array: NDArray[Any]) -> Any:
    if array.dtype == ml_dtypes.bfloat16:
        # PyTorch does not know NumPy's bfloat16.
        bits = np.array(array.view(np.int16))
        return torch.from_numpy(bits).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def zeros(shape: Shape, like: NDArray[Any]) -> Any:
    return torch.zeros(shape, dtype=as_torch(like[:0]).dtype)

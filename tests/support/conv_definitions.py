"""Convolution as PyTorch computes it."""

from __future__ import annotations

import torch

from .cases import per_axis


def torch_backward(case, grad_output, input, weight):
    """PyTorch's three gradients, whose operator knows only batches and one number per axis."""
    tensors = [torch.from_numpy(array) for array in (grad_output, input, weight)]
    if not case.batched:
        tensors[:2] = [tensor.unsqueeze(0) for tensor in tensors[:2]]
    stride, padding, dilation = (
        per_axis(value, case.rank) for value in (case.stride, case.padding, case.dilation)
    )
    grad_input, grad_weight, grad_bias = torch.ops.aten.convolution_backward(
        *tensors,
        [case.weight_shape[0]],
        stride,
        padding,
        dilation,
        False,
        [0] * case.rank,
        case.groups,
        [True, True, True],
    )
    return grad_input.numpy().reshape(case.input_shape), grad_weight.numpy(), grad_bias.numpy()

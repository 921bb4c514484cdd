"""Convolution as PyTorch computes it."""

from __future__ import annotations

from .cases import per_axis


def torch_results(case, *arrays):
    """PyTorch's results, whose operators know only batches and one number per axis."""
    import torch

    tensors = [torch.from_numpy(array) for array in arrays]
    if not case.batched:
        activations = 2 if case.is_backward else 1
        tensors[:activations] = [tensor.unsqueeze(0) for tensor in tensors[:activations]]
    parameters = (
        *(per_axis(value, case.rank) for value in (case.stride, case.padding, case.dilation)),
        case.is_transposed,
        case.output_padding if case.is_transposed else [0] * case.rank,
        case.groups,
    )
    if case.is_backward:
        bias_sizes = case.result_shapes[2]
        results = torch.ops.aten.convolution_backward(
            *tensors, bias_sizes, *parameters, [True, True, True]
        )
    else:
        bias = tensors[2] if len(tensors) == 3 else None
        results = (torch.ops.aten.convolution(*tensors[:2], bias, *parameters),)
    return tuple(
        result.numpy().reshape(shape)
        for result, shape in zip(results, case.result_shapes, strict=True)
    )

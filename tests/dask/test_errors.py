"""Wrong arguments raise at the call, in the words of the plain operator."""

import dask.array as da
import numpy as np
import pytest

import backops
import backops.dask


def grad(shape=(2, 3, 4, 4), dtype="float32"):
    return da.zeros(shape, chunks=2, dtype=dtype)


POOL_CALLS = {
    "padding": lambda m, g: m.avg_pool2d_backward(g, (2, 3, 8, 8), 3, 2, 2),
    "kernel_size": lambda m, g: m.avg_pool2d_backward(g, (2, 3, 8, 8), 0),
    "shape": lambda m, g: m.avg_pool2d_backward(g, (2, 3, 9, 12), 2),
    "stride": lambda m, g: m.avg_pool2d_backward(g, (2, 3, 8, 8), 2, "two"),
    "precision": lambda m, g: m.avg_pool2d_backward(g, (2, 3, 8, 8), 2, precision="low"),
    "no shape": lambda m, g: m.avg_pool2d_backward(g, None, 2),
    "rank": lambda m, g: m.avg_pool3d_backward(g, (3, 8, 8), 2),
    "adaptive shape": lambda m, g: m.adaptive_avg_pool2d_backward(g, (2, 4, 8, 8)),
    "weight shape": lambda m, g: m.conv_backward(
        g, (2, 3, 6, 6), np.zeros((3, 2, 3, 3), "float32"), output_mask=(True, False, False)
    ),
    "dilation": lambda m, g: m.conv_backward(
        g, (2, 3, 6, 6), np.zeros((3, 3, 3, 3), "float32"), dilation=0,
        output_mask=(True, False, False),
    ),
    "weight dtype": lambda m, g: m.conv_backward(
        g, (2, 3, 6, 6), np.zeros((3, 3, 3, 3), "float16"), output_mask=(True, False, False)
    ),
    "mask": lambda m, g: m.conv_backward(
        g, (2, 3, 6, 6), np.zeros((3, 3, 3, 3), "float32"), output_mask=(True, False)
    ),
    "input needed": lambda m, g: m.conv_backward(
        g, (2, 3, 6, 6), np.zeros((3, 3, 3, 3), "float32")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", POOL_CALLS)
def test_error_is_that_of_the_plain_operator(name):
    call = POOL_CALLS[name]
    with pytest.raises(backops.Error) as plain:
        call(backops, np.zeros((2, 3, 4, 4), "float32"))
    with pytest.raises(type(plain.value)) as lazy:
        call(backops.dask, grad())
    assert str(lazy.value) == str(plain.value)


def test_dtype_that_no_operator_has_is_refused():
    with pytest.raises(backops.DTypeError, match="grad_output is int32"):
        backops.dask.avg_pool2d_backward(grad(dtype="int32"), (2, 3, 8, 8), 2)


def test_other_arrays_are_refused():
    with pytest.raises(backops.DTypeError, match="grad_output is a ndarray, expected a dask array"):
        backops.dask.avg_pool2d_backward(np.zeros((2, 3, 4, 4)), (2, 3, 8, 8), 2)


def test_unknown_chunks_are_refused():
    unknown = grad((4, 3, 4, 4))
    unknown = unknown[unknown[:, 0, 0, 0] > 0]
    with pytest.raises(backops.ShapeError, match="chunks of unknown sizes"):
        backops.dask.avg_pool2d_backward(unknown, (4, 3, 8, 8), 2)


def test_weight_in_several_chunks_is_refused():
    weight = da.zeros((3, 3, 3, 3), chunks=2, dtype="float32")
    with pytest.raises(backops.LayoutError, match="weight has 16 chunks, expected one"):
        backops.dask.conv_backward(grad(), (2, 3, 6, 6), weight, output_mask=(True, False, False))


@pytest.mark.parametrize("chunks", [(1, 1), "many", ((1, 2), 3, 8, 8)])
def test_chunks_that_do_not_fit_are_refused(chunks):
    with pytest.raises(backops.ParamError, match="avg_pool2d_backward: chunks is"):
        backops.dask.avg_pool2d_backward(grad(), (2, 3, 8, 8), 2, chunks=chunks)


def test_nothing_is_computed_by_a_call():
    def fail(block):
        raise AssertionError("computed")

    lazy = grad().map_blocks(fail, meta=np.zeros((0,) * 4, "float32"))
    result = backops.dask.avg_pool2d_backward(lazy, (2, 3, 8, 8), 2)
    assert (result.shape, result.dtype) == ((2, 3, 8, 8), np.float32)
    masked = backops.dask.conv_backward(
        lazy, (2, 3, 6, 6), (3, 3, 3, 3), output_mask=(False, False, False)
    )
    assert masked == (None, None, None)

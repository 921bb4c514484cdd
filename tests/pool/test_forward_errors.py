"""Bad input of the forward operators: what test_errors.py has no gradient for."""

import numpy as np
import pytest
import torch

import backops
from tests.pool.test_errors import refused

SHAPE = (2, 3, 8, 8)
X = np.ones(SHAPE, np.float32)


def test_message_of_an_out_of_another_shape():
    with pytest.raises(backops.ShapeError) as caught:
        backops.avg_pool2d(X, 3, 2, out=np.zeros((2, 3, 4, 4), np.float32))
    assert str(caught.value) == (
        "avg_pool2d: out is (2, 3, 4, 4), but input (2, 3, 8, 8) with kernel_size (3, 3), "
        "stride (2, 2), padding (0, 0) pools to (2, 3, 3, 3)"
    )


def test_message_of_a_kernel_that_does_not_fit():
    with pytest.raises(backops.ShapeError) as caught:
        backops.avg_pool2d(X, (11, 2), 1, 1)
    assert str(caught.value) == (
        "avg_pool2d: input is (2, 3, 8, 8), but kernel_size[0] = 11 needs a padded size of at "
        "least that, not 10"
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["avg_pool", "adaptive_avg_pool"])
def test_too_few_and_too_many_dimensions_for_each_rank(kind, rank):
    for dimensions in (rank, rank + 3):
        x = np.ones((2,) * dimensions, np.float32)
        names = ["input", str(x.shape)]
        refused(backops.ShapeError, f"{kind}{rank}d", x, 1, names=names)


@pytest.mark.parametrize("shape", [(2, 3, 0, 8), (2, 3, 8, 0), (2, 0, 8, 8), (0, 3, 0, 8)], ids=str)
def test_zero_size_other_than_the_batch(shape):
    x = np.ones(shape, np.float32)
    for function in ("avg_pool2d", "adaptive_avg_pool2d"):
        refused(backops.ShapeError, function, x, 2, names=["input", str(shape)])
    refused(backops.ShapeError, "adaptive_avg_pool2d", x, None, names=["input", str(shape)])


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0,), "kernel_size"),
        (("2",), "kernel_size"),
        ((None,), "kernel_size"),
        (((2, 2, 2),), "kernel_size"),
        ((2**62,), "kernel_size"),
        ((2, 0), "stride"),
        ((2, 2, 2), "padding"),
        ((2, 2, -1), "padding"),
    ],
    ids=str,
)
def test_windows_that_are_none(arguments, name):
    refused(backops.ParamError, "avg_pool2d", X, *arguments, names=[name])


@pytest.mark.parametrize("value", [0, -1, "3", (3, 3, 3), (), 2.0, (3, 0), (None, "3")], ids=repr)
def test_output_size_that_is_none(value):
    refused(backops.ParamError, "adaptive_avg_pool2d", X, value, names=["output_size"])
    with pytest.raises(backops.ParamError, match=r"^plan.adaptive_avg_pool2d: output_size"):
        backops.plan.adaptive_avg_pool2d(SHAPE, value)


def test_output_that_overflows():
    refused(backops.ShapeError, "adaptive_avg_pool2d", X, 2**40, names=["out", "fit in 63 bits"])


def test_divisor_and_precision():
    refused(backops.ParamError, "avg_pool2d", X, 2, names=["divisor"], divisor_override=1.5)
    refused(backops.ParamError, "avg_pool2d", X, 2, names=["precision"], precision="exact")
    half = X.astype(np.float16)
    refused(backops.ParamError, "avg_pool2d", half, 2, names=["float16"], precision="hf32")


@pytest.mark.parametrize("x", [SHAPE, [[[1.0]]], 1.0, None, "input", object], ids=repr)
def test_input_that_is_no_array(x):
    for function in ("avg_pool2d", "adaptive_avg_pool2d"):
        refused(backops.DTypeError, function, x, 2, names=["input"])


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool", "complex64", "longdouble"])
def test_dtype_that_is_not_supported(dtype):
    names = ["input", np.dtype(dtype).name]
    refused(backops.DTypeError, "avg_pool2d", X.astype(dtype), 2, names=names)


def test_input_on_another_device():
    x = torch.ones(SHAPE, device="meta")
    refused(backops.LayoutError, "avg_pool2d", x, 2, names=["input", "meta"])


def test_outs_that_do_not_fit_stay_as_they_are():
    def check(error, out, *names):
        before = out.copy()
        refused(error, "avg_pool2d", X, 2, names=["out", *names], out=out)
        refused(error, "adaptive_avg_pool2d", X, 4, names=["out", *names], out=out)
        assert np.array_equal(out, before)

    check(backops.ShapeError, np.zeros((2, 3, 4, 5), np.float32), "(2, 3, 4, 5)", "(2, 3, 4, 4)")
    check(backops.ShapeError, np.zeros((3, 4, 4), np.float32), "(3, 4, 4)")
    check(backops.DTypeError, np.zeros((2, 3, 4, 4)), "float64", "float32 like input")
    check(backops.LayoutError, np.broadcast_to(np.float32(0), (2, 3, 4, 4)), "overlap")
    read_only = np.zeros((2, 3, 4, 4), np.float32)
    read_only.flags.writeable = False
    check(backops.LayoutError, read_only, "read-only")


def test_out_in_the_memory_of_the_input():
    x = X.copy()
    names = ["out", "input"]
    refused(backops.LayoutError, "avg_pool2d", x, 1, names=names, out=x)
    refused(backops.LayoutError, "avg_pool2d", x, 2, names=names, out=x[..., ::2, ::2])
    assert (x == 1).all()


@pytest.mark.parametrize(
    "arguments",
    [
        {"kernel_size": 0},
        {"stride": 0},
        {"padding": 2},
        {"precision": "exact"},
        {"divisor_override": 1.5},
        {"kernel_size": 9},
        {"input": np.ones(SHAPE)},
        {"input": np.ones((2, 3, 9, 10), np.float32)},
    ],
    ids=str,
)
def test_out_is_unchanged_after_an_error(arguments):
    out = np.full((2, 3, 4, 4), 7, np.float32)
    with pytest.raises(backops.Error, match=r"^avg_pool2d: "):
        backops.avg_pool2d(**{"input": X, "kernel_size": 2, **arguments}, out=out)
    assert (out == 7).all()


def test_parameters_after_padding_must_be_named():
    with pytest.raises(TypeError):
        backops.avg_pool2d(X, 2, 2, 0, False)
    with pytest.raises(TypeError):
        backops.adaptive_avg_pool2d(X, 2, np.empty((2, 3, 2, 2), np.float32))


def test_result_that_fits_no_memory_is_a_memory_error_at_once():
    x = np.broadcast_to(np.float16(1), (1, 2**40))
    with pytest.raises(MemoryError):
        backops.avg_pool1d(x, 2, 1)

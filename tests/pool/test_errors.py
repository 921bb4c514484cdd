"""Bad input: the right exception, a message with argument, value and rule, and nothing written."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import backops

ONES = np.ones((2, 3, 4, 4), np.float32)
SHAPE = (2, 3, 8, 8)


def pool2d(grad_output=ONES, input=SHAPE, kernel_size=2, *arguments, **keywords):
    return backops.avg_pool2d_backward(grad_output, input, kernel_size, *arguments, **keywords)


def refused(error, function, *arguments, names, **keywords):
    """Calls `function`, which must raise exactly `error` with all of `names` in its message."""
    with pytest.raises(backops.Error) as caught:
        getattr(backops, function)(*arguments, **keywords)
    message = str(caught.value)
    assert type(caught.value) is error, message
    assert message.startswith(f"{function}: "), message
    for name in names:
        assert name in message, f"{name!r} is not in {message!r}"
    assert "expected" in message or ", but " in message, message
    assert "invalid" not in message.lower()
    assert "please" not in message.lower()
    assert "\n" not in message


# The classes


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        ("DTypeError", TypeError),
        ("ShapeError", ValueError),
        ("ParamError", ValueError),
        ("LayoutError", ValueError),
    ],
)
def test_each_error_is_also_the_builtin_one(error, builtin):
    error = getattr(backops, error)
    assert issubclass(error, backops.Error)
    assert issubclass(error, builtin)
    assert issubclass(backops.Error, Exception)
    assert not issubclass(backops.Error, TypeError | ValueError)


# The two messages that set the style, word for word


def test_message_of_mismatched_shapes():
    with pytest.raises(backops.ShapeError) as caught:
        backops.avg_pool2d_backward(ONES, SHAPE, 3, 2)
    assert str(caught.value) == (
        "avg_pool2d_backward: grad_output is (2, 3, 4, 4), but input (2, 3, 8, 8) with "
        "kernel_size (3, 3), stride (2, 2), padding (0, 0) pools to (2, 3, 3, 3)"
    )


def test_message_of_too_much_padding():
    with pytest.raises(backops.ParamError) as caught:
        backops.avg_pool2d_backward(ONES, SHAPE, 3, 2, 2)
    assert str(caught.value) == (
        "avg_pool2d_backward: padding[0] is 2, expected 0 to 1 (half of kernel_size[0] = 3)"
    )


# Shapes


@pytest.mark.parametrize("shape", [(), (8,), (8, 8), (1, 2, 3, 8, 8), (1, 1, 2, 3, 8, 8)], ids=str)
def test_input_with_the_wrong_number_of_dimensions(shape):
    refused(
        backops.ShapeError,
        "avg_pool2d_backward",
        ONES,
        shape,
        2,
        names=["input", str(shape)],
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["avg_pool", "adaptive_avg_pool"])
def test_too_few_and_too_many_dimensions_for_each_rank(kind, rank):
    more = () if kind == "adaptive_avg_pool" else (1,)
    for dimensions in (rank, rank + 3):
        grad = np.ones((2,) * dimensions, np.float32)
        name = f"{kind}{rank}d_backward"
        refused(
            backops.ShapeError,
            name,
            grad,
            grad.shape,
            *more,
            names=[str(grad.shape)],
        )


@pytest.mark.parametrize(
    "shape", [(3, 4, 4), (2, 3, 4, 5), (2, 4, 4, 4), (1, 3, 4, 4), (4, 4), ()], ids=str
)
def test_grad_output_of_another_shape(shape):
    grad = np.ones(shape, np.float32)
    names = ["grad_output", str(shape), "input", str(SHAPE)]
    refused(backops.ShapeError, "avg_pool2d_backward", grad, SHAPE, 2, names=names)


@pytest.mark.parametrize("shape", [(2, 4, 4, 4), (1, 3, 4, 4), (3, 4, 4), (4, 4)], ids=str)
def test_adaptive_grad_output_of_another_batch_or_channel_count(shape):
    grad = np.ones(shape, np.float32)
    names = ["grad_output", str(shape), "input", str(SHAPE)]
    refused(backops.ShapeError, "adaptive_avg_pool2d_backward", grad, SHAPE, names=names)


@pytest.mark.parametrize("shape", [(2, 3, 0, 8), (2, 3, 8, 0), (2, 0, 8, 8), (0, 3, 0, 8)], ids=str)
def test_zero_size_other_than_the_batch(shape):
    grad = np.ones((*shape[:2], 4, 4), np.float32)
    refused(backops.ShapeError, "avg_pool2d_backward", grad, shape, 2, names=["input", str(shape)])
    refused(
        backops.ShapeError,
        "adaptive_avg_pool2d_backward",
        grad,
        shape,
        names=["input", str(shape)],
    )


@pytest.mark.parametrize("shape", [(2, 3, 0, 4), (2, 3, 4, 0)], ids=str)
def test_adaptive_output_of_zero_size(shape):
    grad = np.ones(shape, np.float32)
    names = ["grad_output", str(shape)]
    refused(backops.ShapeError, "adaptive_avg_pool2d_backward", grad, SHAPE, names=names)


def test_negative_size():
    shape = (2, 3, -8, 8)
    refused(backops.ShapeError, "avg_pool2d_backward", ONES, shape, 2, names=["input", str(shape)])


@pytest.mark.parametrize("given", ["2388", 8, None, (2, 3, 8.0, 8), (2, 3, "8", 8), object])
def test_input_that_is_neither_array_nor_shape(given):
    with pytest.raises(backops.Error, match=r"^avg_pool2d_backward: input") as caught:
        pool2d(input=given)
    assert type(caught.value) in (backops.ShapeError, backops.DTypeError)


@pytest.mark.parametrize(
    "shape",
    [(2**40, 2**40, 8, 8), (2**61, 1, 2, 2), (1, 1, 2**32, 2**32), (2**70, 3, 8, 8)],
    ids=str,
)
def test_sizes_that_overflow(shape):
    refused(backops.ShapeError, "avg_pool2d_backward", ONES, shape, 2, names=["avg_pool2d"])
    with pytest.raises(backops.ShapeError, match="avg_pool2d_backward: input"):
        backops.plan.avg_pool2d_backward(shape, 2)


def test_result_whose_bytes_overflow_while_its_gradient_fits():
    # 2**62 elements of 4 bytes, asked for with a gradient of 4 bytes.
    grad = np.broadcast_to(np.float32(1), (2**30, 2**20, 2, 2))
    shape = (2**30, 2**20, 2**6, 2**6)
    refused(backops.ShapeError, "avg_pool2d_backward", grad, shape, 32, names=["input", str(shape)])
    refused(backops.ShapeError, "adaptive_avg_pool2d_backward", grad, shape, names=["input"])


# Parameters


@pytest.mark.parametrize("name", ["kernel_size", "stride"])
@pytest.mark.parametrize("value", [0, -1, (2, 0), [-3, 2], -(2**63)], ids=str)
def test_kernel_size_and_stride_below_one(name, value):
    arguments = {"kernel_size": 2, "stride": 2, name: value}
    bad = value if isinstance(value, int) else min(value)
    names = [name, str(bad)]
    refused(backops.ParamError, "avg_pool2d_backward", ONES, SHAPE, names=names, **arguments)


@pytest.mark.parametrize("value", [-1, (0, -1), (-2, 0)], ids=str)
def test_negative_padding(value):
    bad = value if isinstance(value, int) else min(value)
    names = ["padding", str(bad)]
    refused(backops.ParamError, "avg_pool2d_backward", ONES, SHAPE, 2, 2, value, names=names)


@pytest.mark.parametrize(
    ("kernel_size", "padding", "axis"),
    [(2, 2, 0), (3, 2, 0), (1, 1, 0), ((4, 3), (2, 2), 1), ((1, 3), (1, 1), 0)],
)
def test_padding_beyond_half_of_the_kernel(kernel_size, padding, axis):
    names = [f"padding[{axis}]", f"kernel_size[{axis}]"]
    refused(
        backops.ParamError,
        "avg_pool2d_backward",
        ONES,
        SHAPE,
        kernel_size,
        2,
        padding,
        names=names,
    )


@pytest.mark.parametrize("name", ["kernel_size", "stride", "padding"])
@pytest.mark.parametrize(
    "value", ["2", 2.0, (2, "2"), [2.5], {"h": 2}, object, 1j, (None, 2)], ids=str
)
def test_parameter_that_is_no_int(name, value):
    arguments = {"kernel_size": 2, "stride": 2, "padding": 1, name: value}
    names = [name]
    refused(backops.ParamError, "avg_pool2d_backward", ONES, SHAPE, names=names, **arguments)


def test_kernel_size_and_padding_of_none():
    refused(backops.ParamError, "avg_pool2d_backward", ONES, SHAPE, None, names=["kernel_size"])
    refused(backops.ParamError, "avg_pool2d_backward", ONES, SHAPE, 2, 2, None, names=["padding"])


@pytest.mark.parametrize("name", ["kernel_size", "stride", "padding"])
def test_sequence_of_the_wrong_length(name):
    arguments = {"kernel_size": 2, "stride": 2, "padding": 1, name: (1, 1, 1)}
    names = [name, "(1, 1, 1)"]
    refused(backops.ParamError, "avg_pool2d_backward", ONES, SHAPE, names=names, **arguments)


@pytest.mark.parametrize("name", ["kernel_size", "padding"])
def test_empty_sequence_stands_for_stride_only(name):
    arguments = {"kernel_size": 2, "padding": 0, name: ()}
    refused(backops.ParamError, "avg_pool2d_backward", ONES, SHAPE, names=[name], **arguments)


def test_two_numbers_for_one_axis():
    grad = np.ones((2, 3, 4), np.float32)
    names = ["kernel_size", "(2, 2)"]
    refused(backops.ParamError, "avg_pool1d_backward", grad, (2, 3, 8), (2, 2), names=names)


def test_kernel_that_does_not_fit_the_padded_axis():
    with pytest.raises(backops.Error, match=r"^avg_pool2d_backward: .*kernel_size") as caught:
        pool2d(np.ones((2, 3, 1, 1), np.float32), SHAPE, (11, 2), 1, 1)
    assert type(caught.value) in (backops.ParamError, backops.ShapeError)


@pytest.mark.parametrize(
    "value", [2**62, 2**63 - 1, 2**63, 2**200], ids=["62", "63-1", "63", "200"]
)
@pytest.mark.parametrize("name", ["kernel_size", "stride", "padding", "all"])
def test_huge_parameters_are_refused_without_overflow(name, value):
    if name == "all":
        arguments = {"kernel_size": value, "stride": value, "padding": value // 2}
    else:
        arguments = {"kernel_size": 2, "stride": 2, "padding": 0, name: value}
    with pytest.raises(backops.Error, match=r"^avg_pool2d_backward: ") as caught:
        pool2d(**arguments)
    assert type(caught.value) in (backops.ParamError, backops.ShapeError)


@pytest.mark.parametrize("value", [2.0, "4", (4,), 2**64], ids=str)
def test_divisor_override_that_is_no_int(value):
    names = ["divisor_override"]
    refused(
        backops.ParamError,
        "avg_pool2d_backward",
        ONES,
        SHAPE,
        2,
        names=names,
        divisor_override=value,
    )


@pytest.mark.parametrize("value", ["exact", "", "KEEP", None, 0], ids=repr)
def test_unknown_precision(value):
    names = ["precision", repr(value) if isinstance(value, str) else str(value)]
    refused(backops.ParamError, "avg_pool2d_backward", ONES, SHAPE, 2, names=names, precision=value)


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        (torch.float16, "hf32"),
        (torch.bfloat16, "hf32"),
        (torch.bfloat16, "fp16"),
        (torch.float64, "hf32"),
        (torch.float64, "fp16"),
    ],
    ids=str,
)
def test_precision_that_does_not_go_with_the_dtype(dtype, precision):
    grad = torch.ones(2, 3, 4, 4, dtype=dtype)
    names = ["precision", precision, str(dtype).removeprefix("torch.")]
    refused(
        backops.ParamError, "avg_pool2d_backward", grad, SHAPE, 2, names=names, precision=precision
    )


def test_adaptive_pooling_takes_no_precision():
    with pytest.raises(TypeError):
        backops.adaptive_avg_pool2d_backward(ONES, SHAPE, precision="keep")


# dtypes


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int32", "int64", "bool", "complex64", "complex128", "longdouble"]
)
@pytest.mark.parametrize("function", ["avg_pool2d_backward", "adaptive_avg_pool2d_backward"])
def test_dtype_that_is_not_supported(function, dtype):
    more = (2,) if function == "avg_pool2d_backward" else ()
    names = ["grad_output", np.dtype(dtype).name]
    refused(backops.DTypeError, function, ONES.astype(dtype), SHAPE, *more, names=names)


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64, torch.bool, torch.float8_e4m3fn])
def test_torch_dtype_that_is_not_supported(dtype):
    grad = torch.ones(2, 3, 4, 4).to(dtype)
    refused(backops.DTypeError, "avg_pool2d_backward", grad, SHAPE, 2, names=["grad_output"])


def test_jax_dtype_that_is_not_supported():
    grad = jnp.ones((2, 3, 4, 4), jnp.int32)
    names = ["grad_output", "int32"]
    refused(backops.DTypeError, "avg_pool2d_backward", grad, SHAPE, 2, names=names)


@pytest.mark.parametrize("grad", [[[[1.0]]], 1.0, None, "grad", object, (1, 2, 3, 4)], ids=repr)
def test_grad_output_that_is_no_array(grad):
    refused(backops.DTypeError, "avg_pool2d_backward", grad, SHAPE, 2, names=["grad_output"])


def test_structured_and_object_arrays():
    for dtype in ("O", "U1", [("a", "f4")]):
        grad = np.zeros(ONES.shape, dtype)
        refused(backops.DTypeError, "avg_pool2d_backward", grad, SHAPE, 2, names=["grad_output"])


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
def test_input_of_another_dtype(dtype):
    given = np.zeros(SHAPE, dtype)
    names = ["input", np.dtype(dtype).name, "float32"]
    refused(backops.DTypeError, "avg_pool2d_backward", ONES, given, 2, names=names)
    refused(backops.DTypeError, "adaptive_avg_pool2d_backward", ONES, given, names=names)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
def test_out_of_another_dtype(dtype):
    out = np.zeros(SHAPE, dtype)
    names = ["out", np.dtype(dtype).name, "float32"]
    refused(backops.DTypeError, "avg_pool2d_backward", ONES, SHAPE, 2, names=names, out=out)
    assert not out.any()


# out


@pytest.mark.parametrize("shape", [(2, 3, 8, 9), (3, 8, 8), (1, 2, 3, 8, 8), (2, 3, 4, 4)], ids=str)
def test_out_of_another_shape(shape):
    out = np.zeros(shape, np.float32)
    names = ["out", str(shape), str(SHAPE)]
    refused(backops.ShapeError, "avg_pool2d_backward", ONES, SHAPE, 2, names=names, out=out)
    refused(backops.ShapeError, "adaptive_avg_pool2d_backward", ONES, SHAPE, names=names, out=out)
    assert not out.any()


def test_read_only_out():
    out = np.zeros(SHAPE, np.float32)
    out.flags.writeable = False
    names = ["out", "read-only"]
    refused(backops.LayoutError, "avg_pool2d_backward", ONES, SHAPE, 2, names=names, out=out)
    refused(backops.LayoutError, "adaptive_avg_pool2d_backward", ONES, SHAPE, names=names, out=out)
    assert not out.any()


def test_out_that_is_no_array():
    for out in ([0.0], 1, "out"):
        refused(backops.DTypeError, "avg_pool2d_backward", ONES, SHAPE, 2, names=["out"], out=out)


def test_out_that_is_grad_output():
    grad = np.ones(SHAPE, np.float32)
    names = ["out", "grad_output"]
    refused(backops.LayoutError, "avg_pool2d_backward", grad, SHAPE, 1, names=names, out=grad)
    refused(backops.LayoutError, "adaptive_avg_pool2d_backward", grad, SHAPE, names=names, out=grad)
    assert (grad == 1).all()


@pytest.mark.parametrize("offset", [0, 1, 95, 383, -1, -95])
def test_out_that_overlaps_grad_output_partially(offset):
    # 96 gradients and 384 results in one piece of memory.
    memory = np.ones(1000, np.float32)
    out = memory[200 : 200 + 384].reshape(SHAPE)
    grad = memory[200 + offset :][:96].reshape(ONES.shape)
    names = ["out", "grad_output"]
    refused(backops.LayoutError, "avg_pool2d_backward", grad, SHAPE, 2, names=names, out=out)
    assert (memory == 1).all()


@pytest.mark.parametrize("offset", [384, -96])
def test_out_next_to_grad_output_is_accepted(offset):
    memory = np.ones(1000, np.float32)
    out = memory[200 : 200 + 384].reshape(SHAPE)
    grad = memory[200 + offset :][:96].reshape(ONES.shape)
    assert (pool2d(grad, out=out) == 0.25).all()
    assert (grad == 1).all()


def test_out_of_a_torch_tensor_overlapping_a_numpy_gradient():
    memory = np.ones(SHAPE, np.float32)
    out = torch.from_numpy(memory)
    grad = memory[:, :, ::2, ::2]
    names = ["out", "grad_output"]
    refused(backops.LayoutError, "avg_pool2d_backward", grad, SHAPE, 2, names=names, out=out)
    assert (memory == 1).all()


def test_interleaved_memory_without_common_elements_is_accepted():
    memory = np.ones((2, 3, 8, 16), np.float32)
    grad, out = memory[..., 1::2], memory[..., ::2]
    grad[...] = 3
    backops.avg_pool2d_backward(grad, SHAPE, 1, out=out)
    assert (memory == 3).all()
    grad[...] = 5
    backops.adaptive_avg_pool2d_backward(grad, SHAPE, out=out)
    assert (memory == 5).all()


def test_interleaved_memory_with_common_elements_is_refused():
    # Every third and every second element: they meet at every sixth.
    memory = np.ones(400, np.float32)
    grad, out = memory[1::3][:100].reshape(1, 1, 100), memory[::2][:100].reshape(1, 1, 100)
    names = ["out", "grad_output"]
    refused(backops.LayoutError, "avg_pool1d_backward", grad, (1, 1, 100), 1, names=names, out=out)
    assert (memory == 1).all()


@pytest.mark.parametrize(
    "strides",
    [(0, 0, 0, 0), (192, 64, 8, 0), (0, 64, 8, 1), (192, 64, 4, 1), (192, 64, 1, 1), (8, 16, 8, 1)],
    ids=str,
)
def test_out_whose_elements_overlap(strides):
    memory = np.zeros(1000, np.float32)
    byte_strides = [4 * stride for stride in strides]
    out = np.lib.stride_tricks.as_strided(memory, SHAPE, byte_strides)
    names = ["out", "overlap"]
    refused(backops.LayoutError, "avg_pool2d_backward", ONES, SHAPE, 2, names=names, out=out)
    refused(backops.LayoutError, "adaptive_avg_pool2d_backward", ONES, SHAPE, names=names, out=out)
    assert not memory.any()


def test_torch_out_that_is_expanded():
    out = torch.zeros(1, 3, 8, 8).expand(SHAPE)
    names = ["out", "overlap"]
    refused(backops.LayoutError, "avg_pool2d_backward", ONES, SHAPE, 2, names=names, out=out)
    assert not out.any()


def test_out_whose_axes_interleave_without_overlap_is_accepted():
    # Element (i, j) is at 3 i + 5 j, with i and j below 3: all different, though no axis encloses
    # the other.
    memory = np.zeros(30, np.float32)
    out = np.lib.stride_tricks.as_strided(memory, (1, 1, 3, 3), (0, 0, 12, 20))
    grad = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    backops.avg_pool2d_backward(grad, (1, 1, 3, 3), 1, out=out)
    assert np.array_equal(out, grad)


def test_strides_of_axes_with_one_element_do_not_matter():
    memory = np.zeros(100, np.float32)
    out = np.lib.stride_tricks.as_strided(memory, (1, 1, 8, 8), (0, 4, 32, 4))
    result = backops.avg_pool2d_backward(ONES[:1, :1], (1, 1, 8, 8), 2, out=out)
    assert result is out
    assert (out == 0.25).all()


# Devices


def test_grad_output_on_another_device():
    grad = torch.ones(2, 3, 4, 4, device="meta")
    names = ["grad_output", "meta"]
    refused(backops.LayoutError, "avg_pool2d_backward", grad, SHAPE, 2, names=names)
    refused(backops.LayoutError, "adaptive_avg_pool2d_backward", grad, SHAPE, names=names)


def test_out_on_another_device():
    out = torch.ones(SHAPE, device="meta")
    names = ["out", "meta"]
    refused(backops.LayoutError, "avg_pool2d_backward", ONES, SHAPE, 2, names=names, out=out)


def test_dlpack_array_on_another_device():
    class OnCuda:
        def __dlpack__(self, **keywords):
            raise AssertionError("asked for memory that the CPU cannot read")

        def __dlpack_device__(self):
            return (2, 0)

    refused(backops.LayoutError, "avg_pool2d_backward", OnCuda(), SHAPE, 2, names=["grad_output"])


def test_sparse_tensor():
    grad = torch.ones(2, 3, 4, 4).to_sparse()
    refused(backops.LayoutError, "avg_pool2d_backward", grad, SHAPE, 2, names=["grad_output"])


# Python's own rules


def test_parameters_after_padding_must_be_named():
    with pytest.raises(TypeError):
        backops.avg_pool2d_backward(ONES, SHAPE, 2, 2, 0, False)
    with pytest.raises(TypeError):
        backops.adaptive_avg_pool2d_backward(ONES, SHAPE, np.empty(SHAPE, np.float32))


def test_unknown_keyword():
    with pytest.raises(TypeError):
        backops.avg_pool2d_backward(ONES, SHAPE, 2, dilation=1)


# Nothing is written


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        ("ParamError", {"kernel_size": 0}),
        ("ParamError", {"stride": 0}),
        ("ParamError", {"padding": 2}),
        ("ParamError", {"precision": "exact"}),
        ("ParamError", {"divisor_override": 1.5}),
        ("ShapeError", {"grad_output": np.ones((2, 3, 5, 4), np.float32)}),
        ("ShapeError", {"input": (2, 3, 9, 10)}),
        ("DTypeError", {"grad_output": np.ones((2, 3, 4, 4))}),
        ("DTypeError", {"input": np.ones(SHAPE)}),
    ],
)
def test_out_is_unchanged_after_an_error(error, arguments):
    out = np.full(SHAPE, 7, np.float32)
    with pytest.raises(getattr(backops, error)):
        pool2d(**arguments, out=out)
    assert (out == 7).all()


def test_operators_work_after_an_error():
    with pytest.raises(backops.ParamError):
        pool2d(kernel_size=0)
    assert (pool2d() == 0.25).all()


def test_nothing_is_printed(capfd):
    for arguments in ({"kernel_size": 0}, {"grad_output": None}, {"input": (8, 8)}):
        with pytest.raises(backops.Error):
            pool2d(**arguments)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1}, "kernel_size is {'a': 1}, expected"),
        ("{grad_input}", "kernel_size is '{grad_input}', expected"),
        ("é" * 100, "kernel_size is 'ééé"),
        ("\ud800", "kernel_size is '\\ud800', expected"),
        (np.ones((3, 3)), "kernel_size is array([[1., 1., 1.],        [1."),
    ],
)
def test_message_shows_any_value_as_it_is(value, text):
    with pytest.raises(backops.ParamError) as caught:
        backops.avg_pool2d_backward(np.ones((1, 1, 2, 2)), (1, 1, 4, 4), value)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_interleaved_channels_of_large_planes_do_not_overlap():
    memory = np.ones((4, 8, 112, 112, 2), np.float32)
    out = memory[..., 0]
    grad = memory[:, :, ::2, ::2, 1]
    assert backops.avg_pool2d_backward(grad, out.shape, 2, out=out) is out


def test_result_that_fits_no_memory_is_a_memory_error_at_once():
    grad = np.broadcast_to(np.float16(1), (1, 2**39))
    with pytest.raises(MemoryError):
        backops.avg_pool1d_backward(grad, (1, 2**40), 2)


def test_flag_without_truth_value():
    with pytest.raises(backops.ParamError, match=r"ceil_mode is array\(\[1, 2\]\), expected True"):
        backops.avg_pool2d_backward(
            np.ones((1, 1, 2, 2)), (1, 1, 4, 4), 2, ceil_mode=np.array([1, 2])
        )

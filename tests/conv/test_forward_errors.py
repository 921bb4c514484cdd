"""Bad input to the other convolutions: the right exception, a message, and nothing written.

What they share with conv_backward is in test_errors.py.
"""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import backops

# Two groups, right for each operator; each test makes one thing wrong.
INPUT = np.ones((2, 4, 5, 6), np.float32)
GOOD = {
    "conv": {
        "input": INPUT,
        "weight": np.ones((6, 2, 3, 3), np.float32),
        "bias": np.ones(6, np.float32),
        "padding": 1,
        "groups": 2,
    },
    "conv_transpose": {
        "input": INPUT,
        "weight": np.ones((4, 3, 3, 3), np.float32),
        "bias": np.ones(6, np.float32),
        "stride": 2,
        "groups": 2,
    },
    "conv_transpose_backward": {
        "grad_output": np.ones((2, 6, 11, 13), np.float32),
        "input": INPUT,
        "weight": np.ones((4, 3, 3, 3), np.float32),
        "stride": 2,
        "groups": 2,
    },
}
RESULTS = {
    "conv": (2, 6, 5, 6),
    "conv_transpose": (2, 6, 11, 13),
    "conv_transpose_backward": (INPUT.shape, (4, 3, 3, 3), (6,)),
}
FORWARD, TRANSPOSED = ("conv", "conv_transpose"), ("conv_transpose", "conv_transpose_backward")
every_operator = pytest.mark.parametrize("operator", list(GOOD))
both_forward = pytest.mark.parametrize("operator", FORWARD)
both_transposed = pytest.mark.parametrize("operator", TRANSPOSED)


def new_out(operator):
    if operator in FORWARD:
        return np.full(RESULTS[operator], 7, np.float32)
    return tuple(np.full(shape, 7, np.float32) for shape in RESULTS[operator])


def refused(operator, error, *names, **changes):
    """Makes the good call with `changes`: it must raise `error`, name `names` and write nothing."""
    out = new_out(operator)
    with pytest.raises(backops.Error) as caught:
        getattr(backops, operator)(**{**GOOD[operator], "out": out, **changes})
    message = str(caught.value)
    assert type(caught.value) is error, f"{type(caught.value).__name__}: {message}"
    assert message.startswith(f"{operator}: "), message
    for name in names:
        assert str(name) in message, f"{name!r} is not in {message!r}"
    assert "expected" in message or ", but " in message, message
    assert "{" not in message
    assert "\n" not in message
    assert all((array == 7).all() for array in (out if isinstance(out, tuple) else (out,)))


@every_operator
def test_the_call_that_the_wrong_ones_start_from_is_right(operator):
    out = new_out(operator)
    result = getattr(backops, operator)(**GOOD[operator], out=out)
    outs, results = (out, result) if isinstance(out, tuple) else ((out,), (result,))
    assert all(given is got for given, got in zip(outs, results, strict=True))
    assert not any((array == 7).all() for array in outs)


@every_operator
def test_control_a_call_that_raises_nothing_or_something_else_is_caught(operator):
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        refused(operator, backops.ShapeError)
    with pytest.raises(AssertionError, match="ParamError: "):
        refused(operator, backops.ShapeError, stride=0)


# Operands


@pytest.mark.parametrize("name", ["input", "weight", "bias"])
@pytest.mark.parametrize("value", [(2, 4, 5, 6), [[1.0]], 1.0, "array", object], ids=repr)
@both_forward
def test_operand_that_is_no_array(operator, value, name):
    refused(operator, backops.DTypeError, name, "array", **{name: value})


@pytest.mark.parametrize("name", ["input", "weight"])
@both_forward
def test_operand_that_is_none(operator, name):
    refused(operator, backops.DTypeError, name, "None", **{name: None})


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "bool"])
@pytest.mark.parametrize("name", ["weight", "bias"])
@both_forward
def test_operand_of_another_dtype_than_the_input(operator, name, dtype):
    array = GOOD[operator][name].astype(dtype)
    refused(operator, backops.DTypeError, name, dtype, "float32", **{name: array})


@both_forward
def test_operands_of_dtypes_that_are_not_supported(operator):
    for dtype in ("int8", "complex64", "longdouble", ">f4"):
        refused(operator, backops.DTypeError, "input", input=INPUT.astype(dtype))


@pytest.mark.parametrize("name", ["input", "weight", "bias"])
@both_forward
def test_operand_on_another_device(operator, name):
    tensor = torch.ones(GOOD[operator][name].shape, device="meta")
    refused(operator, backops.LayoutError, name, "meta", **{name: tensor})


@pytest.mark.parametrize("shape", [(5,), (7,), (6, 1), (1, 6), ()], ids=str)
@both_forward
def test_bias_of_another_shape(operator, shape):
    bias = np.ones(shape, np.float32)
    refused(operator, backops.ShapeError, "bias", shape, "(6,)", bias=bias)


@pytest.mark.parametrize(
    "shape", [(4,), (5, 6), (1, 2, 4, 5, 6), (2, 4, 0, 6), (2, 0, 5, 6)], ids=str
)
@every_operator
def test_input_of_a_wrong_shape(operator, shape):
    refused(operator, backops.ShapeError, "input", input=np.ones(shape, np.float32))


@pytest.mark.parametrize("shape", [(6, 2), (6, 2, 3, 3, 3, 3), (6, 2, 0, 3), (0, 2, 3, 3)], ids=str)
@every_operator
def test_weight_of_a_wrong_shape(operator, shape):
    refused(operator, backops.ShapeError, "weight", weight=np.ones(shape, np.float32))


def test_channels_that_do_not_fit():
    for shape in ((6, 1, 3, 3), (6, 4, 3, 3), (5, 2, 3, 3)):
        refused("conv", backops.ShapeError, "weight", shape, weight=np.ones(shape, np.float32))
    refused("conv", backops.ShapeError, "input", "groups", groups=3)


@both_transposed
def test_channels_of_a_transposed_convolution_that_do_not_fit(operator):
    for shape in ((6, 2, 3, 3), (3, 3, 3, 3), (8, 3, 3, 3)):
        refused(operator, backops.ShapeError, "weight", "4 channels", weight=np.ones(shape, "f4"))
    refused(operator, backops.ShapeError, "input", "groups", groups=3)


@pytest.mark.parametrize("shape", [(2, 6, 10, 13), (2, 6, 11, 14), (2, 4, 11, 13), (6, 11, 13)])
def test_grad_output_is_what_the_transposed_convolution_makes(shape):
    operator, grad_output = "conv_transpose_backward", np.ones(shape, np.float32)
    words = ("grad_output", shape, "output_padding (0, 0)", "(2, 6, 11, 13)")
    refused(operator, backops.ShapeError, *words, grad_output=grad_output)


# Parameters


@pytest.mark.parametrize("name", ["stride", "dilation", "groups"])
@pytest.mark.parametrize("value", [0, -1, -(2**63)])
@every_operator
def test_parameter_below_one(operator, value, name):
    refused(operator, backops.ParamError, name, value, "1", **{name: value})


@pytest.mark.parametrize("name", ["stride", "padding", "dilation", "output_padding"])
@pytest.mark.parametrize("value", ["1", 1.0, (1, "1"), None, (), (1, 1, 1)], ids=str)
@both_transposed
def test_parameter_that_is_no_int(operator, value, name):
    refused(operator, backops.ParamError, name, **{name: value})


@pytest.mark.parametrize("value", [-1, 2, (0, 2), (1, -1), 2**62], ids=str)
@both_transposed
def test_output_padding_outside_its_range(operator, value):
    bad = value if isinstance(value, int) else next(v for v in value if v not in (0, 1))
    words = ("output_padding[", bad, "0 to 1", "stride", "dilation")
    refused(operator, backops.ParamError, *words, output_padding=value)


@pytest.mark.parametrize("padding", [6, (0, 7), 2**40], ids=str)
@both_transposed
def test_padding_that_leaves_no_output(operator, padding):
    refused(operator, backops.ShapeError, "padding", "at least 1", padding=padding)


@pytest.mark.parametrize(
    "value", [2**31, 2**62, 2**63 - 1, 2**63, 2**200], ids=lambda v: f"{v:.0e}"
)
@pytest.mark.parametrize("name", ["stride", "dilation"])
@both_transposed
def test_huge_parameters_of_transposed_convolutions_do_not_overflow(operator, name, value):
    with pytest.raises((backops.ShapeError, backops.ParamError), match=f"^{operator}: "):
        getattr(backops, operator)(**{**GOOD[operator], name: value})


@pytest.mark.parametrize("name", ["stride", "padding", "dilation"])
def test_huge_parameters_of_a_convolution_do_not_overflow(name):
    for value in (2**61, 2**63 - 1, 2**63, 2**200):
        with pytest.raises((backops.ShapeError, backops.ParamError), match=r"^conv: "):
            backops.conv(**{**GOOD["conv"], name: value})


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("hf32", "float16"), ("hf32", "float64"), ("fp16", "bfloat16"), ("exact", "float32")],
)
@both_forward
def test_precision_that_is_refused(operator, precision, dtype):
    arrays = {
        name: torch.ones(GOOD[operator][name].shape, dtype=getattr(torch, dtype))
        for name in ("input", "weight", "bias")
    }
    refused(operator, backops.ParamError, "precision", precision, **arrays, precision=precision)


@every_operator
def test_parameters_must_be_named(operator):
    operands = [GOOD[operator][name] for name in list(GOOD[operator])[:3]]
    with pytest.raises(TypeError):
        getattr(backops, operator)(*operands, 1)
    with pytest.raises(TypeError):
        getattr(backops, operator)(**GOOD[operator], kernel_size=3)


def test_convolutions_have_no_output_padding():
    with pytest.raises(TypeError):
        backops.conv(**GOOD["conv"], output_padding=0)


# out


@pytest.mark.parametrize("change", ["longer", "more_axes"])
@both_forward
def test_out_of_another_shape(operator, change):
    right = RESULTS[operator]
    shape = (right[0] + 1, *right[1:]) if change == "longer" else (1, *right)
    out = np.full(shape, 7, np.float32)
    refused(operator, backops.ShapeError, "out is", shape, right, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
@both_forward
def test_out_of_another_dtype(operator, dtype):
    out = np.full(RESULTS[operator], 7, dtype)
    refused(operator, backops.DTypeError, "out", dtype, "float32", out=out)
    assert (out == 7).all()


@both_forward
def test_out_that_cannot_be_written(operator):
    shape = RESULTS[operator]
    out = np.full(shape, 7, np.float32)
    out.flags.writeable = False
    refused(operator, backops.LayoutError, "out", "read-only", out=out)
    refused(operator, backops.LayoutError, "out", "read-only", out=jnp.zeros(shape))
    refused(operator, backops.LayoutError, "out", "meta", out=torch.ones(shape, device="meta"))
    expanded = torch.full((1, *shape[1:]), 7.0).expand(shape)
    refused(operator, backops.LayoutError, "out", "overlap", out=expanded)
    assert (expanded == 7).all()


@pytest.mark.parametrize("value", [[0.0], 1, "out", (None, None, None), (None,)], ids=repr)
@both_forward
def test_out_that_is_no_array(operator, value):
    refused(operator, backops.DTypeError, "out", out=value)


@pytest.mark.parametrize("name", ["input", "weight", "bias"])
@pytest.mark.parametrize("at", ["begin", "end"])
@both_forward
def test_out_that_overlaps_an_operand(operator, at, name):
    shape, out_shape = GOOD[operator][name].shape, RESULTS[operator]
    memory = np.ones(8000, np.float32)
    array = memory[4000 : 4000 + int(np.prod(shape))].reshape(shape)
    start = 4000 + array.size - 1 if at == "end" else 4001 - int(np.prod(out_shape))
    out = memory[start : start + int(np.prod(out_shape))].reshape(out_shape)
    refused(operator, backops.LayoutError, "out", name, **{name: array, "out": out})
    assert (memory == 1).all()


def test_out_that_is_the_input():
    # Of a convolution that keeps the shape.
    array = np.ones((2, 4, 5, 6), np.float32)
    weight = np.ones((4, 4, 1, 1), np.float32)
    for operator in FORWARD:
        with pytest.raises(backops.LayoutError, match=rf"^{operator}: out.*input"):
            getattr(backops, operator)(array, weight, out=array)
    assert (array == 1).all()


# Plans


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        ("ShapeError", {"input_shape": (8, 8)}),
        ("ShapeError", {"input_shape": (1, 4, 0, 8)}),
        ("ShapeError", {"input_shape": (2**40, 4, 2**30, 8)}),
        ("ShapeError", {"input_shape": (1, 5, 8, 8)}),
        ("ShapeError", {"weight_shape": (4, 4)}),
        ("ParamError", {"stride": 0}),
        ("ParamError", {"padding": -1}),
        ("ParamError", {"groups": 0}),
        ("ParamError", {"precision": "exact"}),
        ("ParamError", {"precision": "hf32", "dtype": "bfloat16"}),
        ("DTypeError", {"dtype": "int32"}),
    ],
    ids=str,
)
@every_operator
def test_plan_refuses_what_the_function_refuses(operator, error, changes):
    good = {"input_shape": (1, 4, 8, 8), "weight_shape": (4, 4, 3, 3)}
    make = getattr(backops.plan, operator)
    make(**good)
    with pytest.raises(backops.Error, match=rf"^plan\.{operator}: ") as caught:
        make(**{**good, **changes})
    assert type(caught.value) is getattr(backops, error), caught.value


@both_forward
def test_tensors_that_do_not_fit_the_plan(operator):
    plan = getattr(backops.plan, operator)((2, 4, 5, 6), (4, 4, 3, 3))
    shape = (2, 4, 3, 4) if operator == "conv" else (2, 4, 7, 8)
    out = np.full(shape, 7, np.float32)
    good = {"input": INPUT, "weight": np.ones((4, 4, 3, 3), "f4"), "bias": np.ones(4, "f4")}
    for name, array in good.items():
        with pytest.raises(backops.DTypeError, match=rf"^plan\.{operator}: {name} is float64"):
            plan(**{**good, name: array.astype(np.float64)}, out=out)
        with pytest.raises(backops.ShapeError, match=rf"^plan\.{operator}: {name} is \(1,"):
            plan(**{**good, name: array[:1]}, out=out)
    with pytest.raises(backops.ShapeError, match="out is"):
        plan(**good, out=out[:1])
    # The bias in the memory of the result.
    with pytest.raises(backops.LayoutError, match=r"out.*bias"):
        plan(**{**good, "bias": out.reshape(-1)[:4]}, out=out)
    assert (out == 7).all()


# Plans that are kept


@every_operator
def test_errors_are_the_same_once_a_plan_is_kept(operator):
    for name, value in (("weight", GOOD[operator]["weight"].astype(np.float16)), ("stride", 0)):
        messages = []
        for _ in range(2):
            with pytest.raises(backops.Error) as caught:
                getattr(backops, operator)(**{**GOOD[operator], name: value})
            messages.append((type(caught.value), str(caught.value)))
            getattr(backops, operator)(**GOOD[operator])
        assert messages[0] == messages[1]

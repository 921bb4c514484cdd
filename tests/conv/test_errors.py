"""Bad input to convolution: the right exception, a message that says why, and nothing written."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import backops
from tests.support.conv_cases import GRADIENTS, MASKS

# A convolution of two groups that is right; each test makes one thing of it wrong.
GRAD_SHAPE, INPUT_SHAPE, WEIGHT_SHAPE = (2, 6, 5, 6), (2, 4, 5, 6), (6, 2, 3, 3)
SHAPES = {"grad_output": GRAD_SHAPE, "input": INPUT_SHAPE, "weight": WEIGHT_SHAPE}
GRADIENT_SHAPES = (INPUT_SHAPE, WEIGHT_SHAPE, (6,))
GOOD = {
    **{name: np.ones(shape, np.float32) for name, shape in SHAPES.items()},
    "padding": 1,
    "groups": 2,
}
BIAS_ONLY = {
    "input": INPUT_SHAPE,
    "weight": WEIGHT_SHAPE,
    "output_mask": (False, False, True),
}
every_tensor = pytest.mark.parametrize("name", list(SHAPES))
every_gradient = pytest.mark.parametrize("index", range(3), ids=GRADIENTS)


def new_outs():
    return [np.full(shape, 7, np.float32) for shape in GRADIENT_SHAPES]


def refused(errors, *names, **changes):
    """Makes the good call with `changes`, which must raise one of `errors` and write nothing.

    All of `names` must be in its message. Unless `changes` say otherwise, an `out` is given for
    every gradient that is asked for.
    """
    errors = errors if isinstance(errors, tuple) else (errors,)
    arguments = {**GOOD, **changes}
    outs = new_outs()
    if "out" not in changes and "output_mask" not in changes:
        arguments["out"] = tuple(outs)
    with pytest.raises(backops.Error) as caught:
        backops.conv_backward(**arguments)
    message = str(caught.value)
    assert type(caught.value) in errors, f"{type(caught.value).__name__}: {message}"
    assert message.startswith("conv_backward: "), message
    for name in names:
        assert str(name) in message, f"{name!r} is not in {message!r}"
    assert "expected" in message or ", but " in message, message
    assert "invalid" not in message.lower()
    assert "please" not in message.lower()
    assert "\n" not in message
    assert all((out == 7).all() for out in outs), "out was written to"


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def test_the_call_that_the_wrong_ones_start_from_is_right():
    outs = new_outs()
    backops.conv_backward(**GOOD, out=tuple(outs))
    assert not any((out == 7).all() for out in outs)


def test_control_a_call_that_raises_nothing_or_writes_is_caught():
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        refused(backops.ShapeError)
    with pytest.raises(AssertionError, match="ShapeError: "):
        refused(backops.ParamError, grad_output=ones(2, 6, 5, 5))
    with pytest.raises(AssertionError, match="'weight_of' is not in"):
        refused(backops.ShapeError, "weight_of", grad_output=ones(2, 6, 5, 5))


# Channels and groups


@pytest.mark.parametrize("channels", [2, 6, 8])
def test_weight_that_does_not_fit_the_channels_of_the_input(channels):
    shape = (2, channels, 5, 6)
    refused(backops.ShapeError, "input", channels, "weight", WEIGHT_SHAPE, input=ones(*shape))


@pytest.mark.parametrize("groups", [3, 4, 6, 2**62])
def test_groups_that_do_not_fit_the_channels(groups):
    refused((backops.ShapeError, backops.ParamError), "groups", groups, groups=groups)


def test_groups_that_do_not_divide_the_output_channels():
    changes = {"grad_output": ones(2, 5, 5, 6), "weight": ones(5, 2, 3, 3)}
    refused((backops.ShapeError, backops.ParamError), "weight", "groups", 2, **changes)


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_groups_that_do_not_divide_the_input_channels(channels):
    changes = {"input": ones(2, channels, 5, 6)}
    refused((backops.ShapeError, backops.ParamError), "input", channels, "groups", 2, **changes)


@pytest.mark.parametrize("groups", [0, -1, -(2**63)])
def test_groups_below_one(groups):
    refused(backops.ParamError, "groups", groups, "1", groups=groups)


@pytest.mark.parametrize("groups", [2.0, "2", None, (2,), 2**70, object], ids=repr)
def test_groups_that_is_no_int(groups):
    refused(backops.ParamError, "groups", groups=groups)


# Shapes


@pytest.mark.parametrize(
    "shape",
    [
        (2, 6, 5, 5),
        (2, 6, 4, 6),
        (2, 4, 5, 6),
        (2, 7, 5, 6),
        (1, 6, 5, 6),
        (3, 6, 5, 6),
        (0, 6, 5, 6),
        (6, 5, 6),
        (2, 6, 5, 6, 1),
        (),
    ],
    ids=str,
)
def test_grad_output_of_another_shape(shape):
    names = ("grad_output", shape, "input", INPUT_SHAPE, "weight", WEIGHT_SHAPE)
    refused(backops.ShapeError, *names, GRAD_SHAPE, grad_output=ones(*shape))


def test_grad_output_of_unbatched_input_with_a_batch_and_the_reverse():
    refused(backops.ShapeError, "grad_output", GRAD_SHAPE, input=ones(4, 5, 6), out=None)
    refused(backops.ShapeError, "grad_output", (6, 5, 6), grad_output=ones(6, 5, 6))


@pytest.mark.parametrize("shape", [(), (4,), (5, 6), (1, 2, 4, 5, 6), (1, 1, 2, 4, 5, 6)], ids=str)
def test_input_with_the_wrong_number_of_dimensions(shape):
    refused(backops.ShapeError, "input", shape, input=ones(*shape))


@pytest.mark.parametrize("shape", [(), (6,), (6, 2), (6, 2, 3, 3, 3, 3)], ids=str)
def test_weight_with_the_wrong_number_of_dimensions(shape):
    refused(backops.ShapeError, "weight", shape, weight=ones(*shape))


@pytest.mark.parametrize("shape", [(2, 0, 5, 6), (2, 4, 0, 6), (2, 4, 5, 0)], ids=str)
def test_input_of_zero_size_other_than_the_batch(shape):
    refused(backops.ShapeError, "input", shape, input=ones(*shape))


@pytest.mark.parametrize("shape", [(0, 2, 3, 3), (6, 0, 3, 3), (6, 2, 0, 3), (6, 2, 3, 0)], ids=str)
def test_weight_of_zero_size(shape):
    refused(backops.ShapeError, "weight", shape, weight=ones(*shape))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("input", (2, 4, -5, 6)), ("weight", (6, 2, -3, 3)), ("input", (-2, 4, 5, 6))],
)
def test_negative_size(name, shape):
    refused(backops.ShapeError, name, shape, **{**BIAS_ONLY, name: shape})


@pytest.mark.parametrize(
    "value", ["2456", 8, None, (2, 4, 5.0, 6), (2, 4, "5", 6), object], ids=repr
)
@pytest.mark.parametrize("name", ["input", "weight"])
def test_neither_array_nor_shape(name, value):
    refused((backops.ShapeError, backops.DTypeError), name, **{**BIAS_ONLY, name: value})


@pytest.mark.parametrize(
    ("changes", "padded_size"),
    [
        ({"weight": ones(6, 2, 8, 3)}, 7),
        ({"weight": ones(6, 2, 3, 9)}, 8),
        ({"weight": ones(6, 2, 6, 3), "padding": 0}, 5),
        ({"dilation": 4}, 7),
        ({"dilation": (1, 4)}, 8),
        ({"weight": ones(6, 2, 2, 2), "dilation": (7, 1)}, 7),
    ],
)
def test_kernel_larger_than_the_padded_input(changes, padded_size):
    errors = (backops.ShapeError, backops.ParamError)
    refused(errors, "weight", "input", padded_size, **changes)


# Shapes in place of arrays


def test_grad_output_is_needed_always():
    for mask in MASKS:
        changes = {"grad_output": GRAD_SHAPE, "output_mask": mask}
        refused(backops.DTypeError, "grad_output", "array", **changes)


@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask[1]])
def test_shape_where_the_input_is_needed(mask):
    refused(backops.DTypeError, "input", "array", input=INPUT_SHAPE, output_mask=mask)


@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask[0]])
def test_shape_where_the_weight_is_needed(mask):
    refused(backops.DTypeError, "weight", "array", weight=WEIGHT_SHAPE, output_mask=mask)


@pytest.mark.parametrize("value", [[[1.0]], 1.0, None, "array", object], ids=repr)
@every_tensor
def test_tensor_that_is_no_array(name, value):
    refused((backops.DTypeError, backops.ShapeError), name, **{name: value})


# Sizes that overflow


@pytest.mark.parametrize(
    "shape",
    [(2**40, 4, 2**40, 8), (2**61, 4, 5, 6), (1, 4, 2**32, 2**32), (2**70, 4, 5, 6)],
    ids=str,
)
def test_input_sizes_that_overflow(shape):
    refused(backops.ShapeError, "input", **{**BIAS_ONLY, "input": shape})
    with pytest.raises(backops.ShapeError, match="conv_backward: input"):
        backops.plan.conv_backward(shape, WEIGHT_SHAPE, groups=2)


@pytest.mark.parametrize(
    "shape", [(2**40, 2, 2**30, 3), (2**62, 2, 3, 3), (6, 2, 2**70, 3)], ids=["40", "62", "70"]
)
def test_weight_sizes_that_overflow(shape):
    refused(backops.ShapeError, "weight", **{**BIAS_ONLY, "weight": shape})


def test_channels_times_groups_that_overflow():
    # 2**32 groups of 2**32 channels are 2**64, which is 0 in 64 bits.
    shapes = {"input": (2, 4, 5, 6), "weight": (2**32, 2**32, 1, 1), "groups": 2**32}
    refused((backops.ShapeError, backops.ParamError), **{**BIAS_ONLY, **shapes})


@pytest.mark.parametrize("padding", [2**31, 2**61])
def test_output_size_that_overflows(padding):
    # Each axis of the output fits 64 bits, the bytes of the output do not.
    refused((backops.ShapeError, backops.ParamError), padding=padding)
    with pytest.raises(backops.Error, match="conv_backward: "):
        backops.plan.conv_backward(INPUT_SHAPE, WEIGHT_SHAPE, groups=2, padding=padding)


@pytest.mark.parametrize(
    "value", [2**31, 2**62, 2**63 - 1, 2**63, 2**200], ids=lambda v: f"{v:.0e}"
)
@pytest.mark.parametrize("name", ["stride", "padding", "dilation", "all"])
def test_huge_parameters_are_refused_without_overflow(name, value):
    names = ("stride", "padding", "dilation") if name == "all" else (name,)
    changes = dict.fromkeys(names, value)
    refused((backops.ShapeError, backops.ParamError), **changes)


# Parameters


@pytest.mark.parametrize("name", ["stride", "dilation"])
@pytest.mark.parametrize("value", [0, -1, (2, 0), [-3, 2], -(2**63)], ids=str)
def test_stride_and_dilation_below_one(name, value):
    bad = value if isinstance(value, int) else min(value)
    refused(backops.ParamError, name, bad, "1", **{name: value})


@pytest.mark.parametrize("value", [-1, (0, -1), (-2, 0)], ids=str)
def test_negative_padding(value):
    bad = value if isinstance(value, int) else min(value)
    refused(backops.ParamError, "padding", bad, padding=value)


@pytest.mark.parametrize("name", ["stride", "padding", "dilation"])
@pytest.mark.parametrize("value", ["1", 1.0, (1, "1"), [1.5], {"h": 1}, object, 1j, None], ids=str)
def test_parameter_that_is_no_int(name, value):
    refused(backops.ParamError, name, **{name: value})


@pytest.mark.parametrize("name", ["stride", "padding", "dilation"])
@pytest.mark.parametrize("value", [(), [], (1, 1, 1)], ids=str)
def test_sequence_of_the_wrong_length(name, value):
    refused(backops.ParamError, name, **{name: value})


def test_parameters_must_be_named():
    with pytest.raises(TypeError):
        backops.conv_backward(GOOD["grad_output"], GOOD["input"], GOOD["weight"], 1)


def test_unknown_keyword():
    with pytest.raises(TypeError):
        backops.conv_backward(**GOOD, kernel_size=3)


# Masks


@pytest.mark.parametrize("mask", [(), (True,), (True, True), (True,) * 4, [False] * 2], ids=str)
def test_mask_of_the_wrong_length(mask):
    refused(backops.ParamError, "output_mask", output_mask=mask)


@pytest.mark.parametrize("mask", [True, None, 7, 1.0, "iwb", object], ids=repr)
def test_mask_that_is_no_sequence_of_bools(mask):
    refused(backops.ParamError, "output_mask", output_mask=mask)


# dtypes


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int32", "int64", "bool", "complex64", "longdouble"]
)
@every_tensor
def test_dtype_that_is_not_supported(name, dtype):
    refused(backops.DTypeError, name, np.dtype(dtype).name, **{name: GOOD[name].astype(dtype)})


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_all_tensors_of_a_dtype_that_is_not_supported(dtype):
    arrays = {name: ones(*shape, dtype=dtype) for name, shape in SHAPES.items()}
    refused(backops.DTypeError, "grad_output", dtype, **arrays)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("name", ["input", "weight"])
def test_mixed_dtypes(name, dtype):
    refused(backops.DTypeError, name, dtype, "float32", **{name: GOOD[name].astype(dtype)})


def test_mixed_dtypes_of_torch_and_jax():
    weight = torch.ones(WEIGHT_SHAPE, dtype=torch.bfloat16)
    refused(backops.DTypeError, "weight", "bfloat16", "float32", weight=weight)
    input = jnp.ones(INPUT_SHAPE, jnp.bfloat16)
    refused(backops.DTypeError, "input", "bfloat16", "float32", input=input)


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8"])
@every_tensor
def test_byte_swapped_tensor(name, dtype):
    refused(backops.DTypeError, name, **{name: GOOD[name].astype(dtype)})


@pytest.mark.parametrize("dtype", ["O", "U1", [("a", "f4")]], ids=str)
@every_tensor
def test_structured_and_object_arrays(name, dtype):
    refused(backops.DTypeError, name, **{name: np.zeros(SHAPES[name], dtype)})


# Devices


@every_tensor
def test_torch_tensor_on_another_device(name):
    tensor = torch.ones(SHAPES[name], device="meta")
    refused(backops.LayoutError, name, "meta", **{name: tensor})


@every_tensor
def test_sparse_tensor(name):
    refused(backops.LayoutError, name, **{name: torch.ones(SHAPES[name]).to_sparse()})


# out


def with_out(index, array, others=None):
    """An `out` with `array` at `index`; by default the others are None."""
    out = list(others or (None, None, None))
    out[index] = array
    return tuple(out)


@pytest.mark.parametrize("grow", [(1, 0), (0, 1)], ids=["longer", "more_dimensions"])
@every_gradient
def test_out_of_another_shape(index, grow):
    longer, more = grow
    right = GRADIENT_SHAPES[index]
    shape = (1,) * more + (right[0] + longer, *right[1:])
    others = new_outs()
    out = with_out(index, np.full(shape, 7, np.float32), others)
    refused(backops.ShapeError, "out", shape, right, out=out)
    assert all((array == 7).all() for array in out)


def test_outs_in_the_wrong_order():
    outs = new_outs()
    refused(backops.ShapeError, "out", out=(outs[1], outs[0], outs[2]))
    assert all((out == 7).all() for out in outs)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
@every_gradient
def test_out_of_another_dtype(index, dtype):
    out = with_out(index, np.full(GRADIENT_SHAPES[index], 7, dtype), new_outs())
    refused(backops.DTypeError, "out", dtype, "float32", out=out)
    assert all((array == 7).all() for array in out)


@every_gradient
def test_read_only_out(index):
    out = with_out(index, new_outs()[index], new_outs())
    out[index].flags.writeable = False
    refused(backops.LayoutError, "out", "read-only", out=out)
    assert all((array == 7).all() for array in out)


@every_gradient
def test_torch_out_on_another_device(index):
    out = with_out(index, torch.ones(GRADIENT_SHAPES[index], device="meta"), new_outs())
    refused(backops.LayoutError, "out", "meta", out=out)


@pytest.mark.parametrize("value", [[0.0], 1, "out"], ids=repr)
@every_gradient
def test_out_that_is_no_array(index, value):
    refused(backops.DTypeError, "out", out=with_out(index, value))


@pytest.mark.parametrize("length", [0, 1, 2, 4])
def test_out_of_the_wrong_length(length):
    refused((backops.ParamError, backops.DTypeError), "out", "three", out=(None,) * length)


@pytest.mark.parametrize("value", [np.ones(INPUT_SHAPE, np.float32), 1, "out", True], ids=str)
def test_out_that_is_no_tuple(value):
    refused((backops.ParamError, backops.DTypeError), "out", out=value)


@every_gradient
def test_out_of_a_masked_gradient(index):
    mask = tuple(i != index for i in range(3))
    out = with_out(index, new_outs()[index])
    errors = (backops.ParamError, backops.DTypeError)
    refused(errors, "out", "None", output_mask=mask, out=out)
    assert (out[index] == 7).all()


@every_gradient
def test_out_whose_elements_overlap(index):
    shape = GRADIENT_SHAPES[index]
    memory = np.full(1000, 7, np.float32)
    for stride in (0, 4):
        strides = [stride] * len(shape) if len(shape) > 1 else [0]
        overlapping = np.lib.stride_tricks.as_strided(memory, shape, strides)
        refused(backops.LayoutError, "out", "overlap", out=with_out(index, overlapping, new_outs()))
    assert (memory == 7).all()


def test_torch_out_that_is_expanded():
    out = torch.full((1, 4, 5, 6), 7.0).expand(INPUT_SHAPE)
    refused(backops.LayoutError, "out", "overlap", out=(out, None, None))
    assert (out == 7).all()


# Large enough to hold any of the tensors at any of the offsets below.
MEMORY_SIZE = 2000


@pytest.mark.parametrize("offset", [0, 1, -1, "end"])
@every_gradient
@every_tensor
def test_out_that_overlaps_an_input(name, index, offset):
    memory = np.ones(MEMORY_SIZE, np.float32)
    shape, out_shape = SHAPES[name], GRADIENT_SHAPES[index]
    size, out_size = int(np.prod(shape)), int(np.prod(out_shape))
    start = 500
    array = memory[start : start + size].reshape(shape)
    if offset == "end":
        start += size - 1
    else:
        start += offset
    out = memory[start : start + out_size].reshape(out_shape)
    refused(backops.LayoutError, "out", name, **{name: array, "out": with_out(index, out)})
    assert (memory == 1).all()


@pytest.mark.parametrize(("index", "name"), [(0, "input"), (1, "weight")])
def test_out_that_is_an_input(index, name):
    array = GOOD[name].copy()
    refused(backops.LayoutError, "out", name, **{name: array, "out": with_out(index, array)})
    assert (array == 1).all()


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)])
def test_out_that_overlaps_another_out(first, second):
    memory = np.full(MEMORY_SIZE, 7, np.float32)
    sizes = [int(np.prod(shape)) for shape in GRADIENT_SHAPES]
    out = [None, None, None]
    out[first] = memory[: sizes[first]].reshape(GRADIENT_SHAPES[first])
    # They share one element.
    start = sizes[first] - 1
    out[second] = memory[start : start + sizes[second]].reshape(GRADIENT_SHAPES[second])
    refused(backops.LayoutError, "out", out=tuple(out))
    assert (memory == 7).all()


def test_one_array_as_two_outs():
    # Input and weight of the same shape.
    arrays = {
        "input": ones(3, 3, 5, 5),
        "weight": ones(3, 3, 5, 5),
        "grad_output": ones(3, 3, 5, 5),
    }
    both = np.full((3, 3, 5, 5), 7, np.float32)
    refused(backops.LayoutError, "out", **arrays, padding=2, groups=1, out=(both, both, None))
    assert (both == 7).all()


def test_torch_out_that_overlaps_a_numpy_input():
    memory = np.ones(INPUT_SHAPE, np.float32)
    out = (torch.from_numpy(memory), None, None)
    refused(backops.LayoutError, "out", "input", input=memory, out=out)
    assert (memory == 1).all()


# Shapes stand for tensors that are not read: their memory does not matter.


@pytest.mark.parametrize("mask", [(True, False, True), (True, False, False)])
def test_out_may_be_the_memory_of_a_tensor_given_by_shape(mask):
    array = GOOD["input"].copy()
    changes = {"input": array.shape, "output_mask": mask, "out": (array, None, None)}
    assert backops.conv_backward(**{**GOOD, **changes})[0] is array


# After an error


def test_operator_works_after_an_error():
    with pytest.raises(backops.ParamError):
        backops.conv_backward(**{**GOOD, "stride": 0})
    assert backops.conv_backward(**GOOD)[2].tolist() == [60] * 6


def test_nothing_is_printed(capfd):
    for changes in ({"stride": 0}, {"grad_output": None}, {"input": (8, 8)}, {"groups": 5}):
        with pytest.raises(backops.Error):
            backops.conv_backward(**{**GOOD, **changes})
    assert capfd.readouterr() == ("", "")


def test_interrupt_inside_an_argument_is_not_swallowed():
    class Interrupting:
        def __index__(self):
            raise KeyboardInterrupt

    for name in ("stride", "groups"):
        with pytest.raises(KeyboardInterrupt):
            backops.conv_backward(**{**GOOD, name: Interrupting()})


# Plans that are kept

PADDINGS = itertools.count(20)


@pytest.mark.parametrize(
    "change",
    [
        {"grad_output": ones(2, 5, 8, 8)},
        {"grad_output": ones(2, 5, 8, 8, dtype=np.float16)},
        {"input": ones(2, 3, 11, 11, dtype=np.float64)},
        {"weight": ones(5, 3, 3, 3, dtype=np.float16)},
        {"weight": ones(5, 2, 3, 3)},
        {"stride": 0},
        {"out": (ones(2, 3, 11, 10), None, None)},
    ],
    ids=["shape", "half", "input_dtype", "weight_dtype", "channels", "stride", "out"],
)
def test_errors_are_the_same_once_a_plan_is_kept(change):
    # Of a padding that no other call has: the first call finds no plan.
    padding = next(PADDINGS)
    good = {
        "grad_output": ones(2, 5, 9 + 2 * padding, 9 + 2 * padding),
        "input": ones(2, 3, 11, 11),
        "weight": ones(5, 3, 3, 3),
        "padding": padding,
    }
    messages = []
    for _ in range(2):
        with pytest.raises(backops.Error) as caught:
            backops.conv_backward(**{**good, **change})
        messages.append((type(caught.value), str(caught.value)))
        backops.conv_backward(**good)
    assert messages[0] == messages[1]

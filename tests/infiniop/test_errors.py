"""One wrong input for each row of the documented table of errors: its status, nothing written.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import ctypes
import itertools
import math
from ctypes import byref, c_int, c_size_t, c_void_p

import numpy as np
import pytest

from tests.support.infini import (
    HANDLE,
    UNTOUCHED,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool3D,
    AvgPool,
    AvgPool1d,
    AvgPool3d,
    AvgPoolBackward,
    Conv,
    ConvBackward,
    DType,
    Head,
    Status,
    Tensor,
    check,
    create_handle,
    create_stream,
    described,
    infiniop,
    infinirt,
    int64s,
    is_untouched,
)

HUGE = 2**62
NVIDIA = 1
UNSUPPORTED = (DType.F64, DType.I32, DType.F8, DType.INVALID, 99, -1)


def tensor(*shape, strides=None, dtype=DType.F32):
    return Tensor(shape, strides, dtype)


def other_device():
    return ctypes.pointer(Head(NVIDIA, 0))


# Legal problems, from which every case below differs in one way.

LEGAL = {
    AdaptiveAvgPool1d: {"output": tensor(2, 3, 3), "input": tensor(2, 3, 8)},
    AdaptiveAvgPool3D: {
        "y": tensor(2, 3, 3, 4, 5),
        "x": tensor(2, 3, 8, 8, 8),
        "output_size": [3, 4, 5],
    },
    AvgPool: {
        "output": tensor(2, 3, 4, 4),
        "input": tensor(2, 3, 8, 8),
        "kernel": [3, 3],
        "strides": [2, 2],
        "pads": [1, 1],
    },
    AvgPool1d: {
        "output": tensor(2, 3, 4),
        "input": tensor(2, 3, 8),
        "kernel": 3,
        "stride": 2,
        "padding": 1,
    },
    AvgPool3d: {
        "y": tensor(2, 3, 4, 4, 4),
        "x": tensor(2, 3, 8, 8, 8),
        "kernel": [3, 3, 3],
        "stride": [2, 2, 2],
        "padding": [1, 1, 1],
    },
    AvgPoolBackward: {
        "grad_input": tensor(2, 3, 8, 8),
        "grad_output": tensor(2, 3, 4, 4),
        "input": tensor(2, 3, 8, 8),
        "kernel": [3, 3],
        "strides": [2, 2],
        "pads": [1, 1],
    },
    Conv: {
        "y": tensor(2, 6, 4, 4),
        "x": tensor(2, 4, 8, 8),
        "w": tensor(6, 2, 3, 3),
        "b": tensor(6),
        "pads": [1, 1],
        "strides": [2, 2],
        "dilations": [1, 1],
        "n": 2,
    },
    ConvBackward: {
        "grad_output": tensor(2, 6, 4, 4),
        "input": tensor(2, 4, 8, 8),
        "weight": tensor(6, 2, 3, 3),
        "bias": tensor(6),
        "pads": [1, 1],
        "strides": [2, 2],
        "dilations": [1, 1],
        "n": 2,
    },
}
CONVOLUTIONS = (Conv, ConvBackward)
ADAPTIVE_POOLS = (AdaptiveAvgPool1d, AdaptiveAvgPool3D)
FIXED_POOLS = (AvgPool, AvgPool1d, AvgPool3d, AvgPoolBackward)
FORWARD_POOLS = (*ADAPTIVE_POOLS, *FIXED_POOLS[:3])
# What ConvBackward's tensors are called by Conv.
FORWARD_NAMES = {"grad_output": "y", "input": "x", "weight": "w", "bias": "b"}


def tensors_of(operator):
    return [name for name, value in LEGAL[operator].items() if isinstance(value, Tensor)]


def row(operator, what, **changes):
    return pytest.param(operator, changes, id=f"{operator.__name__}: {what}")


def conv_rows(what, **changes):
    """Of both convolutions, in ConvBackward's names."""
    forward = {FORWARD_NAMES.get(name, name): value for name, value in changes.items()}
    yield row(Conv, what, **forward)
    yield row(ConvBackward, what, **changes)


def dtype_rows():
    for operator, legal in LEGAL.items():
        names = tensors_of(operator)
        for name in names:
            shape = legal[name].shape
            for dtype in (*UNSUPPORTED, DType.F16, DType.BF16):
                what = f"{name} of dtype {int(dtype)}"
                yield row(operator, what, **{name: tensor(*shape, dtype=dtype)})
        for dtype in UNSUPPORTED:
            everywhere = {name: tensor(*legal[name].shape, dtype=dtype) for name in names}
            yield row(operator, f"everything of dtype {int(dtype)}", **everywhere)


POOL_SHAPES = {
    "two axes": {"grad_input": (2, 3), "grad_output": (2, 3), "input": (2, 3)},
    "six axes": dict.fromkeys(("grad_input", "grad_output", "input"), (1,) * 6),
    "nine axes": dict.fromkeys(("grad_input", "grad_output", "input"), (1,) * 9),
    "no axes": dict.fromkeys(("grad_input", "grad_output", "input"), ()),
    "fewer axes of grad_output": {"grad_output": (2, 3, 4)},
    "fewer axes of input": {"input": (2, 3, 8)},
    "more axes of grad_input": {"grad_input": (2, 3, 8, 8, 1)},
    "batch of grad_output": {"grad_output": (1, 3, 4, 4)},
    "channels of grad_output": {"grad_output": (2, 4, 4, 4)},
    "height of grad_output": {"grad_output": (2, 3, 5, 4)},
    "width of grad_output": {"grad_output": (2, 3, 4, 3)},
    "batch of grad_input": {"grad_input": (1, 3, 8, 8)},
    "channels of input": {"input": (2, 2, 8, 8)},
    "width of input": {"input": (2, 3, 8, 9)},
    "no batch": {"grad_input": (0, 3, 8, 8), "grad_output": (0, 3, 4, 4), "input": (0, 3, 8, 8)},
    "no channels": {"grad_input": (2, 0, 8, 8), "grad_output": (2, 0, 4, 4), "input": (2, 0, 8, 8)},
    "no width": {"grad_input": (2, 3, 8, 0), "input": (2, 3, 8, 0)},
    "empty grad_output": {"grad_output": (2, 3, 4, 0)},
    "sizes that overflow": {
        "grad_input": (HUGE, 3, 8, 8),
        "grad_output": (HUGE, 3, 4, 4),
        "input": (HUGE, 3, 8, 8),
    },
    "sizes that overflow to a small number": {
        "grad_input": (2**32, 2**32, 8, 8),
        "grad_output": (2**32, 2**32, 4, 4),
        "input": (2**32, 2**32, 8, 8),
    },
    "largest size": {"grad_input": (2, 3, 8, 2**64 - 1), "input": (2, 3, 8, 2**64 - 1)},
    "more bytes than addresses": {
        "grad_input": (2**46, 1, 8, 8),
        "grad_output": (2**46, 1, 4, 4),
        "input": (2**46, 1, 8, 8),
    },
}
CONV_SHAPES = {
    "two axes": {"grad_output": (2, 6), "input": (2, 4), "weight": (6, 2)},
    "six axes": dict.fromkeys(("grad_output", "input", "weight"), (1,) * 6),
    "weight of one axis": {"weight": (6,)},
    "weight without axes": {"weight": ()},
    "fewer axes of input": {"input": (4, 8, 8)},
    "fewer axes of grad_output": {"grad_output": (2, 6, 4)},
    "neither has a batch": {"grad_output": (6, 4, 4), "input": (4, 8, 8)},
    "batch of grad_output": {"grad_output": (1, 6, 4, 4)},
    "channels of grad_output": {"grad_output": (2, 5, 4, 4)},
    "width of grad_output": {"grad_output": (2, 6, 4, 5)},
    "channels of weight": {"weight": (6, 3, 3, 3)},
    "outputs of weight": {"weight": (5, 2, 3, 3)},
    "channels that groups do not divide": {"input": (2, 5, 8, 8)},
    "kernel beyond the input": {"weight": (6, 2, 11, 3)},
    "bias of two axes": {"bias": (6, 1)},
    "bias of another length": {"bias": (4,)},
    "empty bias": {"bias": (0,)},
    "no batch": {"grad_output": (0, 6, 4, 4), "input": (0, 4, 8, 8)},
    "no height": {"input": (2, 4, 0, 8)},
    "no kernel": {"weight": (6, 2, 0, 3)},
    "sizes that overflow": {"grad_output": (HUGE, 6, 4, 4), "input": (HUGE, 4, 8, 8)},
    "weight that overflows": {"weight": (HUGE, 2, 3, 3)},
    "largest size": {"input": (2**64 - 1, 4, 8, 8)},
}


def changed(values, axis, value):
    """A copy with that value at an axis."""
    copy = list(values)
    copy[axis] = value
    return tuple(copy)


def forward_pool_rows(operator):
    """Of the two tensors of a forward pooling operator, one wrong, or both."""
    legal = {name: LEGAL[operator][name].shape for name in tensors_of(operator)}
    output, input = legal
    for name, shape in legal.items():
        wrong = {
            "no axes": (),
            "an axis less": shape[:-1],
            "an axis more": (*shape, 1),
            "batch": changed(shape, 0, 3),
            "channels": changed(shape, 1, 4),
        }
        wrong |= {f"size 0 of axis {axis}": changed(shape, axis, 0) for axis in range(len(shape))}
        if operator is not AdaptiveAvgPool1d and (name == output or operator in FIXED_POOLS):
            wrong["width"] = changed(shape, -1, shape[-1] + 3)
        if (operator, name) == (AvgPool, "input"):
            del wrong["an axis more"]  # parameters would have to have one more, too
        for what, sizes in wrong.items():
            yield row(operator, f"{what} of {name}", **{name: tensor(*sizes)})
    for what, begin in {
        "sizes that overflow": (HUGE,),
        "sizes that overflow to a small number": (2**32, 2**32),
        "largest size": (2**64 - 1,),
        "more bytes than addresses": (2**46,),
    }.items():
        sizes = {name: (*begin, *shape[len(begin) :]) for name, shape in legal.items()}
        yield row(operator, what, **tensors(sizes))
    for rank in {AvgPool: (0, 4, 7)}.get(operator, (0, 2, 4)):
        sizes = {output: (2, 3, *[4] * rank), input: (2, 3, *[8] * rank)}
        yield row(operator, f"{rank + 2} axes", **tensors(sizes))


def tensors(shapes):
    return {name: tensor(*shape) for name, shape in shapes.items()}


def shape_rows():
    for operator in FORWARD_POOLS:
        yield from forward_pool_rows(operator)
    for size in (0, 6, -1, 2**62):
        yield row(AdaptiveAvgPool3D, f"output_size {size}", output_size=[3, 4, size])
    yield row(AvgPool, "kernel beyond the input", kernel=[11, 3])
    yield row(AvgPool1d, "kernel beyond the input", kernel=11)
    yield row(AvgPool3d, "kernel beyond the input", kernel=[3, 3, 11])
    for what, shapes in POOL_SHAPES.items():
        yield row(AvgPoolBackward, what, **tensors(shapes))
    for what, shapes in CONV_SHAPES.items():
        yield from conv_rows(what, **tensors(shapes))
    yield row(AvgPoolBackward, "kernel beyond the input", kernel=[11, 3])
    yield from conv_rows("dilation beyond the input", dilations=[1, 5])
    yield from conv_rows("more groups than channels", n=7)


def window_rows(operator):
    """Kernel, stride and padding of fixed windows, each wrong along the last axis."""
    legal = LEGAL[operator]
    kernel, stride, padding = [name for name in legal if name not in tensors_of(operator)]

    def with_last(name, value):
        values = legal[name]
        return {name: [*values[:-1], value] if isinstance(values, list) else value}

    for value in (0, -1, -(2**63)):
        for name in (kernel, stride):
            yield row(operator, f"{name} {value}", **with_last(name, value))
    yield row(operator, "padding -1", **with_last(padding, -1))
    yield row(operator, "padding beyond half the kernel", **with_last(padding, 2))
    yield row(operator, "kernel 2**62", **with_last(kernel, 2**62))
    if isinstance(legal[stride], list):
        changes = with_last(kernel, 0) | {stride: None}
        yield row(operator, "default stride of a kernel of 0", **changes)


def param_rows():
    for operator in FIXED_POOLS:
        yield from window_rows(operator)
    for value in (0, -1, -(2**63)):
        for name in ("strides", "dilations"):
            yield from conv_rows(f"{name} {value}", **{name: [value, 1]})
        yield from conv_rows(f"groups {value}", n=value)
    yield from conv_rows("padding -1", pads=[1, -1])
    yield from conv_rows("stride 2**62", strides=[2**62, 1])


OVERLAPS = {
    "zero strides": (0, 0, 0, 0),
    "one zero stride": (192, 64, 0, 1),
    "rows that overlap": (192, 64, 7, 1),
    "axes with the same stride": (64, 64, 8, 1),
    "rows that meet backwards": (192, 64, -7, 1),
}
BEYOND_MEMORY = {
    "stride 2**62": (2**62, 64, 8, 1),
    "stride -2**63": (-(2**63), 64, 8, 1),
    "strides that overflow together": (2**46, 2**46, 8, 1),
}


def forward_pool_stride_rows(operator):
    legal = {name: LEGAL[operator][name].shape for name in tensors_of(operator)}
    output = next(iter(legal))

    def strided(name, axis, stride):
        shape = legal[name]
        contiguous = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return {name: tensor(*shape, strides=changed(contiguous, axis, stride))}

    shape = legal[output]
    yield row(operator, "zero strides", **{output: tensor(*shape, strides=(0,) * len(shape))})
    for axis in range(len(shape)):
        yield row(operator, f"zero stride of axis {axis}", **strided(output, axis, 0))
    for stride in (shape[-1] - 1, 1 - shape[-1]):
        yield row(operator, f"rows {stride} apart", **strided(output, -2, stride))
    for name, stride in itertools.product(legal, (2**62, -(2**63))):
        yield row(operator, f"stride {stride} of {name}", **strided(name, 0, stride))


def stride_rows():
    for operator in FORWARD_POOLS:
        yield from forward_pool_stride_rows(operator)
    for what, strides in (OVERLAPS | BEYOND_MEMORY).items():
        yield row(AvgPoolBackward, what, grad_input=tensor(2, 3, 8, 8, strides=strides))
        # The gradient of the input is laid out like the input.
        yield row(ConvBackward, f"input, {what}", input=tensor(2, 4, 8, 8, strides=strides))
        yield row(Conv, what, y=tensor(2, 6, 4, 4, strides=strides))
    for what, strides in BEYOND_MEMORY.items():
        grad_output = tensor(2, 3, 4, 4, strides=strides)
        yield row(AvgPoolBackward, f"grad_output, {what}", grad_output=grad_output)
        yield row(Conv, f"x, {what}", x=tensor(2, 4, 8, 8, strides=strides))
    weight = tensor(6, 2, 3, 3, strides=(0, 0, 0, 0))
    yield row(ConvBackward, "weight of zero strides", weight=weight)
    yield row(ConvBackward, "bias of zero stride", bias=tensor(6, strides=(0,)))


def null_rows():
    for operator, names in (
        (AdaptiveAvgPool1d, ("output", "input")),
        (AdaptiveAvgPool3D, ("y", "x", "output_size")),
        (AvgPool, ("output", "input", "kernel")),
        (AvgPool1d, ("output", "input")),
        (AvgPool3d, ("y", "x", "kernel")),
        (AvgPoolBackward, ("grad_input", "grad_output", "input", "kernel")),
        (Conv, ("y", "x", "w")),
        (ConvBackward, ("grad_output", "input", "weight")),
    ):
        for name in (*names, "handle"):
            yield row(operator, f"no {name}", **{name: None})


def device_rows():
    for operator in LEGAL:
        yield row(operator, "another device", handle=other_device())


TABLE = [
    pytest.param(status, *given.values, id=f"{status.name} {given.id}")
    for status, rows in (
        (Status.BAD_PARAM, null_rows()),
        (Status.BAD_TENSOR_DTYPE, dtype_rows()),
        (Status.BAD_TENSOR_SHAPE, shape_rows()),
        (Status.BAD_PARAM, param_rows()),
        (Status.BAD_TENSOR_STRIDES, stride_rows()),
        (Status.DEVICE_TYPE_NOT_SUPPORTED, device_rows()),
    )
    for given in rows
]


@pytest.mark.parametrize(("expected", "operator", "changes"), TABLE)
def test_create_refuses(expected, operator, changes):
    status, desc = operator.create(**(LEGAL[operator] | changes))
    assert status == expected
    assert is_untouched(desc)


every_operator = pytest.mark.parametrize("operator", LEGAL, ids=lambda cls: cls.__name__)


@every_operator
def test_create_takes_the_problem_that_the_table_starts_from(operator):
    operator(**LEGAL[operator]).destroy()
    assert (UNTOUCHED.device, UNTOUCHED.device_id) == (-1, -1)


@every_operator
def test_create_refuses_a_null_out_parameter(operator):
    legal = LEGAL[operator]
    with described(*(legal[name] for name in tensors_of(operator))) as descs:
        parameters = [
            int64s(value) if isinstance(value, list) else value
            for value in legal.values()
            if not isinstance(value, Tensor)
        ]
        more = [False] if operator in (AvgPool, AvgPoolBackward) else []
        status = operator.call(
            "infiniopCreate{}Descriptor", HANDLE, None, *descs, *parameters, *more
        )
    assert status == Status.BAD_PARAM


@pytest.mark.parametrize("operator", [Conv, *FORWARD_POOLS], ids=lambda cls: cls.__name__)
def test_what_is_only_read_may_overlap_itself(operator):
    legal = LEGAL[operator]
    for name in tensors_of(operator)[1:]:
        shape = legal[name].shape
        operator(**(legal | {name: tensor(*shape, strides=(0,) * len(shape))})).destroy()


# Computing


class Run:
    """A legal run, of which one argument is replaced."""

    def __init__(self, operator, outputs, inputs, too_small):
        self.operator = operator(**LEGAL[operator])
        self.outputs = {name: np.full(shape, 7, np.float32) for name, shape in outputs.items()}
        self.inputs = {name: np.ones(shape, np.float32) for name, shape in inputs.items()}
        self.too_small = too_small


def run_of(operator):
    shapes = {name: LEGAL[operator][name].shape for name in tensors_of(operator)}
    if operator is ConvBackward:
        grads = ("grad_input", "grad_weight", "grad_bias")
        outputs = {name: shapes[name.removeprefix("grad_")] for name in grads}
        inputs = {name: shapes[name] for name in ("grad_output", "input", "weight")}
    else:
        first = next(iter(shapes))
        outputs = {first: shapes.pop(first)}
        inputs = shapes
    too_small = Status.INSUFFICIENT_WORKSPACE if operator in CONVOLUTIONS else Status.BAD_PARAM
    return Run(operator, outputs, inputs, too_small)


@pytest.fixture(params=LEGAL, ids=lambda cls: cls.__name__)
def run(request):
    made = run_of(request.param)
    yield made
    made.operator.destroy()


def compute(run, *, desc=None, size=None, **addresses):
    """The status of a run with these addresses replaced."""
    workspace = run.operator.new_workspace()
    given = {"workspace": workspace.ctypes.data}
    given |= {name: array.ctypes.data for name, array in (run.outputs | run.inputs).items()}
    given |= addresses
    size = run.operator.workspace_size if size is None else size
    desc = run.operator.desc if desc is None else desc
    return run.operator.call(
        "infiniop{}", desc, given.pop("workspace"), size, *given.values(), None
    )


def assert_nothing_written(run):
    assert all((array == 7).all() for array in run.outputs.values())
    assert all((array == 1).all() for array in run.inputs.values())


def test_legal_run_writes(run):
    check(compute(run))
    assert not any((array == 7).all() for array in run.outputs.values())


def test_compute_refuses_null_pointers(run):
    for name in ("workspace", *run.outputs, *run.inputs):
        assert compute(run, **{name: None}) == Status.BAD_PARAM, name
    assert compute(run, desc=ctypes.POINTER(Head)()) == Status.BAD_PARAM
    assert_nothing_written(run)


def test_compute_refuses_a_small_workspace(run):
    size = run.operator.workspace_size
    assert size > 0
    for smaller in (size - 1, 1, 0):
        assert compute(run, size=smaller) == run.too_small
    assert compute(run, size=0, workspace=None) == run.too_small
    assert_nothing_written(run)


def test_descriptor_of_another_device_is_refused(run):
    desc = run.operator.desc
    size = c_size_t(99)
    desc.contents.device = NVIDIA
    refused = Status.DEVICE_TYPE_NOT_SUPPORTED
    assert compute(run) == refused
    assert run.operator.call("infiniopGet{}WorkspaceSize", desc, byref(size)) == refused
    assert run.operator.call("infiniopDestroy{}Descriptor", desc) == refused
    desc.contents.device = 0
    assert size.value == 99
    assert_nothing_written(run)
    check(compute(run))


def test_memory_that_a_result_would_share_is_refused(run):
    addresses = {name: array.ctypes.data for name, array in (run.outputs | run.inputs).items()}
    for output in run.outputs:
        for other, address in addresses.items():
            # The forward input of pooling is not read.
            unread = isinstance(run.operator, AvgPoolBackward) and other == "input"
            if other != output and not unread:
                assert compute(run, **{output: address}) == Status.BAD_PARAM, (output, other)
                assert compute(run, **{output: address + 8}) == Status.BAD_PARAM, (output, other)
    assert_nothing_written(run)


def test_workspace_inside_a_tensor_is_refused(run):
    for name, array in (run.outputs | run.inputs).items():
        if isinstance(run.operator, AvgPoolBackward) and name == "input":
            continue
        inside = array.ctypes.data + array.nbytes - 1
        assert compute(run, workspace=inside) == Status.BAD_PARAM, name
    assert_nothing_written(run)


def test_result_between_the_elements_of_another_tensor_is_taken():
    # Two images of interleaved rows: no element in common, though their ranges overlap.
    memory = np.full((2, 8), 7, np.float32)
    grad_input, grad_output = memory[:, ::2], memory[:, 1::4]
    strided = Tensor((1, 2, 4), (16, 8, 2)), Tensor((1, 2, 2), (16, 8, 4))
    operator = AvgPoolBackward(*strided, Tensor((1, 2, 4)), [2], None, None)
    operator.run(grad_input.ctypes.data, grad_output.ctypes.data, grad_output.ctypes.data)
    operator.destroy()
    assert (grad_input == 3.5).all()
    assert (memory[:, 1::2] == 7).all()


def test_descriptors_of_other_operators_are_refused(run):
    size = c_size_t(99)
    for other in LEGAL:
        if isinstance(run.operator, other):
            continue
        made = other(**LEGAL[other])
        wrong = made.desc
        for status in (
            run.operator.call("infiniopGet{}WorkspaceSize", wrong, byref(size)),
            run.operator.call("infiniopDestroy{}Descriptor", wrong),
            compute(run, desc=wrong),
        ):
            assert status == Status.BAD_PARAM, other
        made.destroy()
    assert size.value == 99
    assert_nothing_written(run)


def test_workspace_size_needs_its_pointers(run):
    size = c_size_t(99)
    ask = "infiniopGet{}WorkspaceSize"
    assert run.operator.call(ask, None, byref(size)) == Status.BAD_PARAM
    assert run.operator.call(ask, run.operator.desc, None) == Status.BAD_PARAM
    assert size.value == 99


@pytest.mark.parametrize(("operator", "bias"), [(Conv, "b"), (ConvBackward, "grad_bias")])
def test_without_bias_its_pointer_is_ignored(operator, bias):
    run = run_of(operator)
    without = operator(**(LEGAL[operator] | {bias.removeprefix("grad_"): None}))
    run.operator.destroy()
    run.operator = without
    check(compute(run, **{bias: None}))
    check(compute(run, **{bias: 1}))  # no address of anything
    assert ((run.outputs | run.inputs)[bias] == (7 if bias in run.outputs else 1)).all()
    without.destroy()


# Handles and tensor descriptors


def test_nothing_to_destroy_is_fine():
    check(infiniop.infiniopDestroyHandle(None))
    check(infiniop.infiniopDestroyTensorDescriptor(None))
    for operator in LEGAL:
        check(operator.call("infiniopDestroy{}Descriptor", None))


def test_handle_and_descriptors_begin_with_the_device():
    handle = create_handle()
    assert (handle.contents.device, handle.contents.device_id) == (0, 0)
    made = [operator(**legal, handle=handle) for operator, legal in LEGAL.items()]
    check(infiniop.infiniopDestroyHandle(handle))  # not needed any more
    for operator in made:
        assert (operator.desc.contents.device, operator.desc.contents.device_id) == (0, 0)
        operator.destroy()


def test_descriptors_tell_their_device(run):
    of_type, of_id = (
        infiniop.infiniopGetDescriptorDeviceType,
        infiniop.infiniopGetDescriptorDeviceId,
    )
    desc, told = run.operator.desc, c_int(99)
    assert (of_type(None, byref(told)), of_id(None, byref(told))) == (Status.BAD_PARAM,) * 2
    assert (of_type(desc, None), of_id(desc, None)) == (Status.BAD_PARAM,) * 2
    assert told.value == 99
    for device in (NVIDIA, 0):  # of any device: nothing else of the descriptor is read
        desc.contents.device = device
        check(of_type(desc, byref(told)))
        assert told.value == device
        check(of_id(desc, byref(told)))
        assert told.value == 0


def test_handle_needs_its_pointer():
    assert infiniop.infiniopCreateHandle(None) == Status.NULL_POINTER


def test_tensor_descriptor_refuses_null_and_absurd_ndim():
    create = infiniop.infiniopCreateTensorDescriptor
    desc = c_void_p(99)
    shape = (c_size_t * 4)(1, 2, 3, 4)
    assert create(None, 4, shape, None, DType.F32) == Status.NULL_POINTER
    assert create(byref(desc), 4, None, None, DType.F32) == Status.NULL_POINTER
    for ndim in (65, 2**31, 2**63, 2**64 - 1):
        assert create(byref(desc), ndim, shape, None, DType.F32) == Status.BAD_TENSOR_SHAPE
    assert desc.value == 99


# The runtime


def test_devices_that_are_not_there():
    device, device_id = c_int(-1), c_int(-1)
    for other in (*range(1, 11), 11, 99, -1):
        refused = infinirt.infinirtSetDevice(other, 0)
        assert refused == Status.DEVICE_TYPE_NOT_SUPPORTED
    for number in (1, -1, 2**31 - 1):
        assert infinirt.infinirtSetDevice(0, number) == Status.DEVICE_NOT_FOUND
    check(infinirt.infinirtGetDevice(byref(device), byref(device_id)))
    assert (device.value, device_id.value) == (0, 0)


def test_memory_of_devices_that_are_not_there():
    free, total = c_size_t(99), c_size_t(99)
    ask = infinirt.infinirtGetMemInfo
    for other in (*range(1, 11), 11, -1):
        assert ask(other, 0, byref(free), byref(total)) == Status.DEVICE_TYPE_NOT_SUPPORTED
    for number in (1, -1):
        assert ask(0, number, byref(free), byref(total)) == Status.DEVICE_NOT_FOUND
    assert ask(0, 0, None, byref(total)) == Status.NULL_POINTER
    assert ask(0, 0, byref(free), None) == Status.NULL_POINTER
    assert (free.value, total.value) == (99, 99)


def test_device_counts_refuse_what_is_no_device():
    count = c_int(99)
    for other in (11, 99, -1):
        refused = infinirt.infinirtGetDeviceCount(other, byref(count))
        assert refused == Status.DEVICE_TYPE_NOT_SUPPORTED
    assert count.value == 99
    assert infinirt.infinirtGetDeviceCount(0, None) == Status.NULL_POINTER
    assert infinirt.infinirtGetAllDeviceCount(None) == Status.NULL_POINTER


def test_runtime_refuses_null_pointers():
    memory = (ctypes.c_char * 8)()
    address = ctypes.addressof(memory)
    event, milliseconds = c_void_p(), ctypes.c_float(99)
    check(infinirt.infinirtEventCreate(byref(event)))
    for status in (
        infinirt.infinirtStreamCreate(None),
        infinirt.infinirtStreamWaitEvent(None, None),
        infinirt.infinirtEventCreate(None),
        infinirt.infinirtEventCreateWithFlags(None, 0),
        infinirt.infinirtEventRecord(None, None),
        infinirt.infinirtEventQuery(None, byref(c_int())),
        infinirt.infinirtEventQuery(event, None),
        infinirt.infinirtEventSynchronize(None),
        infinirt.infinirtEventElapsedTime(None, event, event),
        infinirt.infinirtEventElapsedTime(byref(milliseconds), None, event),
        infinirt.infinirtEventElapsedTime(byref(milliseconds), event, None),
        infinirt.infinirtMalloc(None, 8),
        infinirt.infinirtMallocHost(None, 8),
        infinirt.infinirtMallocAsync(None, 8, None),
        infinirt.infinirtMemcpy(None, address, 8, 0),
        infinirt.infinirtMemcpy(address, None, 8, 0),
        infinirt.infinirtMemcpyAsync(address, None, 8, 0, None),
        infinirt.infinirtMemset(None, 0, 8),
        infinirt.infinirtMemsetAsync(None, 0, 8, None),
    ):
        assert status == Status.NULL_POINTER
    assert milliseconds.value == 99
    check(infinirt.infinirtEventDestroy(event))
    for nothing in ("EventDestroy", "StreamDestroy", "StreamSynchronize", "Free", "FreeHost"):
        check(getattr(infinirt, f"infinirt{nothing}")(None))
    check(infinirt.infinirtFreeAsync(None, None))
    check(infinirt.infinirtMemcpy(None, None, 0, 0))
    check(infinirt.infinirtMemset(None, 0, 0))


def test_runtime_refuses_unknown_kinds_and_flags():
    memory = (ctypes.c_char * 8)()
    address = ctypes.addressof(memory)
    for kind in (-1, 4, 99):
        assert infinirt.infinirtMemcpy(address, address, 8, kind) == Status.BAD_PARAM
        assert infinirt.infinirtMemcpyAsync(address, address, 8, kind, None) == Status.BAD_PARAM
    event = c_void_p(99)
    assert infinirt.infinirtEventCreateWithFlags(byref(event), 4) == Status.BAD_PARAM
    assert event.value == 99


@pytest.mark.parametrize("size", [2**47 + 1, 2**63, 2**64 - 4096, 2**64 - 1])
@pytest.mark.parametrize("stream", ["none", "queued"])
def test_copies_and_fills_that_no_memory_can_hold_are_refused(size, stream):
    memory = np.full(64, 7, np.uint8)
    address = memory.ctypes.data
    last = 2**64 - 64  # of all addresses
    queue = create_stream() if stream == "queued" else None
    copy, fill = infinirt.infinirtMemcpyAsync, infinirt.infinirtMemsetAsync
    for status in (
        copy(address, address, size, 0, queue),
        copy(last, address, 64, 0, queue),
        copy(address, last, 64, 0, queue),
        fill(address, 0, size, queue),
        fill(last, 0, 64, queue),
        infinirt.infinirtMemcpy(address, address, size, 0),
        infinirt.infinirtMemset(address, 0, size),
    ):
        assert status == Status.BAD_PARAM
    check(infinirt.infinirtStreamDestroy(queue))
    assert (memory == 7).all()


@pytest.mark.parametrize("size", [2**47, 2**63, 2**64 - 64, 2**64 - 1])
@pytest.mark.parametrize("name", ["Malloc", "MallocHost", "MallocAsync"])
def test_memory_that_is_not_there_is_a_status(name, size):
    memory = c_void_p(99)
    more = (None,) if name == "MallocAsync" else ()
    status = getattr(infinirt, f"infinirt{name}")(byref(memory), size, *more)
    assert status == Status.INTERNAL_ERROR
    assert memory.value == 99

"""`backops.infiniop`: the documented names from Python, on arrays of every framework."""

import inspect
import re
import weakref

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import backops
from backops import infiniop
from backops.infiniop import Device, DType, MemcpyKind, Status
from tests.support.arrays import to_torch
from tests.support.conv_cases import empty_results, find_conv_case, make_arrays
from tests.support.conv_compare import assert_exact
from tests.support.dlpack import DLPackOnly
from tests.support.infini import SIGNATURES
from tests.support.processes import run_python

FUNCTIONS = [name for names in SIGNATURES.values() for name in names]


def describe(shape, strides=None, dtype=DType.F32):
    desc, status = infiniop.infiniopCreateTensorDescriptor(len(shape), shape, strides, dtype)
    assert status == Status.SUCCESS
    return desc


@pytest.fixture(scope="module")
def handle():
    made, status = infiniop.infiniopCreateHandle()
    assert status is Status.SUCCESS
    yield made
    assert infiniop.infiniopDestroyHandle(made) == Status.SUCCESS


@pytest.fixture
def pool(handle):
    """An operator from (1, 1, 2) to (1, 1, 4), and the size of its workspace."""
    large, small = describe((1, 1, 4)), describe((1, 1, 2))
    desc, status = infiniop.infiniopCreateAvgPoolBackwardDescriptor(
        handle, large, small, large, [2], None, None, False
    )
    assert status == Status.SUCCESS
    size, status = infiniop.infiniopGetAvgPoolBackwardWorkspaceSize(desc)
    assert status == Status.SUCCESS
    yield desc, size
    assert infiniop.infiniopDestroyAvgPoolBackwardDescriptor(desc) == Status.SUCCESS
    for made in (large, small):
        assert infiniop.infiniopDestroyTensorDescriptor(made) == Status.SUCCESS


# Names


def test_every_documented_function_is_there():
    for name in FUNCTIONS:
        assert callable(getattr(infiniop, name)), name


def test_parameters_have_the_documented_names_and_order():
    """As the headers say them; out-pointers are return values."""
    text = "".join(path.read_text() for path in (infiniop.root() / "include").rglob("*.h"))
    for name in FUNCTIONS:
        declared = re.search(rf"\b{name}\((.*?)\);", text, re.DOTALL).group(1)
        names = re.findall(r"(\w+)(?=,|$)", declared.replace("void", "", declared == "void"))
        values = {"count_array", "count", "size", "free_bytes", "total_bytes"}
        out = values if "Get" in name else set()
        out |= {n for n in names if n.endswith("_ptr")}
        wanted = [n for n in names if n not in out]
        assert list(inspect.signature(getattr(infiniop, name)).parameters) == wanted, name


def test_enums_have_their_documented_names_too():
    assert infiniop.INFINI_STATUS_BAD_PARAM is Status.BAD_PARAM
    assert infiniop.INFINI_DEVICE_CPU is Device.CPU
    assert infiniop.INFINI_DTYPE_BF16 is DType.BF16
    assert infiniop.INFINIRT_MEMCPY_D2H is MemcpyKind.D2H
    assert infiniop.INFINI_DEVICE_TYPE_COUNT == 11
    with pytest.raises(AttributeError, match="INFINI_STATUS_NONSENSE"):
        _ = infiniop.INFINI_STATUS_NONSENSE


def test_import_backops_does_not_load_the_libraries():
    done = run_python(
        """
import sys, backops
print("backops.infiniop" in sys.modules, "libinfini" in open("/proc/self/maps").read())
import backops.infiniop
print("backops.infiniop" in sys.modules, "libinfini" in open("/proc/self/maps").read())
"""
    )
    assert done.stdout.split() == ["False", "False", "True", "True"]


def test_module_loads_no_framework():
    done = run_python(
        """
import sys, backops.infiniop
print({"torch", "jax"} & set(sys.modules))
"""
    )
    assert done.stdout.strip() == "set()"


# Values first, the status last


def test_runtime_returns_values_first():
    assert infiniop.infinirtInit() is Status.SUCCESS
    assert infiniop.infinirtGetAllDeviceCount() == ([1] + [0] * 10, Status.SUCCESS)
    assert infiniop.infinirtGetDeviceCount(Device.CPU) == (1, Status.SUCCESS)
    assert infiniop.infinirtGetDeviceCount(99) == (None, Status.DEVICE_TYPE_NOT_SUPPORTED)
    assert infiniop.infinirtSetDevice(Device.CPU, 0) == Status.SUCCESS
    assert infiniop.infinirtSetDevice(Device.NVIDIA, 0) == Status.DEVICE_TYPE_NOT_SUPPORTED
    assert infiniop.infinirtGetDevice() == (Device.CPU, 0, Status.SUCCESS)
    free, total, status = infiniop.infinirtGetMemInfo(Device.CPU, 0)
    assert (0 < free < total, status) == (True, Status.SUCCESS)
    assert infiniop.infinirtGetMemInfo(Device.CPU, 1) == (None, None, Status.DEVICE_NOT_FOUND)
    assert infiniop.infinirtDeviceSynchronize() == Status.SUCCESS


def test_descriptors_tell_their_device(pool):
    desc, _ = pool
    assert infiniop.infiniopGetDescriptorDeviceType(desc) == (Device.CPU, Status.SUCCESS)
    assert infiniop.infiniopGetDescriptorDeviceId(desc) == (0, Status.SUCCESS)
    assert infiniop.infiniopGetDescriptorDeviceType(None) == (None, Status.BAD_PARAM)
    assert infiniop.infiniopGetDescriptorDeviceId(None) == (None, Status.BAD_PARAM)


def test_memory_stream_and_events_from_python():
    stream, status = infiniop.infinirtStreamCreate()
    assert status == Status.SUCCESS
    start, end = (infiniop.infinirtEventCreate()[0] for _ in range(2))
    untimed, status = infiniop.infinirtEventCreateWithFlags(infiniop.EventFlags.DISABLE_TIMING)
    assert status == Status.SUCCESS
    memory, status = infiniop.infinirtMallocAsync(400, stream)
    assert status == Status.SUCCESS
    source, target = np.arange(100, dtype=np.float32), torch.zeros(100)
    kind = MemcpyKind.H2D
    for status in (
        infiniop.infinirtEventRecord(start, stream),
        infiniop.infinirtMemsetAsync(memory, 1, 400, stream),
        infiniop.infinirtMemcpyAsync(memory, source, 400, kind, stream),
        infiniop.infinirtMemcpyAsync(target, memory, 400, MemcpyKind.D2H, stream),
        infiniop.infinirtFreeAsync(memory, stream),
        infiniop.infinirtEventRecord(end, stream),
        infiniop.infinirtStreamWaitEvent(stream, end),
        infiniop.infinirtEventSynchronize(end),
        infiniop.infinirtStreamSynchronize(stream),
    ):
        assert status == Status.SUCCESS
    assert (target.numpy() == source).all()
    assert infiniop.infinirtEventQuery(end) == (infiniop.EventStatus.COMPLETE, Status.SUCCESS)
    milliseconds, status = infiniop.infinirtEventElapsedTime(start, end)
    assert (milliseconds > 0, status) == (True, Status.SUCCESS)
    assert infiniop.infinirtEventElapsedTime(start, untimed) == (None, Status.BAD_PARAM)
    for event in (start, end, untimed):
        assert infiniop.infinirtEventDestroy(event) == Status.SUCCESS
    assert infiniop.infinirtStreamDestroy(stream) == Status.SUCCESS


def test_plain_memory_from_python():
    for allocate, free in (
        (infiniop.infinirtMalloc, infiniop.infinirtFree),
        (infiniop.infinirtMallocHost, infiniop.infinirtFreeHost),
    ):
        memory, status = allocate(16)
        assert status == Status.SUCCESS
        assert infiniop.infinirtMemset(memory, 7, 16) == Status.SUCCESS
        target = bytearray(16)
        assert infiniop.infinirtMemcpy(target, memory, 16, MemcpyKind.D2H) == Status.SUCCESS
        assert target == b"\x07" * 16
        assert free(memory) == Status.SUCCESS
    assert infiniop.infinirtMalloc(2**63) == (None, Status.INTERNAL_ERROR)


# Operators


def expected_pool(grad):
    return np.repeat(grad, 2, axis=-1) / 2


@pytest.mark.parametrize("make", [np.array, torch.tensor, jnp.array, DLPackOnly])
def test_arrays_of_every_framework_are_read(make, pool):
    desc, size = pool
    values = np.array([[[2, 6]]], np.float32)
    grad_output, x = make(values), make(np.zeros((1, 1, 4), np.float32))
    out = np.empty((1, 1, 4), np.float32)
    workspace = np.empty(size, np.uint8)
    status = infiniop.infiniopAvgPoolBackward(desc, workspace, size, out, grad_output, x, None)
    assert status == Status.SUCCESS
    assert (out == expected_pool(values)).all()


def test_addresses_and_arrays_may_be_mixed(pool):
    desc, size = pool
    values = torch.tensor([[[2.0, 6.0]]])
    out = torch.empty(1, 1, 4)
    workspace, status = infiniop.infinirtMalloc(size)
    assert status == Status.SUCCESS
    status = infiniop.infiniopAvgPoolBackward(
        desc, workspace, size, out.data_ptr(), values, values.data_ptr(), None
    )
    assert status == Status.SUCCESS
    assert (out.numpy() == expected_pool(values.numpy())).all()
    assert infiniop.infinirtFree(workspace) == Status.SUCCESS


def test_half_precision_may_come_as_plain_bits(handle):
    large, small = (describe(shape, dtype=DType.BF16) for shape in ((1, 1, 4), (1, 1, 2)))
    desc, status = infiniop.infiniopCreateAvgPoolBackwardDescriptor(
        handle, large, small, large, [2], None, None, False
    )
    assert status == Status.SUCCESS
    size, _ = infiniop.infiniopGetAvgPoolBackwardWorkspaceSize(desc)
    bits = np.array([[[0x4000, 0x4000]]], np.uint16)  # 2.0
    out = np.zeros((1, 1, 4), np.uint16)
    workspace = np.empty(size, np.uint8)
    status = infiniop.infiniopAvgPoolBackward(desc, workspace, size, out, bits, out, None)
    assert status == Status.SUCCESS
    assert (out == 0x3F80).all()  # 1.0
    assert infiniop.infiniopDestroyAvgPoolBackwardDescriptor(desc) == Status.SUCCESS


FORWARD_POOLS = {
    "AvgPool": ((1, 1, 3), (1, 1, 8), ([4], [2], None, False)),
    "AvgPool1d": ((1, 1, 3), (1, 1, 8), (4, 2, 0)),
    "AvgPool3d": ((1, 1, 3, 3, 3), (1, 1, 8, 8, 8), ([4, 4, 4], [2, 2, 2], [0, 0, 0])),
    "AdaptiveAvgPool1d": ((1, 1, 4), (1, 1, 8), ()),
    "AdaptiveAvgPool3D": ((1, 1, 4, 4, 4), (1, 1, 8, 8, 8), ([4, 4, 4],)),
}


@pytest.mark.parametrize("name", FORWARD_POOLS)
@pytest.mark.parametrize("with_stream", [True, False])
def test_forward_pooling_from_python(handle, name, with_stream):
    small, large, parameters = FORWARD_POOLS[name]
    create, get_workspace_size, compute, destroy = (
        getattr(infiniop, f"infiniop{pattern.format(name)}")
        for pattern in ("Create{}Descriptor", "Get{}WorkspaceSize", "{}", "Destroy{}Descriptor")
    )
    descs = describe(small), describe(large)
    desc, status = create(handle, *descs, *parameters)
    assert status == Status.SUCCESS
    size, status = get_workspace_size(desc)
    assert status == Status.SUCCESS
    stream = infiniop.infinirtStreamCreate()[0] if with_stream else None
    source = np.broadcast_to(np.arange(8, dtype=np.float32), large).copy()
    out, workspace = np.zeros(small, np.float32), np.empty(size, np.uint8)
    assert compute(desc, workspace, size, out, to_torch(source), stream) == Status.SUCCESS
    assert destroy(desc) == Status.SUCCESS
    assert infiniop.infinirtStreamDestroy(stream) == Status.SUCCESS
    expected = [0.5, 2.5, 4.5, 6.5] if "Adaptive" in name else [1.5, 3.5, 5.5]
    assert (out == np.array(expected, np.float32)).all()
    assert create(handle, descs[0], None, *parameters) == (None, Status.BAD_PARAM)


def test_numbers_by_value_are_checked(handle):
    small, large = describe((1, 1, 3)), describe((1, 1, 8))
    create = infiniop.infiniopCreateAvgPool1dDescriptor
    for wrong in ((0, 2, 0), (4, 0, 0), (-4, 2, 0), (4, -2, 0), (4, 2, -1), (4, 2, 3)):
        assert create(handle, small, large, *wrong) == (None, Status.BAD_PARAM), wrong
    for name, wrong in {
        "kernel_size": (2**64 + 4, 2, 0),
        "stride": (4, 2**64 + 2, 0),
        "padding": (4, 2, -(2**63) - 1),
    }.items():
        with pytest.raises(backops.ParamError, match=f"{name} is"):
            create(handle, small, large, *wrong)


@pytest.mark.parametrize("with_bias", [True, False])
def test_convolution_from_python(handle, with_bias):
    case = find_conv_case("asymmetric_groups")
    arrays = make_arrays(case, "float32", kind="integer")
    results = empty_results(case, "float32")
    descs = [describe(array.shape) for array in (*arrays, results[2])]
    if not with_bias:
        descs[3] = None
    desc, status = infiniop.infiniopCreateConvBackwardDescriptor(
        handle, *descs, case.padding, case.stride, case.dilation, case.groups
    )
    assert status == Status.SUCCESS
    size, status = infiniop.infiniopGetConvBackwardWorkspaceSize(desc)
    assert status == Status.SUCCESS
    tensors = [to_torch(array) for array in arrays]
    workspace = torch.empty(size, dtype=torch.uint8)
    bias = results[2] if with_bias else None
    status = infiniop.infiniopConvBackward(
        desc, workspace, size, *results[:2], bias, *tensors, None
    )
    assert status == Status.SUCCESS
    assert infiniop.infiniopDestroyConvBackwardDescriptor(desc) == Status.SUCCESS
    mask = (True, True, with_bias)
    assert_exact((*results[:2], bias), case, arrays, output_mask=mask)


@pytest.mark.parametrize("with_bias", [True, False])
def test_forward_convolution_from_python(handle, with_bias):
    case = find_conv_case("asymmetric_groups").read_as("conv")
    x, weight, bias = make_arrays(case, "float32", kind="integer")
    (y,) = empty_results(case, "float32")
    descs = [describe(array.shape) for array in (y, x, weight, bias)]
    if not with_bias:
        descs[3] = bias = None
    desc, status = infiniop.infiniopCreateConvDescriptor(
        handle, *descs, case.padding, case.stride, case.dilation, case.groups
    )
    assert status == Status.SUCCESS
    size, status = infiniop.infiniopGetConvWorkspaceSize(desc)
    assert status == Status.SUCCESS
    workspace = torch.empty(size, dtype=torch.uint8)
    stream, _ = infiniop.infinirtStreamCreate()
    operands = (to_torch(x), jnp.array(weight), bias)
    status = infiniop.infiniopConv(desc, workspace, size, y, *operands, stream)
    assert status == Status.SUCCESS
    assert infiniop.infiniopDestroyConvDescriptor(desc) == Status.SUCCESS
    assert infiniop.infinirtStreamDestroy(stream) == Status.SUCCESS
    assert_exact((y,), case, (x, weight, bias) if with_bias else (x, weight))


def test_python_may_end_while_work_is_queued():
    done = run_python(
        """
import numpy as np
from backops import infiniop
stream, _ = infiniop.infinirtStreamCreate()
source, target = np.ones(1 << 22, np.uint8), np.empty(1 << 22, np.uint8)
for _ in range(200):
    infiniop.infinirtMemcpyAsync(target, source, source.nbytes, 0, stream)
print("end")
"""
    )
    assert done.stdout == "end\n"


# What is wrong


def test_errors_are_statuses_without_values(handle):
    large, small = describe((1, 1, 4)), describe((1, 1, 2))
    create = infiniop.infiniopCreateAvgPoolBackwardDescriptor
    assert create(handle, large, small, large, None, None, None, False) == (None, Status.BAD_PARAM)
    assert create(handle, small, large, large, [2], None, None, False) == (
        None,
        Status.BAD_TENSOR_SHAPE,
    )
    assert create(None, large, small, large, [2], None, None, False) == (None, Status.BAD_PARAM)
    assert infiniop.infiniopGetAvgPoolBackwardWorkspaceSize(None) == (None, Status.BAD_PARAM)
    assert infiniop.infiniopAvgPoolBackward(None, None, 0, None, None, None, None) == 3


@pytest.mark.parametrize("which", ["kernel", "strides", "pads"])
def test_parameters_that_are_too_short_are_refused(handle, which):
    large, small = describe((1, 1, 4, 4)), describe((1, 1, 2, 2))
    values = {"kernel": [2, 2], "strides": [2, 2], "pads": [0, 0]} | {which: [2]}
    made = infiniop.infiniopCreateAvgPoolBackwardDescriptor(
        handle, large, small, large, *values.values(), False
    )
    assert made == (None, Status.BAD_PARAM)


def test_shape_that_is_too_short_is_refused(handle):
    large, status = infiniop.infiniopCreateTensorDescriptor(4, (1, 1, 4), None, DType.F32)
    assert status == Status.SUCCESS
    made = infiniop.infiniopCreateAvgPoolBackwardDescriptor(
        handle, large, large, large, [1, 1], None, None, False
    )
    assert made == (None, Status.BAD_TENSOR_SHAPE)
    made = infiniop.infiniopCreateTensorDescriptor(10**9, (1, 1, 4), None, DType.F32)
    assert made == (None, Status.BAD_TENSOR_SHAPE)
    with pytest.raises(backops.ParamError, match="strides"):
        infiniop.infiniopCreateTensorDescriptor(3, (1, 1, 4), (4, 1), DType.F32)


def test_memory_smaller_than_it_is_said_to_be_is_refused(pool):
    desc, size = pool
    values, out = np.ones((1, 1, 2), np.float32), np.zeros((1, 1, 4), np.float32)
    with pytest.raises(backops.ParamError, match="workspace"):
        infiniop.infiniopAvgPoolBackward(desc, np.empty(8), size, out, values, out, None)
    with pytest.raises(backops.ParamError, match="dst"):
        infiniop.infinirtMemcpy(np.empty(2), values, 100, MemcpyKind.H2H)
    assert not out.any()


@pytest.mark.parametrize("size", [17, 2**40, 2**64 - 1])
@pytest.mark.parametrize("stream", [False, True])
def test_sources_smaller_than_they_are_said_to_be_are_refused(size, stream):
    queue = infiniop.infinirtStreamCreate()[0] if stream else None
    memory, _ = infiniop.infinirtMalloc(64)
    for source in (bytearray(16), np.zeros(4, np.float32), np.zeros(8, np.float32)[4:]):
        with pytest.raises(backops.ParamError, match=f"src is memory of 16 bytes.*least {size}"):
            infiniop.infinirtMemcpyAsync(memory, source, size, MemcpyKind.H2D, queue)
        with pytest.raises(backops.ParamError, match="src"):
            infiniop.infinirtMemcpy(memory, source, size, MemcpyKind.H2D)
        assert infiniop.infinirtMemcpyAsync(memory, source, 16, 0, queue) == Status.SUCCESS
    assert infiniop.infinirtStreamDestroy(queue) == Status.SUCCESS
    assert infiniop.infinirtFree(memory) == Status.SUCCESS


@pytest.mark.parametrize("size", [-1, 2**64, 2**64 + 16])
def test_sizes_that_are_none_are_refused(size, pool, handle):
    desc, _ = pool
    memory = np.zeros(16, np.uint8)
    address = memory.ctypes.data
    for call in (
        lambda: infiniop.infinirtMalloc(size),
        lambda: infiniop.infinirtMallocHost(size),
        lambda: infiniop.infinirtMallocAsync(size, None),
        lambda: infiniop.infinirtMemcpy(address, address, size, 0),
        lambda: infiniop.infinirtMemcpyAsync(memory, memory, size, 0, None),
        lambda: infiniop.infinirtMemset(address, 0, size),
        lambda: infiniop.infinirtMemsetAsync(memory, 0, size, None),
        lambda: infiniop.infiniopCreateTensorDescriptor(size, None, None, DType.F32),
        lambda: infiniop.infiniopAvgPoolBackward(desc, None, size, None, None, None, None),
    ):
        with pytest.raises(backops.ParamError, match=f"is {size}, expected 0 to"):
            call()


def test_numbers_beyond_64_bits_are_refused(handle):
    for number in (2**64 + 4, -(2**63) - 1):
        with pytest.raises(backops.ParamError, match=rf"shape\[2\] is {number}"):
            infiniop.infiniopCreateTensorDescriptor(3, (1, 1, number), None, DType.F32)
    large = describe((1, 1, 4))
    with pytest.raises(backops.ParamError, match="n is"):
        infiniop.infiniopCreateConvBackwardDescriptor(
            handle, large, large, large, None, None, None, None, 2**64 + 1
        )


def test_results_must_be_writable(pool):
    desc, size = pool
    values, workspace = np.ones((1, 1, 2), np.float32), np.empty(size, np.uint8)
    read_only = np.zeros((1, 1, 4), np.float32)
    read_only.flags.writeable = False
    for out in (read_only, jnp.zeros((1, 1, 4), jnp.float32)):
        with pytest.raises(backops.LayoutError, match="grad_input is read-only"):
            infiniop.infiniopAvgPoolBackward(desc, workspace, size, out, values, values, None)


def test_what_is_no_array_is_refused(pool):
    desc, size = pool
    values, workspace = np.ones((1, 1, 2), np.float32), np.empty(size, np.uint8)
    for nonsense in ("text", object(), [1, 2, 3]):
        with pytest.raises(backops.Error, match="grad_input"):
            infiniop.infiniopAvgPoolBackward(desc, workspace, size, nonsense, values, values, None)


# Arrays of queued work


class Source(np.ndarray):
    """An array that can be watched."""


@pytest.mark.parametrize("wait", ["synchronize", "destroy", "device"])
def test_arrays_of_queued_work_live_until_the_stream_is_waited_for(wait):
    stream, _ = infiniop.infinirtStreamCreate()
    target = np.zeros(1 << 20, np.uint8)
    source = np.full(1 << 20, 7, np.uint8).view(Source)
    watch = weakref.ref(source)
    infiniop.infinirtMemcpyAsync(target, source, source.nbytes, 0, stream)
    del source
    assert watch() is not None
    if wait == "synchronize":
        infiniop.infinirtStreamSynchronize(stream)
    elif wait == "device":
        infiniop.infinirtDeviceSynchronize()
    if wait != "destroy":
        assert watch() is None
    infiniop.infinirtStreamDestroy(stream)
    assert watch() is None
    assert (target == 7).all()


def test_arrays_of_work_without_a_stream_are_not_kept():
    source = np.full(16, 7, np.uint8).view(Source)
    watch = weakref.ref(source)
    target = np.zeros(16, np.uint8)
    infiniop.infinirtMemcpyAsync(target, source, 16, 0, None)
    del source
    assert watch() is None

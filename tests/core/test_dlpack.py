"""What speaks DLPack, by methods or by the table of its type, is an array wherever one may be."""

import ctypes
import gc

import numpy as np
import pytest

import backops
from backops import reference
from tests.support.conv_cases import find_conv_case, make_arrays
from tests.support.dlpack import DLPackOnly, Exchanging, Managed, OldDLPackOnly, Version, describe
from tests.support.dlpack import make_capsule as capsule_of
from tests.support.floats import same_bits
from tests.support.layouts import FILL_BYTE, in_layout
from tests.support.pool_cases import find_case, make_grad

CASE = find_case("overlap_2d")
CONV = find_conv_case("plain_2d")
every_producer = pytest.mark.parametrize("producer", [DLPackOnly, OldDLPackOnly])
VARIANTS = [{}, {"view": False}, {"newest": 2}, {"newest": 2, "view": False}]
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


# Objects with __dlpack__ and __dlpack_device__ only


@every_producer
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_input_of_pooling(dtype, producer):
    grad = make_grad(CASE, dtype)
    given = producer(np.empty(CASE.input_shape, dtype))
    expected = CASE.backward(backops, grad)
    assert same_bits(backops.avg_pool2d_backward(grad, given, *CASE.positional), expected)
    exact = reference.avg_pool2d_backward(grad, given, *CASE.positional)
    assert np.array_equal(exact, CASE.backward(reference, grad))


@every_producer
def test_input_of_adaptive_pooling(producer):
    case = find_case("adaptive_uneven_3d")
    given = producer(np.empty(case.input_shape, np.float32))
    result = backops.adaptive_avg_pool3d_backward(make_grad(case), given)
    assert same_bits(result, case.backward(backops, make_grad(case)))


@pytest.mark.parametrize("mask", [(True, False, False), (False, True, False), (False, False, True)])
@every_producer
def test_every_operand_of_a_convolution(producer, mask):
    arrays = make_arrays(CONV)
    given = [producer(array) for array in arrays]
    expected = CONV.backward(backops, *arrays, output_mask=mask)
    for got in (
        CONV.backward(backops, *given, output_mask=mask),
        CONV.plan(backops.plan, output_mask=mask)(*given),
    ):
        assert [g is None for g in got] == [e is None for e in expected]
        assert all(same_bits(g, e) for g, e in zip(got, expected, strict=True) if g is not None)
    exact = CONV.backward(reference, *given, output_mask=mask)
    truth = CONV.backward(reference, *arrays, output_mask=mask)
    assert all(np.array_equal(e, t) for e, t in zip(exact, truth, strict=True) if e is not None)


@every_producer
def test_shapes_and_workspace_of_plans(producer):
    grad = make_grad(CASE)
    plan = backops.plan.avg_pool2d_backward(
        producer(np.empty(CASE.input_shape)), *CASE.positional, dtype="float32"
    )
    memory = np.full(plan.workspace_size + 1, FILL_BYTE, np.uint8)
    result = plan(grad, workspace=producer(memory[:-1]))
    assert same_bits(result, CASE.backward(backops, grad))
    assert memory[-1] == FILL_BYTE
    with pytest.raises(backops.ParamError, match=r"workspace is \d+ bytes"):
        plan(grad, workspace=producer(np.empty(plan.workspace_size - 1, np.uint8)))
    conv = backops.plan.conv_backward(
        producer(np.empty((1, 4, 8, 8))), producer(np.empty((6, 4, 3, 3)))
    )
    assert conv(*(np.ones(s, np.float32) for s in [(1, 6, 6, 6), (1, 4, 8, 8), (6, 4, 3, 3)]))


def test_read_only_array_is_no_workspace():
    plan = backops.plan.avg_pool2d_backward(CASE.input_shape, *CASE.positional)
    memory = np.empty(plan.workspace_size, np.uint8)
    memory.flags.writeable = False
    with pytest.raises(backops.LayoutError, match=r"workspace is .*writable"):
        plan(make_grad(CASE), workspace=DLPackOnly(memory))


def test_array_on_another_device_tells_its_shape():
    class Elsewhere(DLPackOnly):
        def __dlpack_device__(self):
            return (2, 0)

    grad, given = make_grad(CASE), Elsewhere(np.empty(CASE.input_shape, np.float32))
    result = backops.avg_pool2d_backward(grad, given, *CASE.positional)
    assert same_bits(result, CASE.backward(backops, grad))


def test_dtype_and_axes_of_an_operand_that_is_only_a_shape_are_checked():
    grad = make_grad(CASE)
    given = DLPackOnly(np.empty(CASE.input_shape, np.int32))
    with pytest.raises(backops.DTypeError, match="input is int32, expected float32"):
        backops.avg_pool2d_backward(grad, given, *CASE.positional)
    given = DLPackOnly(np.empty((1,) * 12, np.float32))
    with pytest.raises(backops.ShapeError, match="input is an array with 12 axes"):
        backops.avg_pool2d_backward(grad, given, *CASE.positional)


def test_why_an_array_gives_no_data_stays_its_cause():
    class Broken:
        def __dlpack__(self, **keywords):
            raise BufferError("out of order")

    for arguments in ((Broken(), (1, 1, 4, 4)), (np.ones((1, 1, 2, 2)), Broken())):
        with pytest.raises(backops.LayoutError, match=r"no data \(out of order\)") as caught:
            backops.avg_pool2d_backward(*arguments, 2)
        assert type(caught.value.__cause__) is BufferError


@pytest.mark.parametrize("name", ["grad_output", "input", "out"])
def test_capsule_of_a_major_version_to_come_is_refused(name):
    class New(DLPackOnly):
        def __dlpack__(self, **keywords):
            self.managed = Managed(version=Version(2, 1))
            self.kept = describe(self.managed.tensor, self._array)
            return capsule_of(ctypes.addressof(self.managed), b"dltensor_versioned")

    arrays = {
        "grad_output": np.ones((1, 1, 2, 2)),
        "input": np.ones((1, 1, 4, 4)),
        "out": np.ones((1, 1, 4, 4)),
    }
    given = {**arrays, name: New(arrays[name])}
    with pytest.raises(backops.LayoutError, match=f"{name} is an array of DLPack 2.1"):
        backops.avg_pool2d_backward(**given, kernel_size=2)
    assert (arrays["out"] == 1).all()


# Types with a table of C functions


@every_variant
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_table_of_the_type_serves_every_argument(dtype, variant):
    Array = Exchanging.make(**variant)
    grad = make_grad(CASE, dtype)
    expected = CASE.backward(backops, grad)
    result = backops.avg_pool2d_backward(
        Array(grad), Array(np.empty(CASE.input_shape, dtype)), *CASE.positional
    )
    assert type(result) is Array
    assert same_bits(result.array, expected)
    out = Array(np.zeros(CASE.input_shape, dtype))
    assert CASE.backward(backops, Array(grad), out=out) is out
    assert same_bits(out.array, expected)
    plan = CASE.plan(backops.plan, dtype=dtype)
    workspace = Array(np.empty(plan.workspace_size, np.uint8))
    assert same_bits(plan(Array(grad), workspace=workspace).array, expected)


@every_variant
def test_results_of_channels_last_arrays_are_contiguous(variant):
    # Only PyTorch's tensors are known to permute.
    Array = Exchanging.make(**variant)
    grad = in_layout(make_grad(CASE), CASE, "channels_last")
    result = CASE.backward(backops, Array(grad))
    assert result.array.flags.c_contiguous
    assert same_bits(result.array, CASE.backward(backops, make_grad(CASE)))


@pytest.mark.parametrize("variant", [{}, {"view": False}], ids=str)
def test_what_is_handed_over_is_given_back(variant):
    Array = Exchanging.make(**variant)
    for _ in range(5):
        result = backops.avg_pool2d_backward(
            Array(make_grad(CASE)), Array(np.empty(CASE.input_shape, np.float32)), *CASE.positional
        )
    del result
    gc.collect()
    assert not Array.alive


def test_read_only_arrays_that_are_handed_over_are_no_results():
    Array = Exchanging.make(view=False, read_only=True)
    out = np.zeros(CASE.input_shape, np.float32)
    with pytest.raises(backops.LayoutError, match="out is read-only"):
        CASE.backward(backops, make_grad(CASE), out=Array(out))
    assert not out.any()
    assert not Array.alive


@pytest.mark.parametrize("view", [False, True])
def test_table_that_fails_without_saying_why(view):
    Array = Exchanging.make(view=view, fails=True)
    with pytest.raises(backops.LayoutError, match=r"grad_output is an array that gives no data"):
        CASE.backward(backops, Array(make_grad(CASE)))
    with pytest.raises(backops.LayoutError, match=r"input is an array that gives no data"):
        backops.avg_pool2d_backward(
            make_grad(CASE), Array(np.empty(CASE.input_shape, np.float32)), *CASE.positional
        )


@pytest.mark.parametrize("variant", [{"newest": 2, "whole": False}, {"whole": False}], ids=str)
def test_table_with_holes_is_no_table(variant):
    Array = Exchanging.make(**variant)
    with pytest.raises(backops.DTypeError, match=r"grad_output is .*expected an array"):
        CASE.backward(backops, Array(make_grad(CASE)))

    class Both(Array, DLPackOnly):
        def __init__(self, array):
            DLPackOnly.__init__(self, array)

    result = CASE.backward(backops, Both(make_grad(CASE)))
    assert same_bits(result, CASE.backward(backops, make_grad(CASE)))

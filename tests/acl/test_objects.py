"""Tensors, arrays and scalars of acl, and its numbers of 16 bits.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import numpy as np

from backops import acl
from backops.acl import Status
from tests.support.acl import DataType, Format, Spec, check, int_array
from tests.support.acl_work import message


def test_tensors_tell_what_they_were_told(device):
    spec = Spec((2, 3), DataType.BF16, Format.ND, (1, 2), 5)
    tensor = spec.create()
    assert acl.aclGetViewShape(tensor) == ([2, 3], Status.SUCCESS)
    assert acl.aclGetStorageShape(tensor) == ([2, 3], Status.SUCCESS)
    assert acl.aclGetViewStrides(tensor) == ([1, 2], Status.SUCCESS)
    assert acl.aclGetViewOffset(tensor) == (5, Status.SUCCESS)
    assert acl.aclGetFormat(tensor) == (Format.ND, Status.SUCCESS)
    assert acl.aclGetDataType(tensor) == (DataType.BF16, Status.SUCCESS)
    assert acl.aclGetViewStrides(Spec((2, 3, 4)).create()) == ([12, 4, 1], Status.SUCCESS)
    check(acl.aclDestroyTensor(tensor))
    assert acl.aclGetViewShape(tensor) == (None, Status.PARAM_INVALID)
    assert acl.aclGetFormat(None) == (None, Status.PARAM_NULLPTR)
    assert acl.aclDestroyTensor(None) == Status.SUCCESS


def test_other_objects():
    array = int_array([1, 2, 3])
    assert acl.aclGetIntArraySize(array) == (3, Status.SUCCESS)
    check(acl.aclDestroyIntArray(array))
    check(acl.aclDestroyBoolArray(acl.aclCreateBoolArray([True, False], 2)))
    check(acl.aclDestroyFloatArray(acl.aclCreateFloatArray([1.5], 1)))
    value = np.array(1.5, np.float32)
    check(acl.aclDestroyScalar(acl.aclCreateScalar(value, DataType.FLOAT)))
    assert acl.aclCreateScalar(value, DataType.STRING) is None
    assert acl.aclCreateScalar(None, DataType.FLOAT) is None
    assert acl.aclCreateIntArray(None, 2) is None
    assert acl.aclCreateIntArray(None, 0) is not None
    assert "aclCreateIntArray: value is NULL" in message()
    assert acl.aclCreateTensor(None, 2, 0, None, 0, 0, None, 0, None) is None
    assert acl.aclCreateTensor([1] * 65, 65, 0, None, 0, 0, None, 0, None) is None
    assert acl.aclCreateScalar(value, DataType.INT4) is None
    assert "dataType is INT4, expected the type of a number of whole bytes" in message()
    scalars = [acl.aclCreateScalar(value, DataType.FLOAT) for _ in range(2)]
    made = acl.aclCreateScalarList(scalars, 2)
    assert acl.aclGetScalarListSize(made) == (2, Status.SUCCESS)
    check(acl.aclDestroyScalarList(made))
    assert acl.aclDestroyScalar(scalars[0]) == Status.PARAM_INVALID  # gone with the list
    assert acl.aclDestroyScalarList(made) == Status.PARAM_INVALID
    assert acl.aclGetScalarListSize(made) == (None, Status.PARAM_INVALID)
    assert acl.aclGetScalarListSize(None) == (None, Status.PARAM_NULLPTR)
    assert acl.aclCreateScalarList(scalars, 2) is None
    assert "aclCreateScalarList: value is no object that is alive" in message()
    assert acl.aclDestroyScalarList(None) == Status.SUCCESS
    tensors = [Spec((2, 2)).create() for _ in range(2)]
    made = acl.aclCreateTensorList(tensors, 2)
    check(acl.aclDestroyTensorList(made))
    assert acl.aclDestroyTensor(tensors[0]) == Status.PARAM_INVALID  # gone with the list
    assert acl.aclDestroyTensorList(made) == Status.PARAM_INVALID


# Numbers


def test_every_float16_as_float():
    bits = np.arange(1 << 16, dtype=np.uint16)
    got = np.array([acl.aclFloat16ToFloat(int(each)) for each in bits])
    expected = bits.view(np.float16).astype(np.float64)
    assert np.isnan(got[np.isnan(expected)]).all()
    finite = ~np.isnan(expected)
    assert (got[finite].view(np.uint64) == expected[finite].view(np.uint64)).all()
    assert (finite.sum(), np.isinf(got).sum()) == (65536 - 2046, 2)


def test_floats_as_float16():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = np.sort(halves[np.isfinite(halves)].astype(np.float64))
    # Every tie between neighbours, and the floats on both sides of it.
    ties = ((halves[1:] + halves[:-1]) / 2).astype(np.float32)
    sides = [np.nextafter(ties, np.float32(side * np.inf)) for side in (-1, 1)]
    edges = [65504, 65519.99, 65520, 65536, 1e38, np.inf, 2.0**-24, 2.0**-25, 2.0**-26, 1e-45, 0]
    edges = np.array([*edges, *(-np.array(edges))], np.float32)
    random = np.random.default_rng(5).integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
    values = np.concatenate([ties, *sides, edges, random])
    got = np.array([acl.aclFloatToFloat16(float(each)) for each in values], np.uint16)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(np.float16)
    is_nan = np.isnan(values)
    assert is_nan.sum() > 100
    assert np.isnan(got[is_nan].view(np.float16)).all()
    assert (got[is_nan] >> 15 == np.signbit(values[is_nan])).all()
    assert (got[~is_nan] == expected[~is_nan].view(np.uint16)).all()

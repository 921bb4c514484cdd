"""Tensors, arrays, scalars and executors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_bool, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, TypeAlias

from backops._c_interface import Address, Tensor, input_address, with_value
from backops.acl._arrays import Mapped, executor_arrays, repeatable, tensor_arrays
from backops.acl._enums import DataType, Format, Status
from backops.acl._library import declare, library
from backops.errors import ParamError

Values: TypeAlias = Sequence[Any] | int | None  # an int is an address


def _c_array(function: str, name: str, values: Values, count: int, kind: Any) -> Any:
    """An array for C of `count` elements, or the address as it is."""
    if values is None or isinstance(values, int):
        return values
    if len(values) < count:
        raise ParamError(
            f"{function}: {name} has {len(values)} elements, expected {count} as its size says"
        )
    return (kind * len(values))(*values)


def _sizes(function: Callable[..., Status], tensor: Address) -> tuple[list[int] | None, Status]:
    values, count = POINTER(c_int64)(), c_uint64()
    status = function(tensor, byref(values), byref(count))
    if status != Status.SUCCESS:
        return None, status
    result = values[: count.value]
    _delete_array(values)
    return result, status


def _find_delete_array() -> Any:
    """C++'s delete[], for the arrays that functions make: as the library itself would find it."""
    try:
        return ctypes.CDLL(None)._ZdaPv
    except AttributeError:
        return library._ZdaPv


_delete_array = _find_delete_array()
_delete_array.argtypes = (c_void_p,)
_delete_array.restype = None

_create_tensor = declare(
    "aclCreateTensor",
    c_void_p,
    c_uint64,
    c_int,
    c_void_p,
    c_int64,
    c_int,
    c_void_p,
    c_uint64,
    c_void_p,
    result=c_void_p,
)
_create_scalar = declare("aclCreateScalar", c_void_p, c_int, result=c_void_p)
_create_int_array = declare("aclCreateIntArray", c_void_p, c_uint64, result=c_void_p)
_create_bool_array = declare("aclCreateBoolArray", c_void_p, c_uint64, result=c_void_p)
_create_float_array = declare("aclCreateFloatArray", c_void_p, c_uint64, result=c_void_p)
_create_tensor_list = declare("aclCreateTensorList", c_void_p, c_uint64, result=c_void_p)
_create_scalar_list = declare("aclCreateScalarList", c_void_p, c_uint64, result=c_void_p)
# By handle of a list: its tensors, which are destroyed with it.
_list_tensors: dict[int, list[int]] = {}
_destroy_tensor = declare("aclDestroyTensor", c_void_p)
_destroy_scalar = declare("aclDestroyScalar", c_void_p)
_destroy_int_array = declare("aclDestroyIntArray", c_void_p)
_destroy_bool_array = declare("aclDestroyBoolArray", c_void_p)
_destroy_float_array = declare("aclDestroyFloatArray", c_void_p)
_destroy_tensor_list = declare("aclDestroyTensorList", c_void_p)
_destroy_scalar_list = declare("aclDestroyScalarList", c_void_p)
_get_view_shape = declare("aclGetViewShape", c_void_p, c_void_p, c_void_p)
_get_storage_shape = declare("aclGetStorageShape", c_void_p, c_void_p, c_void_p)
_get_view_strides = declare("aclGetViewStrides", c_void_p, c_void_p, c_void_p)
_get_view_offset = declare("aclGetViewOffset", c_void_p, c_void_p)
_get_format = declare("aclGetFormat", c_void_p, c_void_p)
_get_data_type = declare("aclGetDataType", c_void_p, c_void_p)
_get_int_array_size = declare("aclGetIntArraySize", c_void_p, c_void_p)
_get_scalar_list_size = declare("aclGetScalarListSize", c_void_p, c_void_p)


def aclCreateTensor(
    viewDims: Values,
    viewDimsNum: int,
    dataType: int,
    stride: Values,
    offset: int,
    format: int,
    storageDims: Values,
    storageDimsNum: int,
    tensorData: Tensor,
) -> Address:
    """A tensor; strides and offset count elements, a stride of None means contiguous."""
    function = "aclCreateTensor"
    sizes = _c_array(function, "viewDims", viewDims, viewDimsNum, c_int64)
    strides = _c_array(function, "stride", stride, viewDimsNum, c_int64)
    storage = _c_array(function, "storageDims", storageDims, storageDimsNum, c_int64)
    mapped = None
    if tensorData is not None and not isinstance(tensorData, int):
        mapped = Mapped(tensorData, "tensorData")
    address = tensorData if mapped is None else mapped.address
    tensor: Address = _create_tensor(
        sizes,
        viewDimsNum,
        dataType,
        strides,
        offset,
        format,
        storage,
        storageDimsNum,
        address,
    )
    if tensor is not None and mapped is not None:
        tensor_arrays[tensor] = mapped
    return tensor


def aclCreateScalar(value: Tensor, dataType: int) -> Address:
    scalar: Address = _create_scalar(input_address(value, "value"), dataType)
    return scalar


def aclCreateIntArray(value: Values, size: int) -> Address:
    values = _c_array("aclCreateIntArray", "value", value, size, c_int64)
    array: Address = _create_int_array(values, size)
    return array


def aclCreateBoolArray(value: Values, size: int) -> Address:
    values = _c_array("aclCreateBoolArray", "value", value, size, c_bool)
    array: Address = _create_bool_array(values, size)
    return array


def aclCreateFloatArray(value: Values, size: int) -> Address:
    values = _c_array("aclCreateFloatArray", "value", value, size, c_float)
    array: Address = _create_float_array(values, size)
    return array


def aclCreateTensorList(value: Values, size: int) -> Address:
    values = _c_array("aclCreateTensorList", "value", value, size, c_void_p)
    tensors: Address = _create_tensor_list(values, size)
    if tensors is not None and values is not None and not isinstance(values, int):
        _list_tensors[tensors] = [handle for handle in list(values)[:size] if handle is not None]
    return tensors


def aclCreateScalarList(value: Values, size: int) -> Address:
    values = _c_array("aclCreateScalarList", "value", value, size, c_void_p)
    scalars: Address = _create_scalar_list(values, size)
    return scalars


def aclDestroyTensor(tensor: Address) -> Status:
    status: Status = _destroy_tensor(tensor)
    if tensor is not None:
        tensor_arrays.pop(tensor, None)
    return status


def aclDestroyScalar(scalar: Address) -> Status:
    status: Status = _destroy_scalar(scalar)
    return status


def aclDestroyIntArray(array: Address) -> Status:
    status: Status = _destroy_int_array(array)
    return status


def aclDestroyBoolArray(array: Address) -> Status:
    status: Status = _destroy_bool_array(array)
    return status


def aclDestroyFloatArray(array: Address) -> Status:
    status: Status = _destroy_float_array(array)
    return status


def aclDestroyTensorList(array: Address) -> Status:
    """And the tensors in it."""
    status: Status = _destroy_tensor_list(array)
    for tensor in _list_tensors.pop(array, []) if array is not None else []:
        tensor_arrays.pop(tensor, None)
    return status


def aclDestroyScalarList(array: Address) -> Status:
    """And the scalars in it."""
    status: Status = _destroy_scalar_list(array)
    return status


def aclGetViewShape(tensor: Address) -> tuple[list[int] | None, Status]:
    return _sizes(_get_view_shape, tensor)


def aclGetStorageShape(tensor: Address) -> tuple[list[int] | None, Status]:
    return _sizes(_get_storage_shape, tensor)


def aclGetViewStrides(tensor: Address) -> tuple[list[int] | None, Status]:
    """In elements."""
    return _sizes(_get_view_strides, tensor)


def aclGetViewOffset(tensor: Address) -> tuple[int | None, Status]:
    """In elements."""
    value = c_int64()
    return with_value(_get_view_offset(tensor, byref(value)), value, int)


def aclGetFormat(tensor: Address) -> tuple[Format | None, Status]:
    value = c_int()
    return with_value(_get_format(tensor, byref(value)), value, Format)


def aclGetDataType(tensor: Address) -> tuple[DataType | None, Status]:
    value = c_int()
    return with_value(_get_data_type(tensor, byref(value)), value, DataType)


def aclGetIntArraySize(array: Address) -> tuple[int | None, Status]:
    value = c_uint64()
    return with_value(_get_int_array_size(array, byref(value)), value, int)


def aclGetScalarListSize(scalarList: Address) -> tuple[int | None, Status]:
    value = c_uint64()
    return with_value(_get_scalar_list_size(scalarList, byref(value)), value, int)


# ---- executors -----------------------------------------------------------------------------------

_set_acl_op_executor_repeatable = declare("aclSetAclOpExecutorRepeatable", c_void_p)
_destroy_acl_op_executor = declare("aclDestroyAclOpExecutor", c_void_p)
_set_input_tensor_addr = declare("aclSetInputTensorAddr", c_void_p, c_size_t, c_void_p, c_void_p)
_set_output_tensor_addr = declare("aclSetOutputTensorAddr", c_void_p, c_size_t, c_void_p, c_void_p)
_set_tensor_addr = declare("aclSetTensorAddr", c_void_p, c_size_t, c_void_p, c_void_p)


def aclSetAclOpExecutorRepeatable(executor: Address) -> Status:
    status: Status = _set_acl_op_executor_repeatable(executor)
    if status == Status.SUCCESS and executor is not None:
        repeatable.add(executor)
    return status


def aclDestroyAclOpExecutor(executor: Address) -> Status:
    status: Status = _destroy_acl_op_executor(executor)
    if status == Status.SUCCESS and executor is not None:
        repeatable.discard(executor)
        executor_arrays.pop(executor, None)
    return status


def _rebound(
    function: Callable[..., Status], executor: Address, index: int, tensor: Address, addr: Tensor
) -> Status:
    if addr is None or isinstance(addr, int):
        return function(executor, index, tensor, addr)
    mapped = Mapped(addr, "addr")
    status = function(executor, index, tensor, mapped.address)
    if status == Status.SUCCESS and executor is not None:
        executor_arrays.setdefault(executor, []).append(mapped)
    return status


def aclSetInputTensorAddr(executor: Address, index: int, tensor: Address, addr: Tensor) -> Status:
    return _rebound(_set_input_tensor_addr, executor, index, tensor, addr)


def aclSetOutputTensorAddr(executor: Address, index: int, tensor: Address, addr: Tensor) -> Status:
    return _rebound(_set_output_tensor_addr, executor, index, tensor, addr)


def aclSetTensorAddr(executor: Address, index: int, tensor: Address, addr: Tensor) -> Status:
    return _rebound(_set_tensor_addr, executor, index, tensor, addr)

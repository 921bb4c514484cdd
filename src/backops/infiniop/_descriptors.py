"""Handles, descriptors of tensors, and what descriptors of operators have in common."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_void_p

from backops._c_interface import Address, created, with_value
from backops.errors import ParamError
from backops.infiniop._arrays import Axes, checked, int64s
from backops.infiniop._enums import Device, Status
from backops.infiniop._library import declare, infiniop

_create_handle = declare(infiniop, "infiniopCreateHandle", c_void_p)
_destroy_handle = declare(infiniop, "infiniopDestroyHandle", c_void_p)
_create_tensor = declare(
    infiniop, "infiniopCreateTensorDescriptor", c_void_p, c_size_t, c_void_p, c_void_p, c_int
)
_destroy_tensor = declare(infiniop, "infiniopDestroyTensorDescriptor", c_void_p)
_get_descriptor_device_type = declare(
    infiniop, "infiniopGetDescriptorDeviceType", c_void_p, c_void_p
)
_get_descriptor_device_id = declare(infiniop, "infiniopGetDescriptorDeviceId", c_void_p, c_void_p)


def infiniopCreateHandle() -> tuple[Address, Status]:
    """A handle for the device that infinirtSetDevice chose in this thread."""
    return created(_create_handle)


def infiniopDestroyHandle(handle: Address) -> Status:
    return _destroy_handle(handle)


def infiniopCreateTensorDescriptor(
    ndim: int, shape: Axes, strides: Axes, dtype: int
) -> tuple[Address, Status]:
    """Describes a tensor; strides count elements, None means contiguous.

    Raises :class:`backops.ParamError` where there are not as many strides as sizes.
    """
    if isinstance(shape, Sequence) and isinstance(strides, Sequence) and len(shape) != len(strides):
        raise ParamError(
            f"infiniopCreateTensorDescriptor: strides are {tuple(strides)}, expected one for each "
            f"of shape {tuple(shape)}"
        )
    return created(
        _create_tensor,
        checked(ndim, "ndim"),
        int64s(shape, "shape", 0),
        int64s(strides, "strides", 0),
        dtype,
    )


def infiniopDestroyTensorDescriptor(desc: Address) -> Status:
    return _destroy_tensor(desc)


def infiniopGetDescriptorDeviceType(desc: Address) -> tuple[Device | None, Status]:
    """The device of an operator's descriptor."""
    device = c_int()
    return with_value(_get_descriptor_device_type(desc, byref(device)), device, Device)


def infiniopGetDescriptorDeviceId(desc: Address) -> tuple[int | None, Status]:
    device_id = c_int()
    return with_value(_get_descriptor_device_id(desc, byref(device_id)), device_id, int)

"""Arrays as device memory: mapped while tensors and executors are bound to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from backops import _native
from backops._c_interface import (
    Address,
    LaunchedArrays,
    Tensor,
    created,
    memory_address,
    output_address,
)
from backops.acl._enums import HostRegisterType, Status
from backops.acl._library import declare

host_register = declare("aclrtHostRegister", c_void_p, c_uint64, c_int, c_void_p)
host_unregister = declare("aclrtHostUnregister", c_void_p)
get_current_context = declare("aclrtGetCurrentContext", c_void_p)


class Mapped:
    """An array whose memory counts as device memory as long as this lives."""

    def __init__(self, array: Tensor, name: str) -> None:
        self.array = array
        self.address, self._lowest, size = _native.span_of_tensor(array, name)
        self._is_registered = size > 0
        if self._is_registered:
            devPtr = c_void_p()
            host_register(self._lowest, size, HostRegisterType.MAPPED, byref(devPtr))

    def __del__(self) -> None:
        if getattr(self, "_is_registered", False):
            host_unregister(self._lowest)


# By handle: the arrays that tensors and executors are bound to, and executors for many launches.
tensor_arrays: dict[int, Mapped] = {}
executor_arrays: dict[int, list[Mapped]] = {}
repeatable: set[int] = set()
launched = LaunchedArrays()


def key_of(stream: Address) -> Address:
    """A default stream is known by its context."""
    return created(get_current_context)[0] if stream is None else stream


def wait(function: Callable[..., Status], streams: list[Address], *arguments: Any) -> Status:
    return launched.wait(function, streams, *arguments)


def planned(
    function: Callable[..., Status],
    inputs: Sequence[Address],
    outputs: Sequence[Address],
    *arguments: Any,
) -> tuple[int | None, Address, Status]:
    """Calls a first stage, and keeps the arrays of its tensors until the executor is gone."""
    for handle in outputs:
        if handle in tensor_arrays:
            output_address(tensor_arrays[handle].array, "output")
    size, executor = c_uint64(), c_void_p()
    status = function(*arguments, byref(size), byref(executor))
    if status != Status.SUCCESS or executor.value is None:
        return None, None, status
    executor_arrays[executor.value] = [
        tensor_arrays[handle] for handle in (*inputs, *outputs) if handle in tensor_arrays
    ]
    return size.value, executor.value, status


def launch(
    function: Callable[..., Status],
    workspace: Tensor,
    workspaceSize: int,
    executor: Address,
    stream: Address,
) -> Status:
    used: list[Mapped] = []
    address = workspace
    if workspace is not None and not isinstance(workspace, int):
        memory_address(workspace, "workspace", workspaceSize)
        used.append(Mapped(workspace, "workspace"))
        address = used[0].address
    if executor is not None:
        used += executor_arrays.get(executor, [])
    launched.keep(key_of(stream), *used)
    status = function(address, workspaceSize, executor, stream)
    if status == Status.SUCCESS and executor is not None and executor not in repeatable:
        executor_arrays.pop(executor, None)
    return status

"""What the modules over C libraries share: declarations, out-pointers, and arrays for pointers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from backops import _native

Result = TypeVar("Result")

Address: TypeAlias = int | None
Tensor: TypeAlias = Any  # an array, an address or None

Value = TypeVar("Value")
Status = TypeVar("Status", bound=IntEnum)


def declare(library: ctypes.CDLL, name: str, *parameters: Any, result: Any) -> Callable[..., Any]:
    function = getattr(library, name)
    function.argtypes = parameters
    function.restype = result
    declared: Callable[..., Any] = function
    return declared


def with_value(
    status: Status, value: Any, kind: Callable[[Any], Value]
) -> tuple[Value | None, Status]:
    """What an out-pointer received, if anything, and the status; 0 is success."""
    return (kind(value.value) if status == 0 else None), status


def created(function: Callable[..., Status], *arguments: Any) -> tuple[Address, Status]:
    """Calls a function whose first parameter is the out-pointer."""
    handle = ctypes.c_void_p()
    return with_value(function(ctypes.byref(handle), *arguments), handle, int)


def memory_address(value: Tensor, name: str, size: int) -> Address:
    """The address of `size` writable bytes."""
    if value is None or isinstance(value, int):
        return value
    return _native.address_of_memory(value, name, size)


def input_address(value: Tensor, name: str) -> Address:
    if value is None or isinstance(value, int):
        return value
    return _native.address_of_tensor(value, name, False)


def output_address(value: Tensor, name: str) -> Address:
    if value is None or isinstance(value, int):
        return value
    return _native.address_of_tensor(value, name, True)


class LaunchedArrays:
    """Arrays of work that may still run on a stream: they live until that is waited for."""

    def __init__(self) -> None:
        self._by_stream: dict[Address, list[Any]] = {}

    def keep(self, stream: Address, *used: Tensor) -> None:
        arrays = [each for each in used if each is not None and not isinstance(each, int)]
        if arrays:
            self._by_stream.setdefault(stream, []).extend(arrays)

    def streams(self) -> list[Address]:
        return list(self._by_stream)

    def wait(
        self, function: Callable[..., Result], streams: list[Address], *arguments: Any
    ) -> Result:
        """Calls a function that waits for streams, and lets go of what they used before."""
        done = [self._by_stream.pop(stream, None) for stream in streams]
        result = function(*arguments)
        del done
        return result

"""Where the C interfaces take a pointer: an address, an array of any framework, or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from backops import _native

Result = TypeVar("Result")

Address: TypeAlias = int | None
Tensor: TypeAlias = Any  # an array, an address or None


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

"""Where the C interfaces take a pointer: an address, an array of any framework, or None."""

from __future__ import annotations

from typing import Any, TypeAlias

from backops import _native

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

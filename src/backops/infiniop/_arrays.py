"""Numbers and arrays as the C functions take them."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64
from typing import Any, TypeAlias

from backops import _native
from backops._c_interface import Address, LaunchedArrays, Tensor
from backops.errors import ParamError

Axes: TypeAlias = Sequence[int] | int | None  # an int is an address

# As many as libinfiniop takes. Beyond a sequence that is too short it finds what it refuses.
_MOST_AXES = 64


def checked(number: int, name: str, lowest: int = 0) -> int:
    """A number that C takes in 64 bits; ctypes would cut off what is more."""
    if lowest <= number < 1 << 64:
        return number
    raise ParamError(f"{name} is {number}, expected {lowest} to {2**64 - 1}")


def source_address(value: Tensor, size: int) -> Address:
    """The address of `size` bytes to read."""
    if value is None or isinstance(value, int):
        return value
    address, lowest, count = _native.span_of_tensor(value, "src")
    there = lowest + count - address
    if there < size:
        raise ParamError(f"src is memory of {there} bytes, expected at least {size}")
    return address


def int64s(values: Axes, name: str, beyond: int) -> Any:
    """An array for C, or the address as it is."""
    if values is None or isinstance(values, int):
        return values
    numbers = [
        checked(int(value), f"{name}[{axis}]", -(1 << 63)) for axis, value in enumerate(values)
    ]
    return (c_int64 * max(_MOST_AXES, len(numbers)))(
        *numbers, *[beyond] * (_MOST_AXES - len(numbers))
    )


launched = LaunchedArrays()


def keep(stream: Address, *used: Tensor) -> None:
    if stream is not None:  # without a stream the work is done when the call returns
        launched.keep(stream, *used)

"""Tensors in .npy, .npz, .safetensors and raw .bin files, not copied where the file allows it.

A tensor is named by its file, and after a colon by what the file does not say itself:

    grad.npy                      the array; bfloat16 as NumPy saves it needs grad.npy:bfloat16
    all.npz:grad_output           one of several arrays; no name is needed where there is only one
    all.safetensors:grad_output   the same
    grad.bin:float16:2,3,8,8      raw elements: dtype and shape
"""

from __future__ import annotations

import json
import math
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from backops._command import CommandError

Shape: TypeAlias = tuple[int, ...]

SUFFIXES = (".npy", ".npz", ".safetensors", ".bin")
DTYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
SAFETENSORS_NAMES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


@dataclass(frozen=True)
class TensorFile:
    """A file, and what was written after it."""

    path: Path
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}:{self.detail}" if self.detail else str(self.path)


def parse_file(text: str) -> TensorFile:
    found = re.fullmatch(r"(.*(\.npy|\.npz|\.safetensors|\.bin))(?::(.*))?", text)
    if found is None:
        raise CommandError(f"{text}: expected a file that ends in {', '.join(SUFFIXES)}")
    return TensorFile(Path(found[1]), found[2], found[3] or "")


def parse_shape(text: str) -> Shape:
    """(2, 3, 8, 8) from "2,3,8,8" or "2x3x8x8"."""
    if not re.fullmatch(r"\d+([,x]\d+)*", text):
        raise CommandError(f"{text!r} is not a shape, expected sizes such as 2,3,8,8")
    return tuple(map(int, re.split("[,x]", text)))


def parse_dtype(text: str) -> np.dtype[Any]:
    if text not in DTYPES:
        raise CommandError(f"{text!r} is not a dtype, expected one of {', '.join(DTYPES)}")
    return DTYPES[text]


def read_tensor(text: str, *, dtype: str | None = None, shape: Shape | None = None) -> NDArray[Any]:
    """The tensor that `text` names; `dtype` and `shape` are for files that do not say."""
    file = parse_file(text)
    if not file.path.is_file():
        raise CommandError(f"{file.path}: no such file")
    readers = {".npy": _read_npy, ".bin": _read_raw}
    if file.kind in readers:
        array = readers[file.kind](file, dtype, shape)
    else:
        array = _choose(file, read_all(file.path))
    array = _as_bfloat16(file, array, file.detail if file.kind == ".npy" else "", dtype)
    if array.dtype not in DTYPES.values():
        raise CommandError(f"{file}: dtype is {array.dtype}, expected one of {', '.join(DTYPES)}")
    return array


def read_all(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of a .npz or .safetensors file, by name."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        return _read_safetensors(path)
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile, struct.error) as error:
        raise CommandError(f"{path}: not a {path.suffix} file ({_first_line(error)})") from error


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> dict[str, Path]:
    """Writes all to one .npz or .safetensors; one to a .npy or .bin, or each to its own.

    Returns each one's file; several of a kind that holds one tensor become out.NAME.npy and so on.
    """
    if path.suffix not in SUFFIXES:
        raise CommandError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}")
    if path.suffix == ".npz":
        np.savez(path, allow_pickle=False, **tensors)
        return dict.fromkeys(tensors, path)
    if path.suffix == ".safetensors":
        _write_safetensors(path, tensors)
        return dict.fromkeys(tensors, path)
    paths = {}
    for name, array in tensors.items():
        own = path if len(tensors) == 1 else path.with_name(f"{path.stem}.{name}{path.suffix}")
        if path.suffix == ".npy":
            np.save(own, array, allow_pickle=False)
        else:
            np.ascontiguousarray(array).tofile(own)
        paths[name] = own
    return paths


def _read_npy(file: TensorFile, _dtype: str | None, _shape: Shape | None) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(file.path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise CommandError(f"{file.path}: not a .npy file ({_first_line(error)})") from error
    return array


def _read_raw(file: TensorFile, dtype: str | None, shape: Shape | None) -> NDArray[Any]:
    own_dtype, _, own_shape = file.detail.partition(":")
    dtype = own_dtype or dtype
    if dtype is None:
        raise CommandError(f"{file}: raw data needs a dtype, as in {file.path}:float16:2,3,8,8")
    kind = parse_dtype(dtype)
    size = file.path.stat().st_size
    sizes = parse_shape(own_shape) if own_shape else shape
    if sizes is None:
        raise CommandError(f"{file}: raw data needs a shape, as in {file.path}:{dtype}:2,3,8,8")
    if math.prod(sizes) * kind.itemsize != size:
        raise CommandError(
            f"{file.path}: {size} bytes, expected {math.prod(sizes) * kind.itemsize} for "
            f"{dtype} {sizes}"
        )
    if size == 0:
        return np.empty(sizes, kind)
    return np.memmap(file.path, kind, "r", shape=sizes)


def _choose(file: TensorFile, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if file.detail in arrays:
        return arrays[file.detail]
    names = ", ".join(arrays) or "nothing"
    if file.detail:
        raise CommandError(f"{file.path}: has no {file.detail!r}, only {names}")
    if len(arrays) != 1:
        raise CommandError(f"{file.path}: name one of its arrays, as in {file.path}:NAME ({names})")
    return next(iter(arrays.values()))


def _as_bfloat16(
    file: TensorFile, array: NDArray[Any], own_dtype: str, dtype: str | None
) -> NDArray[Any]:
    """NumPy saves bfloat16 as two bytes without a meaning."""
    if own_dtype:
        if parse_dtype(own_dtype) != array.dtype and array.dtype.kind != "V":
            raise CommandError(f"{file}: dtype is {array.dtype}, not {own_dtype}")
        dtype = own_dtype
    if array.dtype.kind != "V" or array.dtype == DTYPES["bfloat16"]:
        return array
    if array.dtype.itemsize != 2 or dtype not in (None, "bfloat16"):
        raise CommandError(f"{file}: dtype is {array.dtype}, expected one of {', '.join(DTYPES)}")
    if dtype is None:
        raise CommandError(
            f"{file}: two-byte elements without a meaning; if they are bfloat16, say "
            f"{file.path}:bfloat16 or --dtype bfloat16"
        )
    return array.view(DTYPES["bfloat16"])


def _read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Eight bytes with the header's length, the header in JSON, then the elements."""
    known = {short: DTYPES[name] for name, short in SAFETENSORS_NAMES.items()}
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > path.stat().st_size:
            raise ValueError(f"its header would have {length} bytes")
        header = json.loads(stream.read(length))
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] not in known:
            continue
        begin, end = entry["data_offsets"]
        dtype, shape = known[entry["dtype"]], tuple(entry["shape"])
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name} has {end - begin} bytes, which is not {shape} of {dtype}")
        offset = 8 + length + begin
        tensors[name] = (
            np.memmap(path, dtype, "r", offset=offset, shape=shape)
            if end > begin
            else np.empty(shape, dtype)
        )
    return tensors


def _write_safetensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    header: dict[str, Any] = {}
    offset = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": SAFETENSORS_NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the elements begin at a multiple of eight bytes
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            np.ascontiguousarray(array).tofile(stream)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

"""Tensors in files: every kind, every dtype, and what is said about a file that is not right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from backops._command import CommandError
from backops._files import parse_shape, read_tensor, write_tensors
from tests.support.floats import DTYPES

SHAPE = (2, 3, 4)


def some_tensor(dtype: str) -> Any:
    return np.random.default_rng(0).standard_normal(SHAPE).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".bin"])
def test_what_is_written_is_read(tmp_path: Path, suffix: str, dtype: str) -> None:
    path = tmp_path / f"x{suffix}"
    tensor = some_tensor(dtype)
    assert write_tensors(path, {"grad_input": tensor}) == {"grad_input": path}
    got = read_tensor(str(path), dtype=dtype, shape=SHAPE)
    assert got.dtype == tensor.dtype
    assert got.tobytes() == tensor.tobytes()
    assert got.shape == SHAPE


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".bin"])
def test_large_files_are_mapped_not_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    write_tensors(path, {"x": some_tensor("float32")})
    base: Any = read_tensor(str(path), dtype="float32", shape=SHAPE)
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_several_tensors_in_files_for_one_get_their_names(tmp_path: Path) -> None:
    tensors = {"grad_input": some_tensor("float32"), "grad_bias": np.zeros(3, np.float32)}
    paths = write_tensors(tmp_path / "out.npy", tensors)
    names = {"grad_input": "out.grad_input.npy", "grad_bias": "out.grad_bias.npy"}
    assert {name: path.name for name, path in paths.items()} == names
    assert read_tensor(str(paths["grad_bias"])).shape == (3,)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_one_of_several_is_chosen_by_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"all{suffix}"
    write_tensors(path, {"a": np.zeros(2, np.float32), "b": np.ones(3, np.float32)})
    assert read_tensor(f"{path}:b").tolist() == [1, 1, 1]
    with pytest.raises(CommandError, match="name one of its arrays"):
        read_tensor(str(path))
    with pytest.raises(CommandError, match="has no 'c', only a, b"):
        read_tensor(f"{path}:c")


def test_safetensors_are_those_of_the_package(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    tensors = {"x": some_tensor("float32"), "y": some_tensor("float16")}
    write_tensors(ours, tensors)
    safetensors.numpy.save_file(tensors, theirs)
    for name, tensor in safetensors.numpy.load_file(ours).items():
        assert tensor.tobytes() == tensors[name].tobytes()
        assert read_tensor(f"{theirs}:{name}").tobytes() == tensors[name].tobytes()


def test_raw_data_names_dtype_and_shape_itself(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write_tensors(path, {"x": some_tensor("bfloat16")})
    assert read_tensor(f"{path}:bfloat16:2,3,4").tobytes() == some_tensor("bfloat16").tobytes()
    assert read_tensor(f"{path}:bfloat16:4x6").shape == (4, 6)


def test_bfloat16_of_numpy_needs_to_be_said(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    write_tensors(path, {"x": some_tensor("bfloat16")})
    with pytest.raises(CommandError, match="bfloat16 or --dtype bfloat16"):
        read_tensor(str(path))
    assert read_tensor(f"{path}:bfloat16").dtype.name == "bfloat16"


def test_dtype_option_does_not_relabel_files_that_know_theirs(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    write_tensors(path, {"x": some_tensor("float32")})
    assert read_tensor(str(path), dtype="bfloat16").dtype == np.float32
    with pytest.raises(CommandError, match="dtype is float32, not float16"):
        read_tensor(f"{path}:float16")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"", "expected a file that ends in"),
        ("x.npy", b"nonsense", "not a .npy file"),
        ("x.npz", b"nonsense", "not a .npz file"),
        ("x.safetensors", b"nonsense", "not a .safetensors file"),
        ("x.safetensors", b"", "not a .safetensors file"),
        ("x.bin", b"1234", "raw data needs a dtype"),
        ("x.bin:float32", b"1234", "raw data needs a shape"),
        ("x.bin:float32:2,2", b"1234", "4 bytes, expected 16"),
        ("x.bin:int8:4", b"1234", "'int8' is not a dtype"),
        ("x.bin:float32:a", b"1234", "'a' is not a shape"),
    ],
)
def test_bad_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name.partition(":")[0]).write_bytes(content)
    with pytest.raises(CommandError, match=message):
        read_tensor(f"{tmp_path}/{name}")


def test_integers_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    with pytest.raises(CommandError, match="dtype is int64"):
        read_tensor(f"{tmp_path}/x.npy")


def test_missing_file() -> None:
    with pytest.raises(CommandError, match="no such file"):
        read_tensor("/no/such/x.npy")


def test_shapes() -> None:
    assert parse_shape("2,3,8") == parse_shape("2x3x8") == (2, 3, 8)

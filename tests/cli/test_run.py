"""`backops run`: every operator on files gives what the functions give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backops
from backops.__main__ import main
from backops._files import read_tensor
from tests.support.floats import DTYPES


def save(path: Path, array: Any) -> str:
    np.save(path, array)
    return str(path)


def random(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_pooling_with_every_parameter(tmp_path: Path, dtype: str) -> None:
    grad = random((2, 3, 5, 5), dtype)
    out = tmp_path / "out.safetensors"
    arguments = ["--grad-output", save(tmp_path / "g.npy", grad), "--input", "2,3,9,10"]
    arguments += ["--kernel-size", "3,2", "--stride", "2", "--padding", "1", "--ceil-mode"]
    arguments += ["--no-count-include-pad", "--divisor-override", "-3", "--dtype", dtype]
    grad = random((2, 3, 5, 6), dtype)
    save(tmp_path / "g.npy", grad)
    assert main(["run", "avg_pool2d_backward", *arguments, "-o", str(out)]) == 0
    wanted = backops.avg_pool2d_backward(
        grad, (2, 3, 9, 10), (3, 2), 2, 1,
        ceil_mode=True, count_include_pad=False, divisor_override=-3,
    )  # fmt: skip
    got = read_tensor(str(out))
    assert got.dtype == wanted.dtype
    assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_pooling(tmp_path: Path, rank: int) -> None:
    grad = random((2, 3, *(3,) * rank))
    shape = (2, 3, *(7,) * rank)
    operator = f"adaptive_avg_pool{rank}d_backward"
    arguments = ["--grad-output", save(tmp_path / "g.npy", grad)]
    arguments += ["--input", ",".join(map(str, shape)), "-o", str(tmp_path / "out.npy")]
    assert main(["run", operator, *arguments]) == 0
    wanted = getattr(backops, operator)(grad, shape)
    assert np.array_equal(np.load(tmp_path / "out.npy"), wanted)


def test_convolution_writes_its_gradients(tmp_path: Path) -> None:
    grad, x, w = random((2, 6, 4, 4)), random((2, 4, 9, 9)), random((6, 2, 3, 3))
    wanted = backops.conv_backward(grad, x, w, stride=2, dilation=1, groups=2)
    arguments = ["--grad-output", save(tmp_path / "g.npy", grad)]
    arguments += ["--input", save(tmp_path / "x.npy", x), "--weight", save(tmp_path / "w.npy", w)]
    arguments += ["--stride", "2", "--groups", "2", "--dilation", "1"]
    assert main(["run", "conv_backward", *arguments, "-o", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as held:
        for name, array in zip(("grad_input", "grad_weight", "grad_bias"), wanted, strict=True):
            assert np.array_equal(held[name], array)


def test_masked_gradients_are_not_written_and_shapes_will_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grad = random((2, 6, 7, 7))
    arguments = ["--grad-output", save(tmp_path / "g.npy", grad), "--input", "2,4,9,9"]
    arguments += ["--weight", "6,4,3,3", "--output-mask", "0,0,1"]
    assert main(["run", "conv_backward", *arguments, "-o", str(tmp_path / "bias.bin")]) == 0
    wanted = backops.conv_backward(
        grad, (2, 4, 9, 9), (6, 4, 3, 3), output_mask=(False, False, True)
    )
    assert (tmp_path / "bias.bin").read_bytes() == wanted[2].tobytes()
    assert "bias.bin: grad_bias (6,) float32" in capsys.readouterr().out


def test_precision_is_passed_on(tmp_path: Path) -> None:
    grad = random((1, 1, 4, 4))
    arguments = ["--grad-output", save(tmp_path / "g.npy", grad), "--input", "1,1,8,8"]
    arguments += ["--kernel-size", "2", "--precision", "hf32", "-o", str(tmp_path / "out.npy")]
    assert main(["run", "avg_pool2d_backward", *arguments]) == 0
    wanted = backops.avg_pool2d_backward(grad, (1, 1, 8, 8), 2, precision="hf32")
    assert np.array_equal(np.load(tmp_path / "out.npy"), wanted)
    assert not np.array_equal(wanted, backops.avg_pool2d_backward(grad, (1, 1, 8, 8), 2))


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nonsense"], 2, "nonsense"),
        (["avg_pool2d_backward"], 2, "--grad-output is required"),
        (["avg_pool2d_backward", "--input", "1,1,8,8"], 2, "needs kernel_size"),
        (["avg_pool2d_backward", "--input", "1,1,8,8", "--kernel-size", "a"], 2, "not an integer"),
        (["avg_pool2d_backward", "--input", "1,1,8,8", "--groups", "2"], 2, "has no groups"),
        (["avg_pool2d_backward", "--input", "8", "--kernel-size", "2"], 2, "3 or 4 dimensions"),
        (["conv_backward", "--input", "1,1,8,8"], 2, "needs a weight"),
        (["conv_backward", "--input", "1,1,8,8", "--output-mask", "1"], 2, "three of 0 and 1"),
        (["avg_pool2d_backward", "--input", "x.npy", "--kernel-size", "2"], 1, "no such file"),
        (["avg_pool2d_backward", "--input", "1,1,9,9", "--kernel-size", "2"], 0, ""),
        (["avg_pool2d_backward", "--input", "1,1,6,6", "--kernel-size", "2"], 1, "pools to"),
    ],
)
def test_error_is_one_line(
    arguments: list[str],
    status: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ["-o", str(tmp_path / "out.npy")]
    if len(arguments) > 1:
        more += ["--grad-output", save(tmp_path / "g.npy", random((1, 1, 4, 4)))]
    assert main(["run", *arguments, *more]) == status
    shown = capsys.readouterr().err
    assert message in shown
    if status:
        assert shown.startswith("backops run: ")
        assert shown.count("\n") == 1

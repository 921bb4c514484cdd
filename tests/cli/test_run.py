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


@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_pooling(tmp_path: Path, dtype: str) -> None:
    x = random((2, 3, 9, 10), dtype)
    arguments = ["--input", save(tmp_path / "x.npy", x), "--dtype", dtype]
    fixed = ["--kernel-size", "3,2", "--stride", "2", "--padding", "1", "--ceil-mode"]
    fixed += ["--no-count-include-pad", "-o", str(tmp_path / "fixed.safetensors")]
    assert main(["run", "avg_pool2d", *arguments, *fixed]) == 0
    wanted = backops.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False)
    assert read_tensor(str(tmp_path / "fixed.safetensors")).tobytes() == wanted.tobytes()
    for text, size in (("4", 4), ("4,7", (4, 7)), ("none,3", (None, 3))):
        adaptive = ["--output-size", text, "-o", str(tmp_path / "adaptive.safetensors")]
        assert main(["run", "adaptive_avg_pool2d", *arguments, *adaptive]) == 0
        got = read_tensor(str(tmp_path / "adaptive.safetensors"))
        assert got.tobytes() == backops.adaptive_avg_pool2d(x, size).tobytes()


def test_forward_convolutions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, w = random((2, 4, 9, 9)), random((4, 2, 3, 3))
    wide, narrow = random((4,)), random((2,))
    x.tofile(tmp_path / "x.bin")
    raw = ["--input", str(tmp_path / "x.bin"), "--dtype", "float32", "--shape", "2,4,9,9"]
    raw += ["--weight", save(tmp_path / "w.npy", w), "--stride", "2"]
    out = tmp_path / "out.npy"
    more = ["--groups", "2", "--bias", save(tmp_path / "b.npy", wide), "-o", str(out)]
    assert main(["run", "conv", *raw, *more]) == 0
    assert np.array_equal(np.load(out), backops.conv(x, w, wide, stride=2, groups=2))
    assert "out.npy: output (2, 4, 4, 4) float32" in capsys.readouterr().out
    more = ["--output-padding", "1", "--bias", save(tmp_path / "b.npy", narrow), "-o", str(out)]
    assert main(["run", "conv_transpose", *raw, *more]) == 0
    wanted = backops.conv_transpose(x, w, narrow, stride=2, output_padding=1)
    assert np.array_equal(np.load(out), wanted)
    # Both without a bias.
    assert main(["run", "conv_transpose", *raw, "-o", str(out)]) == 0
    assert np.array_equal(np.load(out), backops.conv_transpose(x, w, stride=2))


def test_gradients_of_a_transposed_convolution(tmp_path: Path) -> None:
    x, w, grad = random((2, 4, 5)), random((4, 3, 3)), random((2, 3, 12))
    arguments = ["--grad-output", save(tmp_path / "g.npy", grad), "--stride", "2"]
    arguments += ["--input", save(tmp_path / "x.npy", x), "--weight", save(tmp_path / "w.npy", w)]
    arguments += ["--output-padding", "1", "-o", str(tmp_path / "out.npz")]
    assert main(["run", "conv_transpose_backward", *arguments]) == 0
    wanted = backops.conv_transpose_backward(grad, x, w, stride=2, output_padding=1)
    with np.load(tmp_path / "out.npz") as held:
        for name, array in zip(("grad_input", "grad_weight", "grad_bias"), wanted, strict=True):
            assert np.array_equal(held[name], array)


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
        (["avg_pool2d", "--input", "1,1,6,6", "--kernel-size", "2"], 2, "has no grad_output"),
        (
            ["avg_pool2d_backward", "--input", "1,1,8,8", "--kernel-size", "2", "--bias", "GRAD"],
            2,
            "has no bias",
        ),
        (
            ["conv_backward", "--input", "1,1,4,4", "--weight", "1,1,1,1", "--output-padding", "1"],
            2,
            "has no output_padding",
        ),
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
    arguments = [text.replace("GRAD", str(tmp_path / "g.npy")) for text in arguments]
    if len(arguments) > 1:
        more += ["--grad-output", save(tmp_path / "g.npy", random((1, 1, 4, 4)))]
    assert main(["run", *arguments, *more]) == status
    shown = capsys.readouterr().err
    assert message in shown
    if status:
        assert shown.startswith("backops run: ")
        assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["avg_pool2d", "--kernel-size", "2"], "--input is required"),
        (["avg_pool2d", "--input", "1,1,8,8", "--kernel-size", "2"], "input is a shape"),
        (["adaptive_avg_pool2d", "--input", "X"], "needs output_size"),
        (["adaptive_avg_pool2d", "--input", "X", "--output-size", "a"], "not an integer"),
        (["conv", "--input", "X"], "conv needs a weight"),
        (["conv", "--input", "X", "--weight", "1,1,3,3"], "weight is a shape"),
    ],
)
def test_bad_forward_call_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "x.npy", random((1, 1, 8, 8)))
    given = [path if text == "X" else text for text in arguments]
    assert main(["run", *given, "-o", str(tmp_path / "out.npy")]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1

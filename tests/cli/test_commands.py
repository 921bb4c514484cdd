"""The command line: help, one-line errors, and small runs of each command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import backops
from backops import acl, infiniop
from backops.__main__ import main

COMMANDS = [
    ["run"],
    ["verify"],
    ["bench"],
    ["bench", "pool"],
    ["bench", "conv"],
    ["bench", "all"],
    ["bench", "layers"],
    ["bench", "pool-forward"],
    ["bench", "forward"],
    ["bench", "transposed"],
    ["info"],
    ["demo"],
    ["env"],
]
ONE_SHORT_TURN = ["--seconds", "0", "--repeats", "1"]


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_help_shows_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert "example: " in capsys.readouterr().out


def example_of(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*command, "--help"]) == 0
    return textwrap.dedent("         " + capsys.readouterr().out.partition("example: ")[2])


@pytest.mark.parametrize("command", [command for command in COMMANDS if len(command) == 2])
def test_example_of_a_benchmark_works(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process, which has PyTorch loaded, and cut short."""
    program, *arguments = shlex.split(example_of(command, capsys))
    assert program == "backops"
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, *ONE_SHORT_TURN]) == 0
    if command == ["bench", "all"]:
        assert example_of(["bench"], capsys) == example_of(command, capsys)


@pytest.mark.parametrize("command", [[], ["run"], ["verify"], ["info"], ["demo"], ["env"]])
def test_example_of_the_help_works_when_pasted(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = example_of(command, capsys)
    assert "backops" in example
    # What a shell finds after an installation.
    bin = tmp_path / "bin"
    bin.mkdir()
    for name, module in (("python", ""), ("backops", " -m backops")):
        (bin / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
        (bin / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-e", "-c", example],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr


def test_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "backops", "info"], capture_output=True, text=True, check=True
    )
    assert backops.__version__ in done.stdout


def test_info_names_what_a_measurement_depends_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    for name in ("backops:", "instruction set:", "threads:", "CPU:", "numpy:", "torch:"):
        assert name in shown
    assert f"InfiniOp:         {infiniop.root()}\n" in shown
    assert f"CANN:             {acl.root()}\n" in shown


def test_info_has_a_line_for_each_engine_and_tells_what_the_cpu_has() -> None:
    def info(isa: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "backops", "info"],
            capture_output=True, text=True, check=True, env=os.environ | {"BACKOPS_ISA": isa},
        ).stdout  # fmt: skip

    shown = info("")
    for name, takes in backops._native.conv_engines():
        assert f"engine {name + ':':<10} {takes}" in shown
    assert f"capabilities:     {backops._native.capabilities() or 'none'}\n" in shown
    assert "capabilities:     none\n" in info("generic")


@pytest.mark.parametrize("part", ["pool", "pool-forward"])
def test_bench_pool_prints_lines_and_writes_json(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pool.json"
    assert main(["bench", part, "--filter", "toy", "--json", str(path), *ONE_SHORT_TURN]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("toy ") for line in lines) == 3 + 2  # dtypes, summary rows
    document = json.loads(path.read_text(encoding="utf-8"))
    assert {result["dtype"] for result in document["results"]} == {"float32", "bfloat16", "float16"}
    assert all(result["seconds"] > 0 and result["ratio"] > 0 for result in document["results"])
    assert all(result["kernel"] for result in document["results"])
    assert document["environment"]["backops"] == backops.__version__


def test_bench_conv_prints_lines_and_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "conv.json"
    arguments = ["bench", "conv", "--filter", "toy", "--json", str(path), *ONE_SHORT_TURN]
    # A process of its own: what keeps PyTorch's bfloat16 alive comes before its first convolution.
    done = subprocess.run(
        [sys.executable, "-m", "backops", *arguments], capture_output=True, text=True, check=True
    )
    assert sum(line.startswith("toy ") for line in done.stdout.splitlines()) == 3
    document = json.loads(path.read_text(encoding="utf-8"))
    assert [result["dtype"] for result in document["results"]] == ["float32", "bfloat16", "float16"]
    for result in document["results"]:
        assert result["kernel"]
        for figure in ("seconds", "ratio", "share_of_bound", "plan_seconds", "flops"):
            assert result[figure] > 0


def test_bench_all_measures_pooling_and_convolution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all.json"
    arguments = ["--filter", "toy", "--dtype", "float32", "--json", str(path), *ONE_SHORT_TURN]
    assert main(["bench", "all", *arguments]) == 0
    assert capsys.readouterr().out.count("\nsummary ") == 2
    document = json.loads(path.read_text(encoding="utf-8"))
    assert ["gradients" in result for result in document["results"]] == [False, True]
    figures = {row["figure"] for row in document["summary"]}
    assert {"toy against PyTorch", "slowest plan creation, ms"} <= figures


def test_bench_pool_restores_the_number_of_threads() -> None:
    before = backops.get_num_threads()
    arguments = ["--filter", "toy", "--dtype", "float32", "--threads", "1", *ONE_SHORT_TURN]
    assert main(["bench", "pool", *arguments]) == 0
    assert backops.get_num_threads() == before


@pytest.mark.parametrize(
    ("part", "operator"), [("pool", "avg_pool2d_backward"), ("pool-forward", "avg_pool2d")]
)
def test_bench_pool_catches_a_wrong_result(
    part: str,
    operator: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    correct: Any = getattr(backops, operator)

    def flipped_padding_rule(*arguments: Any, **keywords: Any) -> Any:
        return correct(*arguments, count_include_pad=False, **keywords)

    monkeypatch.setattr(backops, operator, flipped_padding_rule)
    assert main(["bench", part, "--filter", "toy", *ONE_SHORT_TURN]) == 1
    assert "differs from PyTorch" in capsys.readouterr().err


def test_bench_conv_catches_a_wrong_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    correct: Any = backops.conv_backward

    def swapped_taps(*arguments: Any, **keywords: Any) -> Any:
        grad_input, grad_weight, grad_bias = correct(*arguments, **keywords)
        return grad_input, grad_weight.flip(-1), grad_bias

    monkeypatch.setattr(backops, "conv_backward", swapped_taps)
    arguments = ["--filter", "toy", "--dtype", "float32", *ONE_SHORT_TURN]
    assert main(["bench", "conv", *arguments]) == 1
    assert "grad_weight: differs from PyTorch" in capsys.readouterr().err


def test_demo_covers_every_gradient_and_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quick"]) == 0
    shown = capsys.readouterr().out
    for rank in (1, 2, 3):
        assert f"\navg_pool{rank}d_backward" in shown
        assert f"\nadaptive_avg_pool{rank}d_backward" in shown
    for name in ("avg_pool2d ", "conv_backward ", "conv "):
        assert shown.count(f"\n{name}") == 4  # dtypes
    assert "largest error" in shown


@pytest.mark.parametrize("name", ["avg_pool2d", "conv"])
def test_demo_tells_a_wrong_forward_result(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = getattr(backops, name)

    def wrong(*arguments: Any, out: Any = None, **parameters: Any) -> Any:
        result = right(*arguments, out=out, **parameters)
        result[0, 0] *= 1.5
        return result

    monkeypatch.setattr(backops, name, wrong)
    assert main(["demo", "--quick"]) == 1
    assert f"{name}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "required"),
        (["bench"], 2, "required"),
        (["nonsense"], 2, "nonsense"),
        (["env"], 2, "required"),
        (["env", "nonsense"], 2, "nonsense"),
        (["bench", "pool", "--threads", "0"], 2, "not a positive integer"),
        (["bench", "pool", "--seconds", "nan"], 2, "not a number of seconds"),
        (["bench", "pool", "--dtype", "int8"], 2, "int8"),
        (["bench", "pool", "--filter", "no such case"], 1, "no such case"),
        (["bench", "all", "--filter", "no such case"], 1, "no such case"),
        (["bench", "pool", "--filter", "toy", "--json", "/no/such/folder/x"], 1, "No such file"),
    ],
)
def test_error_is_one_line(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.startswith("backops")
    assert shown.count("\n") == 1


def test_debug_shows_the_traceback() -> None:
    from backops._bench import CommandError

    with pytest.raises(CommandError, match="no such case"):
        main(["bench", "pool", "--filter", "no such case", "--debug"])

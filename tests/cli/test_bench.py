"""The benchmark's own parts: its cases, its clock, its summary, and how it survives PyTorch."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from backops.__main__ import main
from backops._bench import (
    CommandError,
    conv,
    conv_report,
    layers,
    plot,
    problems,
    pytorch,
    report,
    run,
    timing,
)
from backops._bench.progress import Progress
from tests.support.paths import ROOT


def test_measurement_beside_a_busy_neighbour_is_repeated_and_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preemptions = count(step=1_000_000)
    monkeypatch.setattr(timing, "_preemptions", lambda: next(preemptions))
    measurement = timing.fastest({"side": lambda: None}, timing.Budget(seconds=0.0, rounds=1))
    assert measurement.disturbed
    # Before and after the first call, and each attempt.
    assert next(preemptions) == 2 * (1 + timing.MAX_ATTEMPTS) * 1_000_000
    assert 0 < measurement.seconds["side"] < 1


def test_long_call_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(timing, "LONG_CALL_SECONDS", 0.0)
    monkeypatch.setattr(timing, "_preemptions", lambda: 0)
    sides = {"side": lambda: calls.append("side"), "other": lambda: calls.append("other")}
    measurement = timing.fastest(sides, timing.Budget(seconds=0.0, rounds=3))
    assert calls == ["side", "other"]
    assert all(seconds > 0 for seconds in measurement.seconds.values())
    assert not measurement.disturbed


@pytest.mark.parametrize(("bad_calls", "made", "disturbed"), [(1, 2, False), (3, 3, True)])
def test_disturbed_long_call_is_made_again(
    bad_calls: int, made: int, disturbed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(timing, "LONG_CALL_SECONDS", 0.0)
    monkeypatch.setattr(timing, "_preemptions", lambda: 1_000_000 * min(len(calls), bad_calls))
    sides = {"side": lambda: calls.append("side")}
    measurement = timing.fastest(sides, timing.Budget(seconds=0.0, rounds=1))
    assert len(calls) == made
    assert measurement.disturbed == disturbed


@pytest.mark.parametrize(
    ("seconds", "rounds", "settled_rounds", "goes_on"),
    [
        (0.5, 5, 5, True),  # seconds are left
        (1.5, 2, 2, True),  # rounds are missing
        (1.5, 5, 3, False),
        (1.5, 5, 2, True),  # a minimum fell just now
        (4.5, 5, 0, False),  # and still does
    ],
)
def test_turns_go_on_until_the_minima_are_settled(
    seconds: float, rounds: int, settled_rounds: int, goes_on: bool
) -> None:
    budget = timing.Budget(seconds=1.0, rounds=3)
    assert timing._goes_on(budget, seconds, rounds, settled_rounds) == goes_on


def test_falling_minimum_is_measured_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter([8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    monkeypatch.setattr(timing, "_preemptions", lambda: 0)
    monkeypatch.setattr(timing, "_calls_per_sample", lambda call: 1)
    monkeypatch.setattr(timing, "_take_turn", lambda call, calls: next(turns))
    monkeypatch.setattr(timing, "MAX_EXTENSION", math.inf)
    measurement = timing.fastest({"side": lambda: None}, timing.Budget(seconds=1e-9, rounds=2))
    assert measurement.seconds["side"] == 1.0
    assert list(turns) == [1.0]


def test_filter_leaves_out_a_part_without_cases() -> None:
    selected = run.select_cases(("pool", "conv"), ("float32",), "depthwise_3x3")
    assert list(selected) == ["conv"]
    assert [case.layout for case in selected["conv"]] == ["contiguous", "channels_last"]


# Convolution


def conv_case(text: str) -> problems.ConvCase:
    return next(case for case in problems.conv_cases(["float32"]) if text in case.label)


@pytest.mark.parametrize(
    ("name", "output_shape"),
    [
        ("stem", (16, 64, 112, 112)),
        ("dilated", (8, 64, 33, 33)),
        ("video", (2, 64, 16, 56, 56)),
        ("toy", (2, 8, 12)),
    ],
)
def test_output_shape_of_a_convolution(name: str, output_shape: tuple[int, ...]) -> None:
    assert conv_case(name).problem.output_shape == output_shape


def test_operations_of_each_gradient_add_up() -> None:
    outputs = 16 * 192 * 28 * 28
    both = 2 * outputs * 7 * 7
    each = {"input": both, "weight": both, "bias": outputs, "all": 2 * both + outputs}
    for gradients, flops in each.items():
        assert conv_case(f"s1p3g192 float32 contiguous {gradients}").flops == flops


def test_layers_held_against_a_matrix_product() -> None:
    cases = problems.conv_cases(["float32"])
    dense = {case.problem.name for case in cases if case.problem.dense_3x3}
    assert dense == {"basic_56", "strided_56", "basic_14", "basic_7", "dilated", "one_image"}


def output_shape_in_pytorch(problem: problems.ConvProblem) -> tuple[int, ...]:
    """Of a convolution without memory."""
    import torch

    input, weight = (
        torch.empty(shape, device="meta") for shape in (problem.input_shape, problem.weight_shape)
    )
    conv = getattr(torch.nn.functional, f"conv{problem.rank}d")
    return tuple(conv(input, weight, **problem.keywords).shape)


@pytest.mark.parametrize(
    ("parameters", "spatial"), [("s1p1", (8, 9)), ("s2p1", (4, 5)), ("s2x1p0x1d3x1", (1, 9))]
)
def test_axes_have_numbers_of_their_own(parameters: str, spatial: tuple[int, ...]) -> None:
    problem = problems.parse_conv_problem(f"name 1x2x8x9 3x2x3x3 {parameters}")
    assert problem.output_shape == (1, 3, *spatial)
    assert output_shape_in_pytorch(problem) == problem.output_shape


@pytest.mark.parametrize("end", ["s1p1 chanels_last", "s1xp1", "s1p1x1x1"])
def test_line_that_cannot_be_meant_is_an_error(end: str) -> None:
    with pytest.raises(ValueError, match=r"^name: .*expected"):
        _ = problems.parse_conv_problem(f"name 1x2x8x9 3x2x3x3 {end}").output_shape


@pytest.mark.parametrize("wrong", [(), ("float32",), ("float32", "float64")])
def test_pytorchs_float64_has_the_last_word(
    wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    correct = conv.pytorchs

    def sloppy(module: Any, case: problems.ConvCase, tensors: Any) -> Any:
        off = str(tensors[0].dtype).removeprefix("torch.") in wrong
        return lambda: [gradient + off for gradient in correct(module, case, tensors)()]

    monkeypatch.setattr(conv, "pytorchs", sloppy)
    case = conv_case("toy")
    tensors = conv.make_tensors(torch, case)
    if "float64" in wrong:
        with pytest.raises(CommandError, match="grad_input: differs from PyTorch"):
            conv.check_results(torch, case, tensors)
    else:
        conv.check_results(torch, case, tensors)


def conv_values(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "name": "layer",
        "problem": "",
        "dtype": "float32",
        "layout": "contiguous",
        "gradients": "all",
        "threads": 1,
        "kernel": "",
        "dense_3x3": False,
        "flops": 1,
        "plan_seconds": 0.002,
        "seconds": 1.0,
        "bound_seconds": 0.5,
        "pytorch_seconds": 2.0,
        "disturbed": False,
    }
    return usual | changes


def conv_result(**changes: Any) -> conv_report.ConvResult:
    return conv_report.ConvResult(**conv_values(**changes))


def test_summary_of_convolutions() -> None:
    results = [
        conv_result(pytorch_seconds=8.0, bound_seconds=0.1),
        conv_result(name="dense", dense_3x3=True, plan_seconds=0.040),
        conv_result(gradients="bias", dense_3x3=True, pytorch_seconds=0.9, bound_seconds=0.0),
        conv_result(dtype="float16", pytorch_seconds=100.0),
    ]
    rows = [
        (row.figure, row.dtypes, pytest.approx(row.value), row.reached, row.where)
        for row in conv_report.summarize(results)
    ]
    mean, layer = "geometric mean against PyTorch", "worst layer against PyTorch"
    alone = "worst single gradient against PyTorch"
    share = "smallest share of matrix rate, 3x3, 64 channels"
    half = "layer float16 contiguous all"
    assert rows == [
        (mean, "float32", 4.0, True, "2 cases"),
        (layer, "float32", 2.0, True, "dense float32 contiguous all"),
        (alone, "float32", 0.9, False, "layer float32 contiguous bias"),
        (share, "float32", 0.5, False, "dense float32 contiguous all"),
        (mean, "float16", 100.0, True, "1 cases"),
        (layer, "float16", 100.0, True, half),
        ("slowest plan creation, ms", "all", 40.0, False, "dense float32 contiguous all"),
    ]


@pytest.mark.parametrize(
    ("program", "setting"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "AVX512_CORE_FP16"),
        ("raise SystemExit(1)", "ALL"),
        ("", "ALL"),
    ],
    ids=["dies", "fails", "works"],
)
def test_onednn_is_limited_where_pytorch_dies(
    program: str,
    setting: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "ALL")
    monkeypatch.setattr(pytorch, "BFLOAT16_CONVOLUTION", program)
    pytorch.survive_bfloat16()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == setting
    assert capsys.readouterr().out.count("\n") == (setting != "ALL")


# Layers of networks


def layer_problems() -> list[problems.ConvProblem]:
    return list(dict.fromkeys(case.problem for case in problems.layer_cases(["float32"])))


def test_layers_are_many_distinct_and_legal() -> None:
    all_problems = layer_problems()
    names = [problem.name for problem in all_problems]
    assert len(set(names)) == len(names) >= 150
    networks = {name.split("/")[0] for name in names if re.fullmatch(r"\w+/[\w.]+", name)}
    assert len(networks - {"odd"}) >= 20
    assert all(name.split("/")[0] in networks for name in names)
    assert len({(p.input_shape, p.weight_shape, p.parameters) for p in all_problems}) == len(names)
    for problem in all_problems:
        assert output_shape_in_pytorch(problem) == problem.output_shape


WEAK_SPOTS = [
    "(4,64,16000) (64,1,31) s1p15g64",
    "(2,32,24000) (32,1,15) s1p7g32",
    "(16,256,28,28) (256,8,3,3) s1p1g32",
    "(8,48,56,56) (48,8,3,3) s1p1g6",
    "(16,64,56,56) (5,64,1,1) s1p0",
    "(1,64,256,256) (2,64,1,1) s1p0",
    "(16,8,22,500) (16,1,22,1) s1p0g8",
    "(16,64,56,56) (1,64,3,3) s1p1",
    "(16,20,56,56) (20,20,3,3) s1p1",
    "(16,36,56,56) (36,36,3,3) s1p1",
]


def test_layers_that_were_slow_once_are_measured() -> None:
    all_problems = layer_problems()
    assert set(WEAK_SPOTS) <= {problem.description for problem in all_problems}
    dense = {
        p.weight_shape[0] for p in all_problems if p.weight_shape[:2] == p.input_shape[1:2] * 2
    }
    assert {*range(17, 27), *range(33, 40), *range(49, 53), 65} <= dense
    groups = {p.weight_shape[1] for p in all_problems if p.keywords["groups"] > 1}
    assert {*range(5, 16)} <= groups


def test_first_layers_are_also_measured_without_the_gradient_of_the_input() -> None:
    cases = [c for c in problems.layer_cases(["float32"]) if c.problem.name == "lenet5/conv1"]
    assert [case.output_mask for case in cases] == [(True, True, True), (False, True, True)]
    both, parameters = (case.flops for case in cases)
    outputs = 256 * 6 * 28 * 28
    assert (both, parameters) == (4 * outputs * 25 + outputs, 2 * outputs * 25 + outputs)


def test_summary_of_layers() -> None:
    results = [
        layers.LayerResult(**conv_values(name=name, dtype=dtype, gradients=gradients,
                                         pytorch_seconds=ratio, choice=choice))
        for name, dtype, gradients, ratio, choice in [
            ("one", "float32", "all", 8.0, ""),
            ("two", "float32", "all", 0.5, "wrong choice"),
            ("three", "float32", "all", 1.0, ""),
            ("four", "float32", "all", 0.99, ""),
            ("one", "float32", "parameters", 0.1, "wrong choice"),
            ("one", "bfloat16", "all", 3.0, ""),
        ]
    ]  # fmt: skip
    rows = [
        (row.figure, row.dtypes, pytest.approx(row.value), row.reached, row.where)
        for row in layers.summarize(results)
    ]
    mean, worst = "geometric mean against PyTorch", "worst layer against PyTorch"
    slower, wrong = "layers slower than PyTorch", "wrong choices of backops.torch"
    assert rows == [
        (mean, "float32", 3.96**0.25, True, "4 cases"),
        (worst, "float32", 0.5, False, "two float32 contiguous all"),
        (slower, "float32", 2, False, "of 4 cases"),
        (wrong, "float32", 2, False, "of 5 cases"),
        (mean, "bfloat16", 3.0, True, "1 cases"),
        (worst, "bfloat16", 3.0, True, "one bfloat16 contiguous all"),
        (slower, "bfloat16", 0, True, "of 1 cases"),
        (wrong, "bfloat16", 0, True, "of 1 cases"),
    ]
    lines = report.format_summary(layers.summarize(results)).splitlines()
    assert re.search(r"slower than PyTorch +float32 +2  at most 0 +missed", lines[3])


@pytest.mark.parametrize(
    ("chosen", "ratio", "wrong"),
    [
        (True, 0.9, True),
        (True, 0.97, False),
        (True, 2.0, False),
        (False, 0.9, False),
        (False, 1.03, False),
        (False, 1.1, True),
    ],
)
def test_choice_is_wrong_where_the_other_side_is_clearly_faster(
    chosen: bool, ratio: float, wrong: bool
) -> None:
    assert bool(layers.judge(chosen, ratio)) == wrong


def test_choice_is_that_of_backops_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from backops.torch import choice, rules

    def chosen(text: str, cases_of: Any = problems.layer_cases) -> bool:
        cases = cases_of(["float32"])
        return layers.is_chosen(torch, next(case for case in cases if text in case.label))

    some = (
        rules.Rule("", (torch.float32,), inputs=(1, 1), depthwise=False, wants_input=False),
        rules.Rule("", (torch.float32,), depthwise=True, channels_last=True),
    )
    cpu = rules.capability()
    monkeypatch.setattr(rules, "PYTORCH_IS_FASTER", {("conv_backward", cpu): some})
    monkeypatch.setattr(rules, "BACKOPS_IS_FASTER", {("conv", cpu): some[1:]})
    choice._is_faster.cache_clear()
    first = "lenet5/conv1 (256,1,28,28) (6,1,5,5) s1p2 float32 contiguous"
    assert chosen(f"{first} all")
    assert not chosen(f"{first} parameters")
    assert chosen("(32,58,28,28) (58,1,3,3) s1p1g58 float32 contiguous")
    assert not chosen("(32,58,28,28) (58,1,3,3) s1p1g58 float32 channels_last")
    assert not chosen("(58,1,3,3) s1p1g58 float32 contiguous", problems.forward_cases)
    assert chosen("(58,1,3,3) s1p1g58 float32 channels_last", problems.forward_cases)
    assert chosen("float32 contiguous all", problems.transposed_cases)
    assert not chosen("float32 contiguous output", problems.transposed_cases)
    choice._is_faster.cache_clear()


def test_rules_are_held_against_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from backops._bench import rules as held
    from backops.torch import choice, rules

    good, bad, idle = (
        rules.Rule("", (torch.float32,), inputs=(1, 1), wants_input=False),
        rules.Rule("", (torch.float32,), inputs=(6, 6)),
        rules.Rule("", (torch.bfloat16,)),
    )
    table = {("conv_backward", rules.capability()): (good, bad, idle)}
    monkeypatch.setattr(rules, "PYTORCH_IS_FASTER", table)
    wins = rules.Rule("", (torch.float32,), inputs=(6, 6), strided=False)
    monkeypatch.setattr(rules, "BACKOPS_IS_FASTER", {("conv", rules.capability()): (wins,)})
    choice._is_faster.cache_clear()
    common = {"dtype": "float32", "layout": "contiguous", "gradients": "all", "disturbed": False}
    first = {"name": "lenet5/conv1", "problem": "(256,1,28,28) (6,1,5,5) s1p2"}
    results = [
        {**common, **first, "gradients": "parameters", "ratio": 0.5},
        {**common, **first, "ratio": 0.25},
        {**common, **first, "ratio": 0.1, "disturbed": True},
        {**common, "name": "lenet5/conv2", "problem": "(256,6,14,14) (16,6,5,5) s1p0",
         "ratio": 4.0},
        {**common, **first, "gradients": "output", "ratio": 0.5},
        {**common, "name": "lenet5/conv2", "problem": "(256,6,14,14) (16,6,5,5) s1p0",
         "gradients": "output", "ratio": 3.0},
        {**common, "name": "gone", "problem": "(1,1)", "ratio": 0.1},
    ]  # fmt: skip
    lines = [*held.report(results)]
    assert re.match(r" +0.25x, goes to here: lenet5/conv1 .* all", lines[0])
    assert re.match(r" +4.00x, goes to PyTorch: lenet5/conv2", lines[1])
    assert lines[2].startswith("2 wrong choices of 6; ")
    assert lines[3:] == [
        f"conv_backward, 1 layers, 0.50 to 0.50, mean 0.50: {good}",
        f"conv_backward, 1 layers, 4.00 to 4.00, mean 4.00: {bad}",
        f"conv_backward, nothing: {idle}",
        f"conv, 1 layers, 3.00 to 3.00, mean 3.00: {wins}",
    ]
    choice._is_faster.cache_clear()


def test_bench_layers_prints_the_cpu_the_lines_and_the_summary(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    arguments = ["--filter", "lenet5/conv2", "--json", path, "--seconds", "0", "--repeats", "1"]
    # A process of its own: what keeps PyTorch's bfloat16 alive comes before its first convolution.
    done = subprocess.run(
        [sys.executable, "-m", "backops", "bench", "layers", *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    document = json.loads(path.read_text(encoding="utf-8"))
    lines = done.stdout.splitlines()
    assert lines[0].startswith(document["environment"]["CPU"] + ", ")
    assert sum(line.startswith("lenet5/conv2 ") for line in lines) == 2
    assert sum(line.startswith("worst layer against PyTorch ") for line in lines) == 2
    assert [result["dtype"] for result in document["results"]] == ["float32", "bfloat16"]
    for result in document["results"]:
        assert result["kernel"]
        for figure in ("seconds", "ratio", "share_of_bound"):
            assert result[figure] > 0


def test_bench_layers_takes_float64(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--filter", "lenet5/conv2", "--dtype", "float64", "--seconds", "0"]
    assert main(["bench", "layers", *arguments, "--repeats", "1"]) == 0
    assert re.search(r"\nlenet5/conv2 .* float64 .* conv_float64 ", capsys.readouterr().out)


# Progress


def test_bar_is_drawn_by_nobody_while_something_is_measured() -> None:
    written = io.StringIO()
    threads = threading.active_count()
    with Progress(2, Console(file=written, force_terminal=True, width=60)) as progress:
        assert threading.active_count() == threads
        progress.begin("first case")
        drawn = len(written.getvalue())
        time.sleep(0.3)  # rich redraws ten times a second where it may
        assert len(written.getvalue()) == drawn
        progress.print("a line")
        progress.advance()
    assert "first case" in written.getvalue()
    assert "1/2" in written.getvalue()


def test_without_a_terminal_there_are_only_lines(capsys: pytest.CaptureFixture[str]) -> None:
    line = "a line of [more] than eighty characters, which is left as it is: " + 40 * "x"
    with Progress(1) as progress:
        progress.begin("a case")
        progress.print(line)
        progress.advance()
    assert capsys.readouterr().out == line + "\n"


# Pictures


def bench_document() -> dict[str, Any]:
    environment = {"backops": "1", "torch": "2", "CPU": "a CPU", "instruction set": "avx2"}
    results = [conv_result(dtype=dtype) for dtype in ("float32", "bfloat16")]
    return report.to_json(environment, results, [])


def draw_one_row(document: Any, path: Path) -> None:
    plot.draw_ratios([("measured in a hurry", document)], path)


def test_pictures_say_where_they_come_from_and_repeat(tmp_path: Path) -> None:
    document = bench_document()
    for draw in (plot.draw_limits, draw_one_row):
        first, second = tmp_path / "first.svg", tmp_path / "second.svg"
        draw(document, first)
        draw(document, second)
        assert first.read_bytes() == second.read_bytes()
        shown = first.read_text(encoding="utf-8")
        assert f"backops 1, PyTorch 2, a CPU, avx2, 1 threads, {document['date']}" in shown
        assert "convolution" in shown
        assert "bfloat16" in shown


def test_picture_of_ratios_leaves_out_what_was_disturbed(tmp_path: Path) -> None:
    document = bench_document()
    document["results"][0] |= {"disturbed": True, "name": "unreliable"}
    draw_one_row(document, tmp_path / "ratios.svg")
    shown = (tmp_path / "ratios.svg").read_text(encoding="utf-8")
    assert "unreliable" not in shown
    assert "layer" in shown
    assert "measured in a hurry" in shown


def test_picture_of_ratios_has_a_row_for_each_cpu(tmp_path: Path) -> None:
    documents = [bench_document(), bench_document()]
    documents[1]["environment"]["CPU"] = "another CPU"
    plot.draw_ratios([("", document) for document in documents], tmp_path / "ratios.svg")
    shown = (tmp_path / "ratios.svg").read_text(encoding="utf-8")
    assert "PyTorch 2, a CPU, avx2" in shown
    assert "PyTorch 2, another CPU, avx2" in shown


@pytest.mark.parametrize("name", ["plot.png", "plot"])
def test_picture_is_an_svg(name: str) -> None:
    with pytest.raises(CommandError, match=r"ends in \.svg"):
        plot.check(Path(name))


def test_missing_matplotlib_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *_: object) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(plot.importlib, "import_module", refuse)
    with pytest.raises(CommandError, match=r"need matplotlib .*pip install 'backops\[report\]'"):
        plot.check(Path("plot.svg"))


# What calls cost


def test_cost_of_calls_through_the_c_interfaces_is_printed() -> None:
    command = [sys.executable, "-m", "tests.call_overhead"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    infini = r"InfiniOp \w+Backward: core \d+ ns, through InfiniOp \d+ ns, -?\d+ ns more\n"
    cann = r"CANN \w+Backward: core \d+ ns, launch \d+ ns, launched and done \d+ ns\n"
    assert re.fullmatch(infini + infini + cann, done.stdout)

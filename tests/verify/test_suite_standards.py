"""Suites by the published standards: their data, repeated runs, other seeds, tables and pages."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backops
from backops._calls import OPERATORS, Call
from backops._command import CommandError
from backops._verify import campaign, cann_suite, limits, retry, suite, trial, values
from backops._verify.cases import Case, make_call, parse_row, read_cases
from backops._verify.results import Result
from backops._verify.rules import Rules
from backops._verify.targets import Target, open_module
from tests.support import candidates
from tests.support.paths import ROOT

ROW = {
    "name": "one", "operator": "avg_pool2d_backward", "input": [2, 3, 11, 11],
    "kernel_size": 3, "stride": 2, "padding": 1,
}  # fmt: skip


def one_case(**more: Any) -> Case:
    (case,) = parse_row("here", {**ROW, "values": "uniform:-5,5", **more})
    return case


# Values


def drawn(text: str, count: int = 20000) -> Any:
    generator = np.random.default_rng(0)
    return values.make_values(generator, (count,), np.dtype(np.float64), text)


def test_values_are_what_their_names_say() -> None:
    uniform = drawn("uniform:-5,5")
    assert -5 <= uniform.min() < -4.99
    assert 4.99 < uniform.max() <= 5
    normal = drawn("normal:-100,25")
    assert normal.mean() == pytest.approx(-100, abs=1)
    assert normal.std() == pytest.approx(25, rel=0.05)
    assert np.count_nonzero(np.abs(drawn("outliers:-5,5")) > 5) in range(15, 21)  # one in 1000
    assert np.abs(drawn("outliers:-5,5", 7)).max() > 5  # at least one
    assert np.isnan(drawn("nan")).all()
    assert (drawn("-inf") == -np.inf).all()
    assert set(drawn("infinities")) == {np.inf, -np.inf}


@pytest.mark.parametrize("text", ["odd", "uniform", "uniform:1", "normal:1,2,3", "normal:1,inf"])
def test_unknown_values_are_refused(text: str) -> None:
    with pytest.raises(CommandError, match="here: one: values is"):
        one_case(values=text)


def kinds(standard: str, count: int) -> Counter[str]:
    made = campaign.campaign(read_cases("default"), standard, count)
    named = [case.values or "" for case in made if "specials" not in (case.values or "")]
    return Counter(text for text in named if text != "integers")


@pytest.mark.parametrize(
    ("standard", "mean", "deviation"),
    [("cann", 5, (0.1, 2)), ("cann-2026-04", 5, (0.1, 2)), ("cann-L0", 100, (1, 25))],
)
def test_half_uniform_half_normal(
    standard: str, mean: float, deviation: tuple[float, float]
) -> None:
    found = kinds(standard, 1350)
    uniform = found.pop("uniform:-5,5")
    assert uniform == pytest.approx(sum(found.values()), rel=0.02)
    pairs = [tuple(map(float, text.removeprefix("normal:").split(","))) for text in found]
    assert min(m for m, _ in pairs) < -0.9 * mean
    assert max(m for m, _ in pairs) > 0.9 * mean
    assert all(-mean <= m <= mean and deviation[0] <= d <= deviation[1] for m, d in pairs)


@pytest.mark.parametrize("standard", ["cann-L1", "cann-L2"])
def test_four_kinds_in_tenths(standard: str) -> None:
    found = kinds(standard, 1350)
    total = sum(found.values())
    assert found.pop("uniform:-0.001,0.001") == pytest.approx(0.1 * total, rel=0.05)
    assert found.pop("uniform:-5,5") == pytest.approx(0.3 * total, rel=0.05)
    assert found.pop("outliers:-5,5") == pytest.approx(0.2 * total, rel=0.05)
    assert sum(found.values()) == pytest.approx(0.4 * total, rel=0.05)


def test_cases_are_drawn_anew_beyond_the_suite() -> None:
    plain = read_cases("default")
    made = campaign.campaign(plain, "cann", 3 * len(plain))
    assert len({case.label for case in made}) == len(made) == 3 * len(plain)
    same = [case for case in made if case.name.split("#")[0] == "video" and case.dtype == "float32"]
    assert [case.name for case in same] == ["video", "video#2", "video#3"]
    # Neither the same distribution twice running, nor the same data.
    kinds = [str(case.values).partition(":")[0] for case in same]
    assert kinds in (["uniform", "normal", "uniform"], ["normal", "uniform", "normal"])
    data = [make_call(case).grad_output.tobytes() for case in same]
    assert len(set(data)) == 3
    few = campaign.campaign(plain, "cann", 80)
    assert len(few) == 80
    assert {case.operator for case in few} == set(OPERATORS)
    assert campaign.campaign(plain, "cann", None) == campaign.campaign(plain, "cann", None)
    kept = [case for case in campaign.campaign(plain, "float32", None) if case.values]
    assert {case.values for case in kept} == {"specials", "integers"}


# The suite of the standard


def is_power_or_less_one(size: int) -> bool:
    return size & (size - 1) == 0 or size & (size + 1) == 0


def test_suite_of_the_standard_holds_what_it_describes() -> None:
    found = read_cases("cann")
    assert {case.operator for case in found} == set(OPERATORS)
    assert {case.dtype for case in found} == {"float16", "bfloat16", "float32"}
    assert all(is_power_or_less_one(size) for case in found for size in case.input)
    assert any(0 in case.input for case in found)
    assert any(set(case.input) == {1} for case in found)
    assert any(max(case.input) == cann_suite.LARGEST for case in found)
    assert {case.values for case in found if case.values} == {"nan", "inf", "-inf", "infinities"}
    for name in ("stride", "padding", "ceil_mode", "count_include_pad", "dilation", "groups"):
        assert len({case.parameters.get(name) for case in found}) > 1
    assert any(len(case.input) == 3 and "2d" in case.operator for case in found)  # unbatched
    assert {case.parameters.get("precision") for case in found} == {
        None, "hf32", "fp16", "allow_fp32_down",
    }  # fmt: skip


def test_part_of_it_is_right_here() -> None:
    found = read_cases("cann")
    edges = [case for case in found if case.name.endswith(("empty", "ones", "inf", "infinities"))]
    for case in campaign.campaign([*found[::25], *edges], "cann", None):
        result = trial.run_case(case, open_module("backops"), Rules("cann"))
        assert result.status == "right", (case, result)


# Runs and seeds


def backops_result(call: Call) -> dict[str, Any]:
    return {name: array.copy() for name, array in call.run().items()}


def test_runs_must_agree_bit_for_bit() -> None:
    calls = []

    def unsteady(call: Call) -> dict[str, Any]:
        calls.append(call)
        result = backops_result(call)
        if len(calls) % 3 == 0:
            flat = result["grad_input"].reshape(-1)
            flat[5] = np.nextafter(flat[5], np.float32(9))
        return result

    assert trial.run_case(one_case(), unsteady, Rules("cann", runs=2)).status == "right"
    calls.clear()
    result = trial.run_case(one_case(), unsteady, Rules("cann", runs=3))
    assert result.status == "wrong"
    assert result.detail == "grad_input: run 3 differs from the first in 1 of 726 elements"
    assert len(calls) == 3


def test_runs_may_share_their_memory() -> None:
    """A candidate that returns the same buffer each time must not be compared with itself."""
    buffer = np.zeros((2, 3, 11, 11), np.float32)
    count = [0]

    def reusing(call: Call) -> dict[str, Any]:
        buffer[...] = call.run()["grad_input"]
        count[0] += 1
        buffer[0, 0, 0, 0] += 1e-3 * (count[0] > 1)
        return {"grad_input": buffer}

    assert trial.run_case(one_case(), reusing, Rules("cann", runs=2)).status == "wrong"


DOUBLE = Rules("cann-L0", retries=1000, benchmark="tests.support.candidates:noisy")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def error_times(factor: float, call: Call) -> dict[str, Any]:
    """A candidate with so many times the errors of candidates.noisy."""
    right = backops.reference.avg_pool2d_backward(*call.tensors(), **call.parameters)
    return {"grad_input": candidates.with_noise(right, factor)}


def own_seed(call: Call) -> bool:
    return bool((call.grad_output == make_call(one_case()).grad_output).all())


def test_failure_by_chance_is_made_good_by_other_seeds() -> None:
    def unlucky(call: Call) -> dict[str, Any]:
        return error_times(30 if own_seed(call) else 0.9, call)

    result = trial.run_case(one_case(), unlucky, Rules("cann-L0", 1, 200, DOUBLE.benchmark))
    assert result.status == "right"
    assert result.retry is not None
    assert result.retry.seeds == 200
    names = [interval.name for interval in result.retry.intervals]
    assert names == ["largest relative error", "mean relative error", "root mean square error"]
    assert all(0.7 < interval.low <= interval.high < 1.1 for interval in result.retry.intervals)
    assert not all(limit.holds for limit in result.limits["grad_input"])  # its own seed's
    again = trial.run_case(one_case(), unlucky, Rules("cann-L0", 1, 200, DOUBLE.benchmark))
    assert again.retry == result.retry


def test_failure_by_nature_stays_one() -> None:
    result = trial.run_case(one_case(), lambda call: error_times(30, call), DOUBLE)
    assert result.status == "wrong"
    assert result.retry is not None
    assert result.retry.seeds == retry.LEAST  # decided before the thousandth
    assert all(interval.is_worse for interval in result.retry.intervals)
    assert "largest relative error" in result.detail
    assert "with 200 other seeds, grad_input: " in result.detail


def test_other_seeds_look_at_the_ratio_to_the_benchmark() -> None:
    """A little worse for real is a failure, although each seed alone would have passed."""

    def worse(call: Call) -> dict[str, Any]:
        return error_times(30 if own_seed(call) else 1.5, call)

    case = one_case()
    result = trial.run_case(case, worse, Rules("cann-L0", 1, 300, DOUBLE.benchmark))
    assert result.status == "wrong"
    assert result.retry is not None
    assert any(1 < interval.low < interval.high < 2 for interval in result.retry.intervals)


def test_fewer_seeds_than_count_are_not_tried() -> None:
    seen = []

    def bad(call: Call) -> dict[str, Any]:
        seen.append(call)
        return error_times(30, call)

    result = trial.run_case(one_case(), bad, Rules("cann-L0", 1, 199, DOUBLE.benchmark))
    assert result.status == "wrong"
    assert result.retry is None
    assert len(seen) == 1
    assert "199 other seeds are fewer than the 200 that count" in result.findings[-1]


def test_what_no_seed_makes_good_is_not_tried_again() -> None:
    seen = []

    def zeros(call: Call) -> dict[str, Any]:
        seen.append(call)
        return {"grad_input": np.zeros(call.input_shape, np.float32)}

    result = trial.run_case(one_case(), zeros, DOUBLE)
    assert (result.status, len(seen)) == ("wrong", 1)
    assert "the candidate is all zeros" in result.detail

    def nan_with_another_seed(call: Call) -> dict[str, Any]:
        result = error_times(30 if own_seed(call) else 0.9, call)
        result["grad_input"][0, 0, 0, 0] = np.nan if not own_seed(call) else 0
        return result

    result = trial.run_case(one_case(), nan_with_another_seed, DOUBLE)
    assert result.status == "wrong"
    assert "with seed 1" in result.findings[-1]
    # The other standards have no second chance.
    result = trial.run_case(one_case(), lambda call: error_times(1e5, call), Rules("cann"))
    assert (result.status, result.retry) == ("wrong", None)


def test_interval_of_the_median() -> None:
    ratios = np.random.default_rng(1).lognormal(0.0, 0.5, 1000)
    low, high = retry.bootstrap(ratios, [1])
    # The order statistics between which the median lies with 95 %.
    ordered = np.sort(ratios)
    assert low == pytest.approx(ordered[469], rel=0.03)
    assert high == pytest.approx(ordered[530], rel=0.03)
    assert (low, high) == retry.bootstrap(ratios, [1])
    assert retry.bootstrap([np.inf] * 200, [1]) == (np.inf, np.inf)


def test_lower_end_of_the_interval_decides() -> None:
    rng = np.random.default_rng(0)
    for middle, spread, is_right in ((0.9, 0.5, True), (1.05, 3.0, True), (1.05, 0.1, False)):
        ratios = middle + spread * rng.uniform(-1, 1, 400)

        def attempt(number: int, ratios: Any = ratios) -> retry.Limits:
            ratio = float(ratios[number - 1])
            made = limits.times_benchmark("mean relative error", ratio, 2, 1.0)
            return {("grad_input", "mean relative error"): made}

        found = retry.try_again([("grad_input", "mean relative error")], attempt, 400, [7])
        assert found.seeds == (400 if ratios[:200].min() <= 1 else 200)
        assert found.is_right == is_right
        (interval,) = found.intervals
        assert interval.low < interval.median < interval.high
    worse, by_chance = (retry.Interval("t", "n", 1.3, low, 1.6) for low in (1.001, 0.999))
    assert worse.is_worse
    assert not by_chance.is_worse


def test_float64_is_skipped_by_the_double_benchmark() -> None:
    result = trial.run_case(one_case(dtype="float64"), open_module("backops"), Rules("cann-L1"))
    assert result.status == "skipped"
    assert "cann-L1 has no float64" in result.detail


def test_benchmark_that_fails_is_named() -> None:
    rules = Rules("cann-L0", benchmark="tests.support.candidates:raising")
    result = trial.run_case(one_case(), open_module("backops"), rules)
    assert result.status == "failed"
    assert (
        "the benchmark tests.support.candidates:raising failed: RuntimeError: out of luck"
        in result.detail
    )


# The command


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    rows = [{**ROW, "name": name, "dtype": ["float32", "float16"]} for name in ("one", "two")]
    path.write_text(json.dumps(rows))
    return path


def run(*arguments: Any) -> int:
    from backops.__main__ import main

    return main(["verify", *map(str, arguments)])


def test_suite_by_a_double_benchmark(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out.json", tmp_path / "page.html"
    assert run("--suite", small, "--candidate", "backops", "--standard", "cann-L0", "--cases", 6,
               "--runs", 3, "--json", out, "--report", page) == 0  # fmt: skip
    shown = capsys.readouterr().out
    assert "cann-L0 asks for 5,000 cases of 50 runs each; these were 6 of 3" in shown
    assert "benchmark: PyTorch 2" in shown
    assert "backops: right by cann-L0: 6 right, 0 not, 0 skipped" in shown
    rows = json.loads(out.read_text())
    assert [row["name"] for row in rows][3:] == ["two float16", "one#2 float32", "one#2 float16"]
    assert {row["benchmark"].split()[0] for row in rows} == {"PyTorch"}
    assert [row["values"].split(":")[0] for row in rows] == [
        "uniform", "normal", "uniform", "normal", "normal", "uniform",
    ]  # fmt: skip
    found = rows[0]["limits"]["grad_input"]
    assert [limit["name"] for limit in found[1:4]] == [
        "largest relative error", "mean relative error", "root mean square error",
    ]  # fmt: skip
    for limit in found[1:4]:
        assert limit["value"] == pytest.approx(limit["times"] * limit["limit"])
        assert limit["holds"] is True
    tree = ElementTree.fromstring(page.read_text().partition("\n")[2])
    text = " ".join(tree.itertext())
    assert "6 right, 0 not, 0 skipped" in text
    assert "of it)" in text
    assert "two float16" in text


@pytest.mark.parametrize("standard", ["cann", "cann-2026-04"])
def test_failed_limit_is_in_table_json_and_page(
    standard: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out.json", tmp_path / "page.html"
    assert run("--suite", small, "--candidate", "tests.support.candidates:flipped_padding",
               "--standard", standard, "--json", out, "--report", page) == 1  # fmt: skip
    shown = " ".join(capsys.readouterr().out.split())
    name = {"cann": "share of elements", "cann-2026-04": "mean relative error"}[standard]
    assert name in shown
    assert "0 right, 4 not" in shown
    rows = json.loads(out.read_text())
    failed = [limit for limit in rows[0]["limits"]["grad_input"] if not limit["holds"]]
    assert failed[0]["name"].startswith(name)
    assert failed[0]["times"] > 1
    text = page.read_text()
    ElementTree.fromstring(text.partition("\n")[2])
    assert "What is not right" in text
    assert '<span class="wrong">fails</span>' in text
    assert name in text


def test_results_survive_a_resume_file(small: Path, tmp_path: Path) -> None:
    resume = tmp_path / "done.jsonl"
    rules = Rules("cann-L0", retries=0, benchmark="tests.support.candidates:right")
    target = Target(module="tests.support.candidates:doubled")
    made = campaign.campaign(read_cases(str(small)), "cann-L0", None)
    first = suite.run_suite(made, target, rules, resume=resume, jobs=1, show=False)
    lines = resume.read_text()
    again = suite.run_suite(made, target, rules, resume=resume, jobs=1, show=False)
    assert again == first
    assert resume.read_text() == lines
    other = Rules("cann-L0", retries=0, runs=2, benchmark="tests.support.candidates:right")
    suite.run_suite(made, target, other, resume=resume, jobs=1, show=False)
    assert len(resume.read_text().splitlines()) == 8
    found = trial.run_case(one_case(), lambda call: error_times(30, call), DOUBLE)
    assert Result.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--standard", "cann-L9"], "'cann-L9' is not a standard"),
        (["--standard", "cann", "--benchmark", "x"], "--benchmark goes with --standard cann-L0"),
        (["--standard", "cann", "--retries", "300"], "--retries goes with --standard cann-L0"),
        (["--standard", "cann-L0", "--benchmark", "x.npy"], "a suite makes its own data"),
        (["--standard", "cann-L0", "--benchmark", "nix"], "nix: cannot be imported"),
        (["--standard", "cann-L0", "--benchmark", "a", "--benchmark", "b"], "expected one MODULE"),
        (["--runs", "0"], "'0' is not a positive integer"),
        (["--cases", "none"], "'none' is not a positive integer"),
        (["--retries", "-1"], "'-1' is not an integer of 0 or more"),
        (["--report", "no/such/page.html"], "there is no folder no/such"),
        (["--json", "no/such/out.json"], "there is no folder no/such"),
    ],
)  # fmt: skip
def test_bad_options_are_told_before_anything_runs(
    arguments: list[str], message: str, small: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    resume = tmp_path / "done.jsonl"
    given = ["--suite", small, "--candidate", "backops", "--resume", resume, *arguments]
    assert run(*given) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not resume.exists()


# One case from files


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    grad = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    right = backops.avg_pool2d_backward(grad, (2, 3, 11, 11), 3, 2, 1)
    np.save("g.npy", grad)
    np.save("right.npy", right)
    np.save("wrong.npy", right * np.float32(1.01))
    np.save("worse.npy", right * np.float32(1.02))
    np.save("half.npy", right.astype(np.float16))
    np.save("short.npy", right[:1])
    return [
        "avg_pool2d_backward", "--grad-output", "g.npy", "--input", "2,3,11,11", "--kernel-size",
        "3", "--stride", "2", "--padding", "1", "--standard", "cann-L0",
    ]  # fmt: skip


def test_benchmark_from_a_file(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*files, "--candidate", "wrong.npy", "--benchmark", "worse.npy") == 0
    shown = capsys.readouterr().out
    assert "right by cann-L0" in shown
    assert "benchmark           worse.npy" in shown
    assert run(*files, "--candidate", "worse.npy", "--benchmark", "wrong.npy") == 0
    assert run(*files, "--candidate", "wrong.npy", "--benchmark", "right.npy") == 1
    shown = capsys.readouterr().out
    assert "  - largest relative error: 0.01, at most" in shown
    assert "times the limit)" in shown
    assert " fails" in shown


def test_benchmark_from_a_module(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("backops", "tests.support.candidates:right", "torch"):
        assert run(*files, "--candidate", "right.npy", "--benchmark", name, "--json", "-") == 0
        (tensor,) = json.loads(capsys.readouterr().out)["tensors"]
        assert tensor["benchmark"].startswith("PyTorch 2" if name == "torch" else name)
        assert tensor["small_values"]["below"] == 2**-14
        assert [limit["holds"] for limit in tensor["limits"]] == [True] * 5


def test_benchmark_of_a_convolution_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    shapes = {"g": (1, 3, 6, 6), "x": (1, 2, 6, 6), "w": (3, 2, 1, 1)}
    arrays = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    results = dict(zip(("grad_input", "grad_weight", "grad_bias"),
                       backops.conv_backward(*arrays.values()), strict=True))  # fmt: skip
    np.savez("all.npz", **results)
    np.save("bias.npy", results["grad_bias"])
    given = ["conv_backward", "--grad-output", "g.npy", "--input", "x.npy", "--weight", "w.npy"]
    given += ["--standard", "cann-L2", "--candidate", "all.npz"]
    assert run(*given, "--benchmark", "all.npz") == 0
    assert capsys.readouterr().out.count("right by cann-L2") == 3
    assert run(*given, "--benchmark", "grad_bias=bias.npy") == 2
    assert "the benchmark grad_bias=bias.npy has no grad_input" in capsys.readouterr().err
    assert run(*given, "--benchmark", "bias.npy") == 2
    assert "--benchmark bias.npy: say which gradient" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("half.npy", "is float16, expected the candidate's float32"),
        ("short.npy", "is (1, 3, 11, 11), expected (2, 3, 11, 11)"),
        ("nix.npy", "nix.npy"),
        ("json:nix", "json has no function 'nix'"),
    ],
)
def test_bad_benchmark_writes_nothing(
    file: str, message: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*files, "--candidate", "right.npy", "--benchmark", file]
    assert run(*given, "--json", "out.json", "--report", "page.html") == 2
    assert message in capsys.readouterr().err
    assert not Path("out.json").exists()
    assert not Path("page.html").exists()


@pytest.mark.parametrize("standard", ["cann", "cann-2026-04", "cann-L0"])
def test_page_of_one_case_has_the_limits(standard: str, files: list[str]) -> None:
    given = [*files[:-1], standard, "--candidate", "wrong.npy"]
    assert run(*given, "--report", "page.html") == 1
    text = Path("page.html").read_text()
    tree = ElementTree.fromstring(text.partition("\n")[2])
    tables = [[cell.text for cell in table.iter("th")] for table in tree.iter("table")]
    head = ["figure", "candidate", "limit", "of the limit", None]
    if standard == "cann-L0":
        head.insert(2, "benchmark")
        assert "small values" in text
    assert head in tables
    assert '<span class="wrong">fails</span>' in text
    assert '<span class="right">holds</span>' in text


def test_command_line_names_the_levels() -> None:
    from backops._cli import verify as command
    from backops._verify import published

    assert tuple(published.LEVELS) == command.LEVELS


def test_documentation_has_every_number() -> None:
    """docs/verify.md states the limits by which the code decides."""
    from backops._verify import published

    text = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
    for name, level in published.LEVELS.items():
        row = (f"| `{name}` | {level.largest:g} | {level.mean:g} | {level.root_mean_square:g} | "
               f"{level.cases:,} | {level.runs:,} |")  # fmt: skip
        assert row in text
    columns = published.COLUMNS.values()

    def power(number: float) -> str:
        from backops._verify.limits import power_of_two

        digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
        return "2" + power_of_two(number).removeprefix("2^").translate(digits)

    rows = {
        "rtol": [power(column.rtol) for column in columns],
        "atol": [power(column.atol) for column in columns],
        "largest absolute error": [f"{column.largest_error:g}" for column in columns],
        "T": [power(column.threshold) for column in columns],
        "small below": [power(column.small.below) for column in columns],
        "counted beyond": [power(column.small.error) for column in columns],
    }
    for name, cells in rows.items():
        assert f"| {name} | {' | '.join(cells)} |" in text

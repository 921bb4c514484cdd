"""`backops verify --suite`: cases, candidates of every kind, crashes, and going on after a stop."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backops import acl, infiniop
from backops.__main__ import main
from backops._calls import OPERATORS
from backops._command import CommandError
from backops._verify import cases, suite, trial
from backops._verify.library import open_library
from backops._verify.rules import Rules
from backops._verify.targets import Target, open_module
from tests.support import c
from tests.support.paths import ROOT

SMALL = [
    {"name": name, "operator": "avg_pool2d_backward", "input": [1, channels, 6, 6],
     "kernel_size": 3, "stride": 2, "padding": 1}
    for name, channels in (("one", 1), ("two", 2), ("three", 3))
]  # fmt: skip


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite of three cases; candidates of this file can be imported by other processes."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL))
    return path


def statuses(path: Path, candidate: str, **more: Any) -> dict[str, str]:
    target = Target(module=f"tests.support.candidates:{candidate}")
    results = suite.run_suite(
        cases.read_cases(str(path)), target, Rules("float32"), show=False, **more
    )
    return {result.name.split()[0]: result.status for result in results}


def test_default_suite_covers_every_operator_and_is_right_here() -> None:
    default = cases.read_cases("default")
    assert {case.operator for case in default} == set(OPERATORS)
    assert {case.dtype for case in default} == {"float16", "bfloat16", "float32", "float64"}
    assert {case.values for case in default} >= {None, "integers", "specials"}
    for case in default:
        result = trial.run_case(case, open_module("backops"), Rules("float32"))
        assert result.status == "right", result


@pytest.mark.parametrize(
    ("library", "skipped", "absent"),
    [
        (
            infiniop.root() / "lib" / "libinfiniop.so",
            "InfiniOp has no adaptive_avg_pool2d_backward",
            {
                "adaptive_avg_pool2d", "conv_transpose", "conv_transpose_backward",
                *(f"adaptive_avg_pool{rank}d_backward" for rank in (1, 2, 3)),
            },
        ),
        (
            acl.root() / "lib64" / "libopapi.so",
            "CANN has no 1-D pooling",
            {name for name in OPERATORS if "pool1d" in name},
        ),
    ],
    ids=["infiniop", "cann"],
)  # fmt: skip
def test_libraries_are_driven_through_their_interface(
    library: Path,
    skipped: str,
    absent: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out.json"
    arguments = ["verify", "--suite", "default", "--library", str(library), "--json", str(out)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert skipped in shown
    assert " 0 not, " in shown
    rows = json.loads(out.read_text())
    assert {row["operator"] for row in rows if row["status"] == "right"} == set(OPERATORS) - absent


def test_wrong_library_is_refused() -> None:
    with pytest.raises(CommandError, match="has neither infiniopCreateHandle nor aclCreateTensor"):
        open_library("libm.so.6", "cpu")
    with pytest.raises(CommandError, match="device 'toaster'"):
        open_library("libm.so.6", "toaster")


IDLE_INFINIOP = """
#include <infiniop.h>
infiniStatus_t infiniopAvgPoolBackward(infiniopAvgPoolBackwardDescriptor_t desc, void *workspace,
                                       size_t workspace_size, void *grad_input,
                                       const void *grad_output, const void *input, void *stream) {
  (void)desc, (void)workspace, (void)workspace_size, (void)grad_input;
  (void)grad_output, (void)input, (void)stream;
  return INFINI_STATUS_SUCCESS;
}
"""
IDLE_CANN = """
#include <aclnnop/aclnn_avgpool2d_backward.h>
aclnnStatus aclnnAvgPool2dBackward(void*, uint64_t, aclOpExecutor*, aclrtStream) { return 0; }
"""
IDLE_INFINIOP_CONV = """
#include <infiniop.h>
infiniStatus_t infiniopConv(infiniopConvDescriptor_t desc, void *workspace, size_t workspace_size,
                            void *y, const void *x, const void *w, const void *bias,
                            void *stream) {
  (void)desc, (void)workspace, (void)workspace_size, (void)y, (void)x, (void)w, (void)bias;
  (void)stream;
  return INFINI_STATUS_SUCCESS;
}
"""
IDLE_CANN_CONV = """
#include <aclnnop/aclnn_convolution.h>
aclnnStatus aclnnConvolution(void*, uint64_t, aclOpExecutor*, aclrtStream) { return 0; }
"""
SHARED = ("-shared", "-fPIC", "-Wl,--no-as-needed")


def idle_infiniop(folder: Path, text: str = IDLE_INFINIOP) -> Path:
    source = folder / "idle.c"
    source.write_text(text)
    return c.build_c(source, folder, infiniop.root(), *SHARED)


def idle_cann(folder: Path, text: str = IDLE_CANN) -> Path:
    source = folder / "idle.cpp"
    source.write_text(text)
    return c.build_cann(source, folder, acl.root(), *SHARED)


@pytest.mark.parametrize("build", [idle_infiniop, idle_cann])
def test_what_a_library_leaves_unwritten_is_wrong(
    build: Callable[[Path], Path], tmp_path: Path
) -> None:
    """Also where zeros, which new memory often holds, would be right: in no window."""
    row = {"name": "gaps", "operator": "avg_pool2d_backward", "input": [2, 3, 8, 8]}
    case = cases.parse_row("here", {**row, "kernel_size": 1, "stride": 2})
    target = Target(library=str(build(tmp_path)))
    (result,) = suite.run_suite(case, target, Rules("float32"), show=False)
    assert result.status == "wrong"
    assert result.wrong == result.elements == 2 * 3 * 8 * 8


@pytest.mark.parametrize(
    ("build", "text"), [(idle_infiniop, IDLE_INFINIOP_CONV), (idle_cann, IDLE_CANN_CONV)]
)
def test_forward_convolution_that_does_nothing_is_wrong(
    build: Callable[[Path, str], Path], text: str, tmp_path: Path
) -> None:
    row = {"name": "idle", "operator": "conv", "input": [2, 3, 8], "weight": [4, 3, 3]}
    case = cases.parse_row("here", {**row, "bias": True})
    target = Target(library=str(build(tmp_path, text)))
    (result,) = suite.run_suite(case, target, Rules("float32"), show=False)
    assert result.status == "wrong"
    assert result.wrong == result.elements == 2 * 4 * 6


def test_suite_of_which_nothing_ran_is_not_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "adaptive.json"
    row = {"operator": "adaptive_avg_pool1d_backward", "input": [1, 4], "output_size": 2}
    path.write_text(json.dumps([{"name": "none", **row}]))
    library = infiniop.root() / "lib" / "libinfiniop.so"
    assert main(["verify", "--suite", str(path), "--library", str(library)]) == 2
    assert "not checked by float32: 0 right, 0 not, 1 skipped" in capsys.readouterr().out


def test_wrong_candidate_is_caught(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "verify",
        "--suite",
        str(small),
        "--candidate",
        "tests.support.candidates:flipped_padding",
    ]
    assert main(arguments) == 1
    shown = capsys.readouterr().out
    assert "0 right, 3 not" in shown
    assert "padding" in shown


def test_crash_costs_one_case(small: Path) -> None:
    found = statuses(small, "crashing", jobs=1)
    assert found == {"one": "right", "two": "crashed", "three": "right"}


def test_slow_case_is_stopped(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = statuses(small, "sleeping", jobs=2, timeout=2)
    assert found == {"one": "right", "two": "timeout", "three": "right"}


@pytest.mark.parametrize(
    ("candidate", "detail"),
    [
        ("raising", "RuntimeError: out of luck"),
        ("changing", "changed grad_output"),
        ("changing_weight", "changed weight"),
    ],
)
def test_failure_is_told(candidate: str, detail: str) -> None:
    conv = {"name": "conv", "operator": "conv_backward", "input": [1, 2, 5], "weight": [2, 2, 3]}
    case = cases.parse_row("here", conv if "weight" in candidate else SMALL[0])[0]
    run = open_module(f"tests.support.candidates:{candidate}")
    result = trial.run_case(case, run, Rules("float32"))
    assert result.status == "failed"
    assert detail in result.detail


def test_candidate_may_return_torch_bfloat16() -> None:
    case = cases.parse_row("here", {**SMALL[0], "dtype": "bfloat16"})[0]
    result = trial.run_case(
        case, open_module("tests.support.candidates:with_torch"), Rules("float32")
    )
    assert result.status == "right", result


def test_resume_file_leaves_out_what_is_done(small: Path, tmp_path: Path) -> None:
    resume = tmp_path / "done.jsonl"
    assert statuses(small, "right", resume=resume, jobs=1)["one"] == "right"
    lines = resume.read_text().splitlines()
    assert len(lines) == 3
    # As if killed while it wrote the last line.
    resume.write_text("\n".join(lines)[:-20])
    assert set(statuses(small, "right", resume=resume, jobs=1).values()) == {"right"}
    kept = resume.read_text().splitlines()
    assert kept[:2] == lines[:2]
    assert len(kept) == 3
    # Nothing is left to do, so a candidate that cannot even be loaded is not noticed.
    again = suite.run_suite(
        cases.read_cases(str(small)), Target(module="tests.support.candidates:right"),
        Rules("float32"), resume=resume, show=False,
    )  # fmt: skip
    assert [result.name for result in again] == ["one float32", "two float32", "three float32"]
    assert len(resume.read_text().splitlines()) == 3


def test_killed_suite_goes_on_where_it_was(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = tmp_path / "done.jsonl"
    arguments = [
        "--suite",
        str(small),
        "--candidate",
        "tests.support.candidates:sleeping",
        "--jobs",
        "1",
    ]
    arguments += ["--resume", str(resume)]
    running = subprocess.Popen([sys.executable, "-m", "backops", "verify", *arguments])
    deadline = time.monotonic() + 60
    while not resume.exists() or not resume.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.kill()
    running.wait()
    (first,) = resume.read_text().splitlines()
    monkeypatch.setenv("AWAKE", "1")
    assert main(["verify", *arguments]) == 0
    assert resume.read_text().splitlines()[0] == first
    assert len(resume.read_text().splitlines()) == 3


def test_another_candidate_or_standard_does_not_count_as_done(small: Path, tmp_path: Path) -> None:
    resume = tmp_path / "done.jsonl"
    assert set(statuses(small, "right", resume=resume, jobs=1).values()) == {"right"}
    assert set(statuses(small, "flipped_padding", resume=resume, jobs=1).values()) == {"wrong"}
    assert len(resume.read_text().splitlines()) == 6


@pytest.mark.parametrize("text", ["my thesis\nchapter one\n", "my thesis"])
def test_file_that_is_no_resume_file_is_left_alone(small: Path, tmp_path: Path, text: str) -> None:
    resume = tmp_path / "precious.txt"
    resume.write_text(text)
    with pytest.raises(CommandError, match=r"line 1? ?is not a result"):
        statuses(small, "right", resume=resume)
    assert resume.read_text() == text


def test_data_is_the_same_everywhere() -> None:
    case = cases.parse_row("here", SMALL[1])[0]
    one, other = cases.make_call(case), cases.make_call(case)
    assert one.grad_output.tobytes() == other.grad_output.tobytes()
    assert float(one.grad_output.ravel()[0]) == pytest.approx(0.06820788, rel=1e-6)
    more = cases.make_call(cases.parse_row("here", {**SMALL[1], "seed": 1})[0])
    assert more.grad_output.tobytes() != one.grad_output.tobytes()


def test_csv_holds_the_same_cases(tmp_path: Path) -> None:
    table = tmp_path / "cases.csv"
    table.write_text(
        "name,operator,input,output_size,weight,dtype,kernel_size,stride,padding,ceil_mode\n"
        "a,avg_pool2d_backward,2x3x8x9,,,float32 float16,3x2,2,1,true\n"
        "b,adaptive_avg_pool1d_backward,2x3x8,4,,,,,,\n"
        'c,conv_backward,"2,4,8,8",,"6,4,3,3",bfloat16,,,1,\n'
    )
    read = cases.read_cases(str(table))
    assert [case.label for case in read] == ["a float32", "a float16", "b float32", "c bfloat16"]
    assert read[0].parameters == {
        "kernel_size": (3, 2),
        "stride": 2,
        "padding": 1,
        "ceil_mode": True,
    }
    for case in read:
        assert trial.run_case(case, open_module("backops"), Rules("float32")).status == "right"


def test_csv_holds_forward_cases(tmp_path: Path) -> None:
    table = tmp_path / "cases.csv"
    table.write_text(
        "name,operator,input,output_size,weight,bias,kernel_size,stride,output_padding\n"
        "a,avg_pool2d,2x3x8x9,,,,3x2,2,\n"
        "b,adaptive_avg_pool1d,2x3x8,4,,,,,\n"
        "c,conv,2x4x8x8,,6x4x3x3,true,,,\n"
        "d,conv,2x4x8x8,,6x4x3x3,false,,,\n"
        "e,conv_transpose,2x4x5,,4x3x3,true,,2,1\n"
        "f,conv_transpose_backward,2x4x5,,4x3x3,,,2,1\n"
    )
    read = cases.read_cases(str(table))
    assert [case.bias for case in read] == [False, False, True, False, True, False]
    assert [cases.make_call(case).bias is not None for case in read] == [case.bias for case in read]
    for case in read:
        assert trial.run_case(case, open_module("backops"), Rules("float32")).status == "right"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operator": "nix"}, "operator is 'nix'"),
        ({"color": "red"}, "has no color"),
        ({"input": "big"}, "input is 'big'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"values": "odd"}, "values is 'odd'"),
        ({"operator": "adaptive_avg_pool2d_backward"}, "has no kernel_size"),
        ({"bias": True}, "has no bias"),
    ],
)
def test_bad_case_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([{**SMALL[0], **change}]))
    with pytest.raises(CommandError, match=message) as raised:
        cases.read_cases(str(path))
    assert "one" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("{}", "a list of objects"), ("[]", "holds no cases")],
)
def test_bad_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(CommandError, match=message):
        cases.read_cases(str(path))


def test_names_must_differ(tmp_path: Path) -> None:
    path = tmp_path / "twice.json"
    path.write_text(json.dumps([SMALL[0], SMALL[0]]))
    with pytest.raises(CommandError, match="two cases are named 'one float32'"):
        cases.read_cases(str(path))


def test_json_lists_every_case(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["verify", "--suite", str(small), "--candidate", "backops", "--json", str(out)]
    assert main(arguments) == 0
    rows = json.loads(out.read_text())
    assert [row["status"] for row in rows] == ["right"] * 3
    assert [row["elements"] for row in rows] == [36, 72, 108]

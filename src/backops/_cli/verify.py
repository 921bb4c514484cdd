"""`backops verify`: is a result right, and if not, where?"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from backops._cli.base import Command
from backops._cli.operator import make_call, operator_options
from backops._cli.types import positive_int
from backops._command import UsageError

EXAMPLE = """
python -c 'import numpy; numpy.save("grad.npy", numpy.ones((1, 3, 4, 4), "float32"))'
backops run avg_pool2d_backward --grad-output grad.npy --input 1,3,8,8 --kernel-size 2 -o out.npy
backops verify avg_pool2d_backward --grad-output grad.npy --input 1,3,8,8 --kernel-size 2 \\
  --candidate out.npy --standard exact
backops verify --suite default --candidate backops
"""
SUITE_OPTIONS = ("library", "device", "resume", "jobs", "timeout")


@click.command(cls=Command, example=EXAMPLE, failure=2)
@operator_options(required=False)
@click.option(
    "--candidate",
    multiple=True,
    metavar="FILE",
    help="The result to check. Of a convolution, a .npz or .safetensors with grad_input, "
    "grad_weight, grad_bias, or NAME=FILE, repeated. With --suite: a Python module with the "
    "operators' names, or MODULE:FUNCTION.",
)
@click.option(
    "--standard",
    default="float32",
    show_default=True,
    metavar="NAME",
    help="exact, float32, allclose:RTOL,ATOL or cann.",
)
@click.option(
    "--json",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write everything to FILE; - is the standard output, instead of the tables.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page with pictures to FILE (needs backops[report]).",
)
@click.option("--suite", metavar="FILE", help="Run many cases: a .json or .csv, or `default`.")
@click.option(
    "--library",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --suite: a shared library with the InfiniOp or the CANN interface.",
)
@click.option(
    "--device",
    metavar="NAME[:ID]",
    help="With --library: cpu (the default), ascend, nvidia, and so on.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --suite: keep each case's result in FILE, and leave out those already there.",
)
@click.option("--jobs", type=positive_int, metavar="N", help="With --suite: processes at once.")
@click.option(
    "--timeout", type=positive_int, metavar="S", help="With --suite: stop a case after S seconds."
)
def command(
    candidate: Sequence[str],
    standard: str,
    json: Path | None,
    report: Path | None,
    suite: str | None,
    **arguments: Any,
) -> int:
    """Compares a result with the truth in float64, and says where it is wrong.

    Exit status: 0 right, 1 wrong, 2 could not be checked. The files are those of `backops run`;
    a candidate in a .bin needs only a dtype. docs/verify.md explains the standards.
    """
    suite_arguments = {name: arguments.pop(name) for name in SUITE_OPTIONS}
    if suite is not None:
        given = [name for name, value in arguments.items() if value is not None]
        if given or report is not None:
            option = f"--{given[0]}" if given else "--report"
            raise UsageError(f"{option.replace('_', '-')} does not go with --suite")
        return verify_suite(suite, candidate, standard, json, **suite_arguments)
    for name, value in suite_arguments.items():
        if value is not None:
            raise UsageError(f"--{name} goes with --suite")
    return verify_files(candidate, standard, json, report, **arguments)


def verify_files(
    candidate: Sequence[str],
    standard: str,
    json: Path | None,
    report: Path | None,
    **arguments: Any,
) -> int:
    from backops._verify.verify import verify

    for name in ("operator", "grad_output", "input"):
        if arguments[name] is None:
            spelled = "OPERATOR" if name == "operator" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{spelled} is required, or --suite")
    if not candidate:
        raise UsageError("--candidate is required")
    call = make_call(**arguments)
    candidates = read_candidates(call, candidate, arguments["dtype"])
    result = verify(call, candidates, standard)
    if report is not None:
        from backops._verify.page import write_page

        write_page(report, result, call, candidates)
    if json is not None:
        write_json(json, result.to_json())
    if str(json) != "-":
        from rich.console import Console

        from backops._verify.text import print_report

        print_report(result, Console(highlight=False))
    return 0 if result.is_right else 1


def read_candidates(call: Any, texts: Sequence[str], dtype: str | None) -> dict[str, Any]:
    """By gradient: from NAME=FILE, from a file that holds those names, or the only one."""
    from backops._files import parse_file, read_all, read_tensor

    shapes = call.result_shapes()
    dtype = dtype or call.grad_output.dtype.name
    candidates = {}
    for text in texts:
        name, separator, file = text.partition("=")
        if separator and name in ("grad_input", "grad_weight", "grad_bias"):
            candidates[name] = read_tensor(file, dtype=dtype, shape=shapes.get(name))
        elif len(shapes) == 1:
            (only,) = shapes
            candidates[only] = read_tensor(text, dtype=dtype, shape=shapes[only])
        else:
            path = parse_file(text).path
            if path.suffix not in (".npz", ".safetensors"):
                raise UsageError(f"--candidate {text}: say which gradient, as grad_input={text}")
            if not path.is_file():
                raise UsageError(f"{path}: no such file")
            held = [name for name in read_all(path) if name in shapes]
            if not held:
                raise UsageError(f"{path}: holds none of {', '.join(shapes)}")
            for each in held:
                candidates[each] = read_tensor(f"{path}:{each}", dtype=dtype)
    return candidates


def verify_suite(
    suite: str,
    candidate: Sequence[str],
    standard: str,
    json: Path | None,
    *,
    library: Path | None,
    device: str | None,
    resume: Path | None,
    jobs: int | None,
    timeout: int | None,
) -> int:
    from backops._verify import suite as suites

    if (len(candidate) == 1) == (library is not None) or len(candidate) > 1:
        raise UsageError("--suite needs either --candidate MODULE[:FUNCTION] or --library FILE")
    if device is not None and library is None:
        raise UsageError("--device goes with --library")
    target = suites.Target(
        module=candidate[0] if candidate else None,
        library=None if library is None else str(library.absolute()),
        device=device or "cpu",
    )
    results = suites.run_suite(
        suites.read_cases(suite), target, standard, resume=resume, jobs=jobs, timeout=timeout,
        show=str(json) != "-",
    )  # fmt: skip
    if json is not None:
        write_json(json, [result.to_json() for result in results])
    statuses = {result.status for result in results}
    if statuses & set(suites.BAD):
        return 1
    return 0 if "right" in statuses else 2  # nothing but skipped cases


def write_json(path: Path, document: Any) -> None:
    text = json_format.dumps(document, indent=1)
    if str(path) == "-":
        sys.stdout.write(f"{text}\n")
    else:
        path.write_text(f"{text}\n", encoding="utf-8")

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
from backops._cli.types import non_negative_int, positive_int
from backops._command import UsageError

EXAMPLE = """
python -c 'import numpy; numpy.save("grad.npy", numpy.ones((1, 3, 4, 4), "float32"))'
backops run avg_pool2d_backward --grad-output grad.npy --input 1,3,8,8 --kernel-size 2 -o out.npy
backops verify avg_pool2d_backward --grad-output grad.npy --input 1,3,8,8 --kernel-size 2 \\
  --candidate out.npy --standard exact
backops run avg_pool2d --input grad.npy --kernel-size 2 -o pooled.npy
backops verify avg_pool2d --input grad.npy --kernel-size 2 --candidate pooled.npy
backops verify --suite default --candidate backops --standard cann
"""
LEVELS = ("cann-L0", "cann-L1", "cann-L2")
SUITE_OPTIONS = ("library", "device", "resume", "jobs", "timeout", "cluster", "cases", "runs",
                 "retries")  # fmt: skip


@click.command(cls=Command, example=EXAMPLE, failure=2)
@operator_options(required=False)
@click.option(
    "--candidate",
    multiple=True,
    metavar="FILE",
    help="The result to check. Of a convolution's gradients, a .npz or .safetensors with "
    "grad_input, grad_weight, grad_bias, or NAME=FILE, repeated. With --suite: a Python "
    "module with the operators' names, or MODULE:FUNCTION.",
)
@click.option(
    "--standard",
    default="float32",
    show_default=True,
    metavar="NAME",
    help="exact, float32, allclose:RTOL,ATOL, or a published one for Ascend operators: cann (July "
    "2026), cann-2026-04, or the double benchmark cann-L0, cann-L1, cann-L2.",
)
@click.option(
    "--benchmark",
    multiple=True,
    metavar="FILE|MODULE",
    help="With cann-L0 to L2: the second implementation. Its result in files as --candidate takes "
    "them, MODULE[:FUNCTION] as a suite's --candidate, or torch. Left out: PyTorch where it has "
    "the operator and dtype, else backops.",
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
    help="Write a page to FILE. Of one case it has pictures (needs backops[report]).",
)
@click.option(
    "--suite",
    metavar="FILE",
    help="Run many cases: a .json or .csv, `default`, or `cann`: those its standard describes.",
)
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
@click.option(
    "--cases",
    type=positive_int,
    metavar="N",
    help="With --suite: so many cases, drawn anew beyond those of the suite (default: each once; "
    "cann-L0 to L2 ask for 5000, 10000, 30000).",
)
@click.option(
    "--runs",
    type=positive_int,
    metavar="N",
    help="With --suite: run each case so often; all must agree bit for bit (default: 1, with "
    "cann-L0 to L2 2; these ask for 50, 50, 1000).",
)
@click.option(
    "--retries",
    type=non_negative_int,
    metavar="N",
    help="With --suite and cann-L0 to L2: other seeds that a failed case is tried again with "
    "(default: 1000, as they recommend; fewer than 200 count as none).",
)
@click.option("--jobs", type=positive_int, metavar="N", help="With --suite: processes at once.")
@click.option(
    "--timeout", type=positive_int, metavar="S", help="With --suite: stop a case after S seconds."
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="With --suite: run on the workers of a Dask cluster, local:N or tcp://HOST:PORT "
    "(needs backops[dask]).",
)
def command(
    candidate: Sequence[str],
    standard: str,
    benchmark: Sequence[str],
    json: Path | None,
    report: Path | None,
    suite: str | None,
    **arguments: Any,
) -> int:
    """Compares a result with the truth in float64, and says where it is wrong.

    Exit status: 0 right, 1 wrong, 2 could not be checked. The files are those of `backops run`;
    a candidate in a .bin needs only a dtype. docs/verify.md explains the standards.
    """
    check_options(standard, benchmark, json, report)
    suite_arguments = {name: arguments.pop(name) for name in SUITE_OPTIONS}
    if suite is not None:
        given = [name for name, value in arguments.items() if value is not None]
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} does not go with --suite")
        return verify_suite(suite, candidate, standard, benchmark, json, report, **suite_arguments)
    for name, value in suite_arguments.items():
        if value is not None:
            raise UsageError(f"--{name} goes with --suite")
    return verify_files(candidate, standard, benchmark, json, report, **arguments)


def check_options(
    standard: str, benchmark: Sequence[str], json: Path | None, report: Path | None
) -> None:
    """What can be known to be wrong before anything is read or computed."""
    from backops._verify.standards import check_standard

    check_standard(standard)
    if benchmark and standard not in LEVELS:
        raise UsageError(f"--benchmark goes with --standard {', '.join(LEVELS)}, not {standard}")
    for option, path in (("--json", json), ("--report", report)):
        if path is not None and str(path) != "-" and not path.absolute().parent.is_dir():
            raise UsageError(f"{option} {path}: there is no folder {path.parent}")


def verify_files(
    candidate: Sequence[str],
    standard: str,
    benchmark: Sequence[str],
    json: Path | None,
    report: Path | None,
    **arguments: Any,
) -> int:
    from backops._verify.verify import verify

    if arguments["operator"] is None:
        raise UsageError("OPERATOR is required, or --suite")
    call = make_call(**arguments)
    if not candidate:
        raise UsageError("--candidate is required")
    candidates = read_tensors(call, "--candidate", candidate, arguments["dtype"])
    second = None
    if standard in LEVELS:
        second = second_result(call, benchmark, arguments["dtype"])
    result = verify(call, candidates, standard, second)
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


def second_result(call: Any, benchmark: Sequence[str], dtype: str | None) -> Any:
    """The second implementation's result: from files, or computed."""
    from backops._verify.benchmark import Second, names_file, open_benchmark, prepare

    if any(names_file(text) for text in benchmark):
        return Second(", ".join(benchmark), read_tensors(call, "--benchmark", benchmark, dtype))
    chosen = one_module(benchmark)
    prepare(chosen, [(call.operator, call.source.dtype.name)])
    return open_benchmark(chosen)(call)


def one_module(benchmark: Sequence[str]) -> str | None:
    if len(benchmark) > 1:
        raise UsageError("--benchmark: expected one MODULE[:FUNCTION]")
    return benchmark[0] if benchmark else None


def read_tensors(call: Any, option: str, texts: Sequence[str], dtype: str | None) -> dict[str, Any]:
    """By result: from NAME=FILE, from a file that holds those names, or the only one."""
    from backops._calls import RESULTS
    from backops._files import parse_file, read_all, read_tensor

    shapes = call.result_shapes()
    dtype = dtype or call.source.dtype.name
    candidates = {}
    for text in texts:
        name, separator, file = text.partition("=")
        if separator and name in RESULTS:
            candidates[name] = read_tensor(file, dtype=dtype, shape=shapes.get(name))
        elif len(shapes) == 1:
            (only,) = shapes
            candidates[only] = read_tensor(text, dtype=dtype, shape=shapes[only])
        else:
            path = parse_file(text).path
            if path.suffix not in (".npz", ".safetensors"):
                raise UsageError(f"{option} {text}: say which gradient, as grad_input={text}")
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
    benchmark: Sequence[str],
    json: Path | None,
    report: Path | None,
    *,
    library: Path | None,
    device: str | None,
    resume: Path | None,
    jobs: int | None,
    timeout: int | None,
    cluster: str | None,
    cases: int | None,
    runs: int | None,
    retries: int | None,
) -> int:
    from backops._verify import suite as suites

    if (len(candidate) == 1) == (library is not None) or len(candidate) > 1:
        raise UsageError("--suite needs either --candidate MODULE[:FUNCTION] or --library FILE")
    if device is not None and library is None:
        raise UsageError("--device goes with --library")
    if cluster is not None:
        from backops._verify.cluster import check_address

        check_address(cluster)
        if jobs is not None:
            raise UsageError("--jobs does not go with --cluster, which has its own workers")
    target = suites.Target(
        module=candidate[0] if candidate else None,
        library=None if library is None else str(library.absolute()),
        device=device or "cpu",
    )
    rules = suite_rules(standard, benchmark, runs, retries)
    results = suites.run_suite(
        suites.campaign(suites.read_cases(suite), standard, cases), target, rules, resume=resume,
        jobs=jobs, timeout=timeout, cluster=cluster, show=str(json) != "-",
    )  # fmt: skip
    if report is not None:
        from backops._verify.suite_page import write_suite_page

        write_suite_page(report, results, target, rules)
    if json is not None:
        write_json(json, [result.to_json() for result in results])
    statuses = {result.status for result in results}
    if statuses & set(suites.BAD):
        return 1
    return 0 if "right" in statuses else 2  # nothing but skipped cases


def suite_rules(
    standard: str, benchmark: Sequence[str], runs: int | None, retries: int | None
) -> Any:
    from backops._verify.benchmark import names_file
    from backops._verify.rules import DOUBLE_RUNS, RETRIES, Rules

    is_double = standard in LEVELS
    if retries is not None and not is_double:
        raise UsageError(f"--retries goes with --standard {', '.join(LEVELS)}, not {standard}")
    if any(names_file(text) for text in benchmark):
        raise UsageError(
            f"--benchmark {benchmark[0]}: a suite makes its own data, expected MODULE[:FUNCTION]"
        )
    return Rules(
        standard=standard,
        runs=runs or (DOUBLE_RUNS if is_double else 1),
        retries=RETRIES if retries is None else retries,
        benchmark=one_module(benchmark),
    )


def write_json(path: Path, document: Any) -> None:
    text = json_format.dumps(document, indent=1)
    if str(path) == "-":
        sys.stdout.write(f"{text}\n")
    else:
        path.write_text(f"{text}\n", encoding="utf-8")

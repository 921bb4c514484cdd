"""Command line: `python -m backops`, also installed as `backops`."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import NoReturn

import backops
from backops import _native
from backops._bench import CommandError


class OneLineParser(argparse.ArgumentParser):
    """Reports a wrong command line in one line instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status: 0, 1 for a failure, 2 for wrong usage."""
    options = make_parser().parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], None] = options.command
        command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`backops bench pool | head`); Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(f"{options.prog}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if options.debug:
            raise
        print(f"{options.prog}: {one_line(error)}", file=sys.stderr)
        return 1
    return 0


def one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, CommandError):
        return text
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {text}"


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="backops",
        description="Backward passes of pooling and convolution on the CPU.",
        epilog="example: backops info",
    )
    parser.add_argument("--version", action="version", version=f"backops {backops.__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)

    bench = commands.add_parser(
        "bench",
        help="measure speed, side by side with PyTorch",
        description="Measures speed, side by side with PyTorch.",
        epilog="example: backops bench all --filter toy",
    )
    add_bench_parts(bench.add_subparsers(metavar="operator", required=True))

    info = commands.add_parser(
        "info",
        help="show CPU, instruction set, threads and versions",
        description="Shows CPU, instruction set, threads and versions.",
        epilog="example: BACKOPS_ISA=avx2 backops info",
    )
    finish(info, run_info)

    demo = commands.add_parser(
        "demo",
        help="run every operator and compare it with the reference",
        description="Runs every operator on model-sized tensors and prints time, GB/s and the "
        "largest error against the reference.",
        epilog="example: backops demo --quick",
    )
    demo.add_argument("--quick", action="store_true", help="batches of one, timed once")
    finish(demo, run_demo)

    env = commands.add_parser(
        "env",
        help="print shell lines that set up builds against the C libraries",
        description="Prints the shell lines with which C programs find headers and libraries.",
        epilog='example: eval "$(backops env infini)"',
    )
    env.add_argument(
        "interface", choices=("infini", "cann"), help="infini: InfiniOp and InfiniRT; cann: CANN"
    )
    finish(env, run_env)
    return parser


def add_bench_parts(operators: argparse._SubParsersAction[OneLineParser]) -> None:
    turns = "All sides take turns in one process; the fastest repeat of each counts."
    pool = operators.add_parser(
        "pool",
        help="average-pooling backward",
        description="Measures average-pooling backward against PyTorch's own with a preallocated "
        f"output, and against the memory bound: a plain fill-and-copy of the same buffers. {turns}",
        epilog="example: backops bench pool --filter resnet --dtype float32 --json pool.json",
    )
    conv = operators.add_parser(
        "conv",
        help="convolution backward",
        description="Measures convolution backward against PyTorch's own, and against the rate of "
        f"a large matrix product. {turns}",
        epilog="example: backops bench conv --filter depthwise --dtype float32 --json conv.json",
    )
    both = operators.add_parser(
        "all",
        help="all of these, one after another",
        description="Measures all operators, one after another.",
        epilog="example: backops bench all --filter toy",
    )
    add_bench_options(pool, ("pool",))
    add_bench_options(conv, ("conv",))
    add_bench_options(both, ("pool", "conv"))


def add_bench_options(parser: argparse.ArgumentParser, parts: Sequence[str]) -> None:
    parser.set_defaults(parts=parts)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to FILE")
    parser.add_argument(
        "--filter",
        default="",
        metavar="TEXT",
        help="only cases with TEXT in their name, problem, dtype or layout",
    )
    parser.add_argument(
        "--dtype",
        action="append",
        choices=("float32", "bfloat16", "float16"),
        help="only this dtype; may be repeated (default: all)",
    )
    parser.add_argument(
        "--threads",
        type=positive_int,
        metavar="N",
        help="threads of each side (default: BACKOPS_NUM_THREADS, or all CPUs)",
    )
    parser.add_argument(
        "--seconds",
        type=non_negative_float,
        default=1.5,
        metavar="S",
        help="measure each case for about S seconds (default: %(default)s)",
    )
    parser.add_argument(
        "--repeats",
        type=positive_int,
        default=3,
        metavar="N",
        help="at least N turns of each side, however long they take (default: %(default)s)",
    )
    finish(parser, run_bench)


def finish(parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], None]) -> None:
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(command=command, prog=parser.prog)


def positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def non_negative_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def run_bench(options: argparse.Namespace) -> None:
    from backops._bench import problems, run
    from backops._bench.timing import Budget

    run.run(
        parts=options.parts,
        dtypes=options.dtype or problems.DTYPES,
        text=options.filter,
        threads=options.threads or backops.get_num_threads(),
        budget=Budget(seconds=options.seconds, rounds=options.repeats),
        json_path=options.json,
        environment=environment(),
    )


def run_demo(options: argparse.Namespace) -> None:
    from backops._bench import demo

    demo.run(quick=options.quick)


def run_env(options: argparse.Namespace) -> None:
    variables: tuple[str, ...]
    if options.interface == "infini":
        from backops import infiniop

        variables, root, libraries = ("INFINI_ROOT",), infiniop.root(), "lib"
    else:
        from backops import acl

        variables = ("ASCEND_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
        root, libraries = acl.root(), "lib64"
    for variable in variables:
        print(f"export {variable}={shlex.quote(str(root))}")
    path = f"${variables[0]}/{libraries}"
    print(f'export LD_LIBRARY_PATH="{path}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')


def run_info(_options: argparse.Namespace) -> None:
    for name, value in environment().items():
        print(f"{name + ':':<17} {value}")


def environment() -> dict[str, str]:
    """What a reader of a measurement needs to know about where it was made."""
    return {
        "backops": backops.__version__,
        "instruction set": _native.isa(),
        "threads": str(backops.get_num_threads()),
        "CPU": cpu_name(),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "numpy": installed_version("numpy"),
        "ml_dtypes": installed_version("ml_dtypes"),
        "torch": installed_version("torch"),
        "jax": installed_version("jax"),
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def installed_version(package: str) -> str:
    # Package metadata, because importing torch to ask takes seconds.
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())

"""Builds the core and the extension with sanitizers and runs the tests on them.

    python -m tests.run_sanitized [--jobs N]

Address and undefined behaviour: all C++ tests, the C programs, then the Python cases on the
sanitized extension. Threads: the C++ tests of the thread pool and of queues, and the programs for
CANN.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.support import c
from tests.support.paths import ROOT

BIN = Path(sysconfig.get_path("scripts"))
PYTHON_TESTS = [
    "pool/test_values.py",
    "pool/test_layouts.py",
    "pool/test_errors.py",
    "pool/test_plans.py",
    "conv/test_engines.py::test_engine_computes_every_case_it_takes",
    "conv/test_layouts.py::test_vector_alignment_of_inputs_and_out_does_not_matter",
    "conv/test_layouts.py::test_strides_that_are_no_multiple_of_the_item_size",
    "conv/test_layouts.py::test_depthwise_channels_last_of_many_channels_and_rows",
    "conv/test_values.py::test_numbers_and_products_near_the_smallest_ones_are_not_lost",
    "conv/test_values.py::test_special_values_of_grad_output_reach_exactly_their_windows",
    "conv/test_values.py::test_special_values_of_input_and_weight_reach_what_they_are_multiplied_with",
    "infiniop/test_errors.py",
    "infiniop/test_functions.py",
    "infiniop/test_runtime.py",
    "infiniop/test_widths.py",
    "acl/test_convolution.py::test_strides_and_offsets",
    "acl/test_errors.py",
    "acl/test_executors.py",
    "acl/test_forward_errors.py",
    "acl/test_memory.py",
    "acl/test_objects.py",
    "acl/test_pooling.py::test_strides_and_offsets",
    "acl/test_products.py",
    "acl/test_runtime.py",
    "acl/test_streams.py",
]
# With their arguments.
C_PROGRAMS: dict[Path, list[object]] = {source: [] for source in c.EXAMPLES}
C_PROGRAMS[ROOT / "tests" / "c" / "error_table.c"] = []
C_PROGRAMS[ROOT / "tests" / "c" / "lifecycle.c"] = [200, 20]
# For CANN, on both sanitizers.
CANN_PROGRAMS: dict[Path, list[object]] = {source: [] for source in c.CANN_EXAMPLES}
CANN_PROGRAMS[ROOT / "tests" / "c" / "acl_stress.cpp"] = [16, 20]
# PyTorch and JAX allocate in ways a preloaded sanitizer takes minutes to follow, and processes
# started by a test would not be sanitized.
WITHOUT = "not pytorch and not torch and not jax and not sparse and not device and not allocates"
WITHOUT += " and not next_synchronisation and not absurdly and not page_ends"
# About values: the same code runs on the same memory in the tests beside them.
WITHOUT += " and not very_different_size and not every_position_of and not long_windows_at_borders"
# Makes plans of large problems, and looks at a number.
WITHOUT += " and not at_most_one_megabyte"
# The slow engines: the C++ tests of plans run them, too.
WITHOUT += " and not (engine_computes and (plain or matrix))"
# Pairs are added in plain loops here. Transposed operators are the same products the other way.
WITHOUT += " and not (engine_computes and pairs and transpose)"


def build(sanitizers: str, *options: str, targets: tuple[str, ...] = ()) -> Path:
    folder = ROOT / "build" / f"sanitize-{sanitizers.partition(',')[0]}"
    configure = [BIN / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}", f"-DBACKOPS_SANITIZE={sanitizers}"]
    configure += ["-DBACKOPS_TESTS=ON", "-DBACKOPS_WERROR=ON", *options]
    run(configure, quiet=True)
    run([BIN / "cmake", "--build", folder, *(f"--target={t}" for t in targets)], quiet=True)
    return folder


def run(command: list[object], *, quiet: bool = False, **environment: str) -> None:
    words = [str(word) for word in command]
    print("+", " ".join(words), flush=True)
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if quiet else {}
    done = subprocess.run(words, cwd=ROOT, env=os.environ | environment, text=True, **output)
    if done.returncode != 0:
        if quiet:
            print(done.stdout)
        sys.exit(done.returncode)


def runtime_library(name: str) -> str:
    return subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def install_package(folder: Path) -> Path:
    """The sanitized extension with the Python files of the work tree."""
    package = folder / "package"
    shutil.rmtree(package, ignore_errors=True)
    run([BIN / "cmake", "--install", folder, "--prefix", package], quiet=True)
    shutil.copytree(ROOT / "src" / "backops", package / "backops", dirs_exist_ok=True)
    return package


def run_c_programs(infini_root: Path, sanitizers: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for source, arguments in C_PROGRAMS.items():
            options = (f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-g")
            program = c.build_c(source, Path(folder), infini_root, *options)
            run([program, *arguments], quiet=True)


def run_cann_programs(cann_root: Path, sanitizers: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for source, arguments in CANN_PROGRAMS.items():
            options = (f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-g")
            program = c.build_cann(source, Path(folder), cann_root, *options)
            run([program, *arguments], quiet=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    jobs = str(parser.parse_args().jobs)

    # Sanitizers do not see what instructions on tiles touch, and few CPUs have them.
    options = (f"-DPython_EXECUTABLE={sys.executable}", "-DBACKOPS_PLAIN_MATRICES=ON")
    folder = build("address,undefined", *options)
    run([BIN / "ctest", "--test-dir", folder, "--output-on-failure", "-j", jobs])
    package = install_package(folder)
    run_c_programs(package / "backops" / "infini", "address,undefined")
    run_cann_programs(package / "backops" / "cann", "address,undefined")
    # libstdc++ too: the sanitizer looks for its exception functions when it is loaded.
    libraries = ["libasan.so", "libubsan.so", "libstdc++.so"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", jobs, "--dist", "worksteal"]
    command += ["-p", "no:logging", "-k", WITHOUT]
    run(
        [*command, *(f"{ROOT}/tests/{name}" for name in PYTHON_TESTS)],
        PYTHONPATH=str(package),
        LD_PRELOAD=":".join(map(runtime_library, libraries)),
        # CPython keeps memory until it exits; only the C++ tests look for leaks.
        ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1",
    )

    # One set of kernels will do, and shows that the core builds for other processors.
    options = ("-DBACKOPS_PYTHON=OFF", "-DBACKOPS_X86=OFF")
    # Everything that is installed, and the two tests: the others take as long to build as these.
    installed = ("infiniop", "infinirt", "ascendcl", "nnopbase", "opapi", "opapi_math", "opapi_nn")
    folder = build("thread", *options, targets=(*installed, "threads_test", "runtime_test"))
    run([BIN / "ctest", "--test-dir", folder, "--output-on-failure", "-R", "threads|runtime"])
    run([BIN / "cmake", "--install", folder, "--prefix", folder / "package"], quiet=True)
    run_cann_programs(folder / "package" / "backops" / "cann", "thread")


if __name__ == "__main__":
    main()

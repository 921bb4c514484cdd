"""What C programs get: headers, libraries, symbols, CMake files; and programs that use them."""

import itertools
import os
import re
import shutil
import sys

import pytest

from backops.__main__ import main
from backops.infiniop import root
from tests.support.c import EXAMPLES, WARNINGS, build_c, compiler, run, run_under_valgrind
from tests.support.infini import SIGNATURES
from tests.support.paths import TESTS

HEADERS = (
    "infinicore.h",
    "infinirt.h",
    "infiniop.h",
    "infiniop/handle.h",
    "infiniop/tensor_descriptor.h",
    "infiniop/operator_descriptor.h",
    "infiniop/ops/adaptive_avg_pool1d.h",
    "infiniop/ops/adaptive_avg_pool3d.h",
    "infiniop/ops/averagepool.h",
    "infiniop/ops/averagepool_backward.h",
    "infiniop/ops/avg_pool1d.h",
    "infiniop/ops/avg_pool3d.h",
    "infiniop/ops/conv.h",
    "infiniop/ops/conv_backward.h",
)
C_TESTS = TESTS / "c"


# Headers and libraries


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("language", ["c", "c++"])
def test_header_compiles_alone(header, language, tmp_path):
    source = tmp_path / "alone"
    source.write_text(f"#include <{header}>\n#include <{header}>\nint main(void) {{ return 0; }}\n")
    options = WARNINGS if language == "c" else ["-std=c++17", *WARNINGS[1:]]
    run([compiler(), *options, "-fsyntax-only", f"-I{root()}/include", "-x", language, source])


def test_headers_are_the_documented_ones():
    found = {
        str(path.relative_to(root() / "include")) for path in (root() / "include").rglob("*.h")
    }
    assert found == set(HEADERS)


def test_enums_have_the_documented_values(tmp_path):
    """As the Python enums have, which are written down independently of the headers."""
    from backops import infiniop as module

    names = module._DOCUMENTED_NAMES
    assert len(names) == 13 + 11 + 20 + 4 + 2 + 3
    checks = [f'_Static_assert({name} == {int(value)}, "{name}");' for name, value in names.items()]
    types = ("infiniStatus_t", "infiniDevice_t", "infiniDtype_t", "infinirtMemcpyKind_t")
    checks += [f'_Static_assert(sizeof({name}) == sizeof(int), "{name}");' for name in types]
    source = tmp_path / "values.c"
    source.write_text("#include <infinirt.h>\n" + "\n".join(checks) + "\n")
    run([compiler(), *WARNINGS, "-fsyntax-only", f"-I{root()}/include", source])
    shown = set(re.findall(r"\bINFINI(?:RT)?_[A-Z]+_\w+(?= = )", all_headers()))
    assert shown == set(names) | {"INFINI_DEVICE_TYPE_COUNT"}


def all_headers():
    return "".join((root() / "include" / name).read_text() for name in HEADERS)


def test_headers_declare_every_function_that_is_built():
    declared = set(re.findall(r"\binfini(?:rt|op)[A-Z]\w+(?=\()", all_headers()))
    assert declared == {name for names in SIGNATURES.values() for name in names}


def test_libraries_know_no_python():
    readelf = shutil.which("readelf")
    assert readelf, "this test needs readelf"
    for name in ("libinfinirt.so", "libinfiniop.so"):
        needed = run([readelf, "-d", root() / "lib" / name])
        assert "libbackops" in needed
        assert "python" not in needed


# Building


def assert_example_is_right(source, shown):
    if source.stem != "training":
        assert "largest error: 0\n" in shown
        return
    losses = [float(line.split()[-1]) for line in shown.splitlines()]
    assert len(losses) == 11, shown
    assert all(late < early for early, late in itertools.pairwise(losses)), shown
    assert losses[-1] < losses[0] / 100, shown


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda path: path.stem)
def test_c_example(source, tmp_path):
    assert_example_is_right(source, run([build_c(source, tmp_path, root())]))


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda path: path.stem)
def test_python_example(source):
    shown = run([sys.executable, source.with_suffix(".py")], PYTHONPATH=os.pathsep.join(sys.path))
    assert_example_is_right(source, shown)


def test_every_example_is_there_in_both_languages():
    names = ["averagepool_backward", "conv_backward", "training"]
    assert [source.stem for source in EXAMPLES] == names


def test_cmake_finds_the_package(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        f"""
cmake_minimum_required(VERSION 3.20)
project(client LANGUAGES C)
find_package(infiniop REQUIRED)
find_package(infiniop REQUIRED)  # a project may have parts that both ask for it
add_executable(client "{EXAMPLES[0]}")
target_link_libraries(client PRIVATE infiniop::infiniop infiniop::infinirt m)
"""
    )
    cmake = shutil.which("cmake") or shutil.which("cmake", path=os.path.dirname(sys.executable))
    assert cmake, "this test needs CMake"
    build = tmp_path / "build"
    run([cmake, "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={root()}"])
    run([cmake, "--build", build])
    assert "largest error: 0\n" in run([build / "client"])


def test_env_prints_lines_that_a_shell_can_use(tmp_path, capsys):
    assert main(["env", "infini"]) == 0
    lines = capsys.readouterr().out
    assert f"export INFINI_ROOT={root()}\n" in lines
    script = f"""{lines}
test "$INFINI_ROOT" = "{root()}" || exit 3
{compiler()} "{EXAMPLES[0]}" -I"$INFINI_ROOT/include" -L"$INFINI_ROOT/lib" \
  -linfiniop -linfinirt -lm -o "{tmp_path}/client" && "{tmp_path}/client"
"""
    for before, after in (("", ""), ("/first", ":/first")):
        shown = run(
            ["sh", "-euc", script + '\necho "path=$LD_LIBRARY_PATH"'], LD_LIBRARY_PATH=before
        )
        assert "largest error: 0\n" in shown
        assert f"path={root()}/lib{after}\n" in shown


def test_closing_the_libraries_while_work_is_queued(tmp_path):
    source = tmp_path / "closing.c"
    source.write_text(
        """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
static char from[1 << 20], to[1 << 20];
int main(void) {
  for (int i = 0; i < 50; ++i) {
    void *library = dlopen("libinfinirt.so", RTLD_NOW);
    void *stream = NULL;
    int (*create)(void **), (*copy)(void *, const void *, size_t, int, void *);
    *(void **)&create = dlsym(library, "infinirtStreamCreate");
    *(void **)&copy = dlsym(library, "infinirtMemcpyAsync");
    if (create(&stream) != 0) return 1;
    for (int j = 0; j < 50; ++j) copy(to, from, sizeof to, 0, stream);
    dlclose(library);
  }
  return 0;
}
"""
    )
    run([build_c(source, tmp_path, root(), "-ldl")])


def test_program_may_end_while_work_is_queued(tmp_path):
    source = tmp_path / "ending.c"
    source.write_text(
        f"""
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "{C_TESTS}/problems.h"

int main(int count, char **arguments) {{
  static float grad_input[2 * 32 * 8 * 8], grad_weight[32 * 32 * 3 * 3];
  static float grad_output[2 * 32 * 4 * 4], input[2 * 32 * 8 * 8], weight[32 * 32 * 3 * 3];
  ConvProblem problem = legal_conv();
  infiniopHandle_t handle;
  infiniopConvBackwardDescriptor_t desc;
  infinirtStream_t stream;
  size_t size;
  void *space;
  (void)arguments;
  if (infiniopCreateHandle(&handle) || infinirtStreamCreate(&stream)) return 1;
  problem.groups = 1;
  problem.bias.is_null = 1;
  problem.output.shape[1] = problem.input.shape[1] = 32;
  problem.weight.shape[0] = problem.weight.shape[1] = 32;
  if (create_conv(infiniopCreateConvBackwardDescriptor, handle, problem, &desc)) return 1;
  if (infiniopGetConvBackwardWorkspaceSize(desc, &size) || infinirtMalloc(&space, size)) return 1;
  for (int i = 0; i < 500; ++i) {{
    if (infiniopConvBackward(desc, space, size, grad_input, grad_weight, NULL, grad_output,
                             input, weight, stream)) return 1;
  }}
  if (count > 1) {{ /* the queue goes on in the parent only */
    const pid_t child = fork();
    int status = 1;
    if (child == 0) exit(0);
    return waitpid(child, &status, 0) == child ? status : 2;
  }}
  return 0;
}}
"""
    )
    program = build_c(source, tmp_path, root(), "-D_GNU_SOURCE")
    for _ in range(5):
        run([program])
        run([program, "forks"])


# Memory


def test_error_table_in_c(tmp_path):
    assert run([build_c(C_TESTS / "error_table.c", tmp_path, root())]) == "0 failures\n"


@pytest.mark.parametrize("isa", ["generic", ""])
def test_allocation_failure_is_a_status(isa, tmp_path):
    program = build_c(C_TESTS / "no_memory.c", tmp_path, root(), "-rdynamic", "-ldl")
    run([program], BACKOPS_ISA=isa, BACKOPS_NUM_THREADS="2")


def test_lives_of_operators_leak_nothing(tmp_path):
    program = build_c(C_TESTS / "lifecycle.c", tmp_path, root())
    for line in run([program, "100000", "3000"]).splitlines():
        name, _, early, late = line.split()
        # A leak of 16 bytes per pool or 600 per convolution would be more.
        assert int(late) - int(early) < 1400, f"{name}: from {early} to {late} KB"


@pytest.mark.slow
@pytest.mark.parametrize("source", [*EXAMPLES, C_TESTS / "error_table.c"], ids=lambda p: p.stem)
def test_valgrind_finds_nothing(source, tmp_path):
    run_under_valgrind(build_c(source, tmp_path, root(), "-g"))


@pytest.mark.slow
def test_valgrind_would_see_a_leak(tmp_path):
    # Without our libraries, which take valgrind 8 s to load.
    source, program = tmp_path / "leak.c", tmp_path / "leak"
    source.write_text(
        """
#include <stdlib.h>
int main(void) {
  char *volatile memory = malloc(100);
  memory = NULL;
  return memory != NULL;
}
"""
    )
    run([compiler(), *WARNINGS, source, "-o", program])
    run_under_valgrind(program, status=9)

"""What C++ programs get from the stand-in for CANN: headers, libraries, and programs that run."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from backops import acl
from backops.__main__ import main
from backops.acl import root
from tests.support import c
from tests.support.c import CANN_EXAMPLES, LINKED_AS, build_cann, compiler, run, run_under_valgrind
from tests.support.paths import ROOT, TESTS

HEADERS = (
    "acl/acl.h",
    "acl/acl_base.h",
    "acl/acl_rt.h",
    "aclnn/acl_meta.h",
    "aclnn/aclnn_base.h",
    "aclnnop/aclnn_adaptive_avg_pool2d.h",
    "aclnnop/aclnn_adaptive_avg_pool2d_backward.h",
    "aclnnop/aclnn_adaptive_avg_pool3d.h",
    "aclnnop/aclnn_adaptive_avg_pool3d_backward.h",
    "aclnnop/aclnn_avgpool2d.h",
    "aclnnop/aclnn_avgpool2d_backward.h",
    "aclnnop/aclnn_avgpool3d.h",
    "aclnnop/aclnn_avgpool3d_backward.h",
    "aclnnop/aclnn_convolution.h",
    "aclnnop/aclnn_convolution_backward.h",
)
LIBRARIES = ("ascendcl", "nnopbase", "opapi", "opapi_math", "opapi_nn")
EXAMPLES = ROOT / "examples" / "cann"
DOCUMENTS = ROOT.parent / "shared" / "seeds"


def all_headers():
    return "".join((root() / "include" / name).read_text() for name in HEADERS)


def functions():
    return set(re.findall(r"\bacl[A-Za-z0-9]+(?=\()", all_headers()))


# Headers and libraries


@pytest.mark.parametrize("standard", ["c11", "c++11", "c++17"])
def test_headers_compile_alone(standard, tmp_path):
    language = "c" if standard == "c11" else "c++"
    options = [f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    for header in HEADERS:
        source = tmp_path / "alone"
        source.write_text(f"#include <{header}>\n#include <{header}>\n")
        run([compiler(), *options, f"-I{root()}/include", "-x", language, source])


def test_headers_are_the_documented_ones():
    found = {
        str(path.relative_to(root() / "include")) for path in (root() / "include").rglob("*.h")
    }
    assert found == set(HEADERS)


def test_values_and_types_are_the_documented_ones(tmp_path):
    """As the Python enums have, which are written down independently of the headers."""
    names = acl._DOCUMENTED_NAMES
    lines = [f'static_assert({name} == {int(value)}, "{name}");' for name, value in names.items()]
    enums = ("aclDataType", "aclFormat", "aclrtMemcpyKind", "aclrtMemMallocPolicy")
    lines += [f'static_assert(sizeof({name}) == sizeof(int), "{name}");' for name in enums]
    lines += [
        "int status = aclError() + aclnnStatus();",
        "aclnnStatus (*destroy_tensor)(const aclTensor *) = aclDestroyTensor;",
        "aclnnStatus (*destroy_ints)(const aclIntArray *) = aclDestroyIntArray;",
        "aclnnStatus (*destroy_bools)(const aclBoolArray *) = aclDestroyBoolArray;",
        "aclError (*free_memory)(void *) = aclrtFree;",
        "aclIntArray *(*make_ints)(const int64_t *, uint64_t) = aclCreateIntArray;",
        "aclBoolArray *(*make_bools)(const bool *, uint64_t) = aclCreateBoolArray;",
        "void *stream = aclrtStream();",
        "uint16_t (*to_half)(float) = aclFloatToFloat16;",
        "float (*from_half)(aclFloat16) = aclFloat16ToFloat;",
        "aclnnStatus (*begin)(const char *) = aclnnInit;",
        "aclnnStatus (*end)() = aclnnFinalize;",
        "aclScalarList *(*make_list)(const aclScalar *const *, uint64_t) = aclCreateScalarList;",
        "aclnnStatus (*destroy_list)(const aclScalarList *) = aclDestroyScalarList;",
        "aclDataType scoped = aclDataType::ACL_FLOAT;",
    ]
    source = tmp_path / "values.cpp"
    source.write_text("#include <aclnn/aclnn_base.h>\n" + "\n".join(lines) + "\n")
    run([compiler(), "-std=c++11", "-fsyntax-only", f"-I{root()}/include", source])
    # Every value of the headers is in Python.
    shown = set(re.findall(r"\b(\w+) = -?\d+(?=[,\n ])", all_headers()))
    shown |= set(re.findall(r"#define (ACL(?:NN)?_[A-Z0-9_]+) \d", all_headers()))
    python_only = {"ACL_STREAM_FAST_LAUNCH", "ACL_STREAM_FAST_SYNC"}
    assert shown - python_only == set(names)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_exports_the_declared_functions_and_nothing_else(library):
    nm = shutil.which("nm")
    assert nm, "this test needs nm"
    path = root() / "lib64" / f"lib{library}.so"
    lines = run([nm, "-D", "--defined-only", path]).splitlines()
    assert {line.split()[-1] for line in lines} == functions()
    assert len(functions()) == 92


def test_loading_any_library_gives_the_same_functions(tmp_path):
    source = tmp_path / "load.c"
    names = ", ".join(f'"{root()}/lib64/lib{name}.so"' for name in reversed(LIBRARIES))
    source.write_text(
        f"""
#include <dlfcn.h>
#include <stdio.h>
int main(void) {{
  const char *names[] = {{{names}}};
  void *first = NULL;
  for (int i = 0; i < 5; ++i) {{
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    void *function = library ? dlsym(library, "aclInit") : NULL;
    if (!function) return 1;
    if (i > 0 && function != first) return 2;
    first = function;
  }}
  return 0;
}}
"""
    )
    program = tmp_path / "load"
    run([compiler(), source, "-o", program, "-ldl"])
    run([program])


def test_module_has_every_function_with_its_parameters():
    import inspect

    text = all_headers()
    out = {"workspaceSize", "executor", "majorVersion", "minorVersion", "patchVersion", "count"}
    out |= {"deviceId", "context", "value", "status", "ms", "free", "total", "stream", "event"}
    out |= {"devPtr", "hostPtr", "viewDims", "viewDimsNum", "storageDims", "storageDimsNum"}
    out |= {"stridesValue", "stridesNum", "offset", "format", "dataType", "size"}
    for name in functions():
        declared = re.search(rf"\b{name}\((.*?)\);", text, re.DOTALL).group(1)
        parameters = [each.strip() for each in declared.split(",") if each.strip() != "void"]
        wanted = []
        for each in parameters:
            parameter = re.search(r"(\w+)$", each).group(1)
            is_pointer = "*" in each or each.startswith(("aclrtStream*", "aclrtEvent*"))
            # Inputs are pointers to const, opaque handles, or memory.
            handle = re.match(r"(const |aclTensor\*|aclOpExecutor\* |void\*(?!\*))", each)
            if is_pointer and not handle and parameter in out:
                continue
            wanted.append(parameter)
        assert list(inspect.signature(getattr(acl, name)).parameters) == wanted, name


# Programs


def sample(number):
    """The program at the end of a document, as it is."""
    found = sorted(DOCUMENTS.glob(f"{number}*"))
    if not found:
        pytest.skip("the documents are not here")
    return re.findall(r"```Cpp\n(#include.*?)```", found[0].read_text(encoding="utf-8"), re.DOTALL)[
        0
    ]


@pytest.mark.parametrize("libraries", LINKED_AS, ids=lambda names: "+".join(names))
@pytest.mark.parametrize("number", ["001", "003"])
def test_sample_of_the_document_prints_the_right_values(number, libraries, tmp_path):
    source = tmp_path / "sample.cpp"
    source.write_text(sample(number), encoding="utf-8")
    options = ("-w",) if number == "003" else ()
    shown = run([build_cann(source, tmp_path, root(), *options, libraries=libraries)])
    # A gradient of 1 over a window of 16.
    assert shown.splitlines() == [f"out result[{i}] is: 0.062500" for i in range(256)]


def test_examples_build_as_on_a_machine_with_an_npu(tmp_path):
    cmake = shutil.which("cmake") or shutil.which("cmake", path=os.path.dirname(sys.executable))
    assert cmake, "this test needs CMake"
    run([cmake, "-S", EXAMPLES, "-B", tmp_path, f"-DASCEND_PATH={root()}"])
    run([cmake, "--build", tmp_path])
    for source in CANN_EXAMPLES:
        shown = run([tmp_path / source.stem])
        if source.stem == "train":
            assert_learns(shown)
        else:
            assert "largest error: 0\n" in shown
    assert len(CANN_EXAMPLES) == 4


def assert_learns(shown):
    """The loss falls from line to line, and a long way."""
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", shown, re.MULTILINE)]
    assert len(losses) == len(shown.splitlines()) >= 5
    assert sorted(losses, reverse=True) == losses
    assert 0 < losses[-1] < losses[0] / 1000, shown


def test_python_example():
    program = EXAMPLES / "avgpool2d_backward.py"
    shown = run([sys.executable, program], PYTHONPATH=os.pathsep.join(sys.path))
    assert "largest error: 0\n" in shown


BUILD_BY_ENVIRONMENT = """
{compiler} -std=c++11 "{source}" -I"$ASCEND_HOME_PATH/include" -L"$ASCEND_TOOLKIT_HOME/lib64" \
  -lopapi -lascendcl -o "{folder}/client" && "{folder}/client"
"""


def test_env_prints_lines_that_a_shell_can_use(tmp_path, capsys):
    assert main(["env", "cann"]) == 0
    lines = capsys.readouterr().out
    assert f"export ASCEND_PATH={root()}\n" in lines
    values = {"compiler": c.compiler("c++"), "source": CANN_EXAMPLES[0]}
    script = lines + BUILD_BY_ENVIRONMENT.format(**values, folder=tmp_path)
    assert "largest error: 0\n" in run(["sh", "-euc", script])


def test_set_env_works_from_anywhere(tmp_path):
    values = {"compiler": c.compiler("c++"), "source": CANN_EXAMPLES[0]}
    script = f'source "{root()}/set_env.sh"\n'
    script += BUILD_BY_ENVIRONMENT.format(**values, folder=tmp_path)
    assert "largest error: 0\n" in run(["bash", "-euc", script])


def test_stress(tmp_path):
    program = build_cann(TESTS / "c" / "acl_stress.cpp", tmp_path, root())
    assert run([program, "16", "300"]) == "0 failures\n"


@pytest.mark.parametrize("isa", ["generic", ""])
def test_allocation_failure_is_a_code(isa, tmp_path):
    source = TESTS / "c" / "acl_no_memory.cpp"
    program = build_cann(source, tmp_path, root(), "-rdynamic", "-ldl")
    shown = run([program], BACKOPS_ISA=isa, BACKOPS_NUM_THREADS="2")
    assert len(shown.splitlines()) == 12


OPERATORS_ONLY = """
#include <cstdio>
#include <vector>
#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_adaptive_avg_pool2d_backward.h"
#define CHECK(call) if (int code = (call)) { std::puts(#call); return code; }
int main() {
  CHECK(aclnnInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK(aclrtCreateStream(&stream));
  const int64_t small[] = {1, 1, 1}, large[] = {1, 2, 4};
  std::vector<aclFloat16> values(8, aclFloatToFloat16(0.1f));
  const auto tensor = [&](const int64_t* shape) {
    void* data = nullptr;
    const size_t bytes = shape[1] * shape[2] * sizeof(aclFloat16);
    aclrtMalloc(&data, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemcpy(data, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE);
    return aclCreateTensor(shape, 3, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, shape, 3, data);
  };
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  void *workspace = nullptr, *result = nullptr;
  aclrtMalloc(&result, 16, ACL_MEM_MALLOC_HUGE_FIRST);
  aclTensor* const out =
      aclCreateTensor(large, 3, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, large, 3, result);
  CHECK(aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(tensor(small), tensor(large), out, &size,
                                                       &executor));
  if (size > 0) CHECK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclnnAdaptiveAvgPool2dBackward(workspace, size, executor, stream));
  CHECK(aclrtSynchronizeStream(stream));
  CHECK(aclrtMemcpy(values.data(), 16, result, 16, ACL_MEMCPY_DEVICE_TO_HOST));
  for (const aclFloat16 value : values) std::printf("%.9g ", aclFloat16ToFloat(value));
  CHECK(aclnnFinalize());
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  return 0;
}
"""


def test_program_that_begins_with_the_operators_only(tmp_path):
    source = tmp_path / "operators_only.cpp"
    source.write_text(OPERATORS_ONLY)
    shown = run([build_cann(source, tmp_path, root())])
    # An eighth of the float16 next to 0.1.
    assert shown == "0.0124969482 " * 8


def test_program_may_end_while_work_is_queued(tmp_path):
    source = tmp_path / "ending.cpp"
    source.write_text(
        """
#include "device.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
int main() {
  Device& device = *new Device;
  const std::vector<float> values(8 * 32 * 32 * 32, 1.0f);
  Tensor& small = *new Tensor({8, 1, 32, 32, 32}, ACL_FORMAT_ND, values);
  Tensor& self = *new Tensor({8, 1, 32, 32, 32}, ACL_FORMAT_ND, values);
  Tensor& out = *new Tensor({8, 1, 32, 32, 32}, ACL_FORMAT_ND, values);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(small.get(), self.get(), out.get(), &size,
                                                       &executor));
  CHECK(aclSetAclOpExecutorRepeatable(executor));
  Memory& workspace = *new Memory(allocate(size + 1));
  for (int i = 0; i < 200; ++i) {
    CHECK(aclnnAdaptiveAvgPool3dBackward(workspace.get(), size, executor, device.stream));
  }
  return 0;
}
"""
    )
    program = build_cann(source, tmp_path, root(), f"-I{EXAMPLES}")
    for _ in range(3):
        run([program])


@pytest.mark.slow
def test_valgrind_finds_nothing(tmp_path):
    run_under_valgrind(build_cann(CANN_EXAMPLES[0], tmp_path, root(), "-g"))


def test_import_backops_does_not_load_the_library():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import backops; print('libascendcl' in open('/proc/self/maps').read())",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"

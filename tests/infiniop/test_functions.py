"""Every function of InfiniCore's headers is there: clients declare all of them when they load.

Nothing here needs a framework, so that it also runs on the sanitized libraries.
"""

import ctypes
import random
import re
import shutil
import subprocess

import pytest

from backops.infiniop import root
from tests.support.infini import SIGNATURES, Status, infiniop, infinirt
from tests.support.paths import TESTS

FUNCTIONS = [
    line
    for line in (TESTS.parent / "cpp" / "infiniop" / "functions.txt").read_text().splitlines()
    if not line.startswith("#")
]
BUILT = {name for signatures in SIGNATURES.values() for name in signatures}
STUBS = [name for name in FUNCTIONS if name not in BUILT]
LIBRARIES = {"infinirt": infinirt, "infiniop": infiniop}


def functions_of(library):
    return [name for name in FUNCTIONS if re.match(f"{library}[A-Z]", name)]


def test_list_is_in_order_and_has_what_is_built():
    assert sorted(set(FUNCTIONS)) == FUNCTIONS
    assert len(FUNCTIONS) == 765
    assert set(FUNCTIONS) >= BUILT
    assert sum(len(functions_of(library)) for library in LIBRARIES) == len(FUNCTIONS)


@pytest.mark.parametrize("page", ["infiniop.md", "infiniop.zh.md"])
def test_page_counts_the_functions(page):
    text = (TESTS.parent / "docs" / "interfaces" / page).read_text(encoding="utf-8")
    for count in (len(FUNCTIONS), len(BUILT)):
        assert f" {count} " in text, count


@pytest.mark.parametrize("library", LIBRARIES)
def test_library_exports_the_list_and_nothing_else(library):
    nm = shutil.which("nm")
    assert nm, "this test needs nm"
    shown = subprocess.run(
        [nm, "-D", "--defined-only", root() / "lib" / f"lib{library}.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert sorted(line.split()[-1] for line in shown.splitlines()) == functions_of(library)


def test_client_that_declares_every_function_loads():
    for name in LIBRARIES:
        # Not the one that other tests have declared with what the functions take.
        library = ctypes.CDLL(str(root() / "lib" / f"lib{name}.so"))
        for function in functions_of(name):
            getattr(library, function).restype = ctypes.c_int
            getattr(library, function).argtypes = [ctypes.c_void_p]


@pytest.mark.parametrize("kind", ["pointers", "numbers", "nothing"])
def test_stubs_answer_whatever_they_are_called_with(kind):
    memory = (ctypes.c_char * 4096)(*b"\x5a" * 4096)
    begin = ctypes.addressof(memory)
    generator = random.Random(1)
    arguments = {
        "pointers": lambda: ctypes.c_void_p(begin + 8 * generator.randrange(500)),
        # No addresses of anything, in registers of both kinds and on the stack.
        "numbers": lambda: generator.choice([ctypes.c_int, ctypes.c_double])(
            generator.randrange(9)
        ),
    }
    assert len(STUBS) == len(FUNCTIONS) - len(BUILT) > 600
    for name in STUBS:
        count = 0 if kind == "nothing" else 20
        values = [arguments[kind]() for _ in range(count)]
        function = getattr(LIBRARIES[re.match("infini(rt|op)", name).group()], name)
        assert function(*values) == Status.NOT_IMPLEMENTED, name
    assert memory.raw == b"\x5a" * 4096

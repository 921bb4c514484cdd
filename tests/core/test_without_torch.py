"""A missing PyTorch is an error, but for `pytest --without-torch`."""

import pathlib
import sys

import pytest

from tests.support.processes import run_python

TESTS = """
import pytest
import torch

@pytest.mark.parametrize("dtype", [torch.float16])
def test_names_only(dtype):
    assert 1 + 1 == 2

def test_uses_torch():
    torch.ones(1)

def test_imports_torch():
    import torch.nn.functional

def test_starts_a_program():
    from tests.support.processes import run_python
    run_python("raise ModuleNotFoundError(\\"No module named 'torch'\\")")

def test_fails_for_another_reason():
    assert 1 + 1 == 3
"""


def run_pytest(tmp_path, *options):
    path = tmp_path / "test_it.py"
    path.write_text(TESTS)
    arguments = ["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *options, str(path)]
    code = f"""
import sys
sys.modules["torch"] = None
import pathlib
import sys

import pytest
sys.exit(pytest.main({arguments!r}))
"""
    return run_python(code, check=False)


@pytest.mark.parametrize(
    ("options", "summary"),
    [((), "1 error"), (("--without-torch",), "1 failed, 1 passed, 3 skipped")],
    ids=["make test", "make test-python"],
)
def test_missing_pytorch(tmp_path, options, summary):
    done = run_pytest(tmp_path, *options)
    assert done.returncode != 0
    assert summary in done.stdout, done.stdout


def test_folders_of_tests_are_not_found_in_place_of_frameworks():
    # tests/torch and tests/jax would be where the frameworks are not there.
    code = "import sys; print(*sys.path, sep='\\n')"
    for path in (*sys.path, *run_python(code).stdout.splitlines()):
        assert not (pathlib.Path(path) / "torch" / "test_values.py").exists(), path

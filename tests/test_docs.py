"""What the documentation shows runs."""

import doctest
import importlib
import re

import pytest
import support

README = support.ROOT / "README.md"


def python_blocks():
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "name",
    [
        "backops",
        "backops.reference",
        "backops.plan",
        "backops.infiniop",
        "backops.acl",
        "backops.torch",
    ],
)
def test_examples_of_docstrings_run(name):
    module = importlib.import_module(name)
    # The package re-exports functions of private modules: their examples are found by name.
    tests = list(_doctests(module))
    assert tests, f"{name} shows no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def _doctests(module):
    import numpy as np

    import backops

    things = {module.__name__: module}
    for name in getattr(module, "__all__", dir(module)):
        value = getattr(module, name)
        if not name.startswith("_") and callable(value):
            things[f"{module.__name__}.{name}"] = value
    for name, value in things.items():
        # What a reader of these examples has imported.
        names = {**vars(module), "np": np, "backops": backops}
        text = getattr(value, "__doc__", None) or ""
        test = doctest.DocTestParser().get_doctest(text, names, name, module.__file__, 0)
        if test.examples:
            yield test


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    """In the order of the page: later blocks go on from earlier ones."""
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks()
    assert blocks
    names = {"__name__": "readme"}
    try:
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)
    finally:
        # Other tests hold our kernels against PyTorch's own.
        importlib.import_module("backops.torch").disable()

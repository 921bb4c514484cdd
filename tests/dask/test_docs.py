"""What the docstrings of backops.dask show runs, and its names are those of the package."""

import doctest
import inspect
import sys

import dask.array as da
import numpy as np

import backops
import backops.dask

OPERATORS = [name for name in backops.dask.__all__ if hasattr(backops, name)]


def test_examples_of_docstrings_run():
    names = {"da": da, "np": np, "backops": backops}
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    things = {"backops.dask": backops.dask}
    things |= {name: getattr(backops.dask, name) for name in backops.dask.__all__}
    for name, thing in things.items():
        test = parser.get_doctest(thing.__doc__, dict(names), name, None, 0)
        assert test.examples or inspect.isclass(thing), f"{name} shows no example"
        if name != "from_zarr" or sys.version_info >= (3, 11):  # Zarr 3 wants it
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_every_operator_of_the_package_is_there():
    public = {name for name in backops.__all__ if "pool" in name or name.startswith("conv")}
    assert public == set(OPERATORS)


def test_parameters_are_those_of_the_package_with_chunks_instead_of_out():
    for name in OPERATORS:
        plain = inspect.signature(getattr(backops, name)).parameters.values()
        lazy = inspect.signature(getattr(backops.dask, name)).parameters.values()
        wanted = [(p.name, p.default, p.kind) for p in plain if p.name != "out"]
        got = [(p.name, p.default, p.kind) for p in lazy if p.name != "chunks"]
        assert got == wanted, name
        assert [p.default for p in lazy if p.name == "chunks"] == [None], name

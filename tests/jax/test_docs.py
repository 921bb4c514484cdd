"""What the documentation of backops.jax shows runs."""

import doctest
import re

import jax.numpy as jnp

import backops
import backops.jax
from tests.support.paths import ROOT


def test_examples_of_docstrings_run():
    names = {"jnp": jnp, "backops": backops}
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    things = {"backops.jax": backops.jax}
    things |= {name: getattr(backops.jax, name) for name in backops.jax.__all__ if name.islower()}
    for name, thing in things.items():
        test = parser.get_doctest(thing.__doc__, dict(names), name, None, 0)
        assert test.examples, f"{name} shows no example"
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_python_of_the_page_runs():
    text = (ROOT / "docs" / "jax.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    names = {"__name__": "jax.md"}
    for block in blocks:
        exec(compile(block, "docs/jax.md", "exec"), names)

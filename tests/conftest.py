"""How many examples are tried, and what to do without PyTorch."""

import os

# Before anything loads OpenMP: PyTorch's idle threads would spin on the cores that others test on.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hypothesis
import pytest

from tests.support import without_torch
from tests.support.paths import TESTS

# Fixed examples keep a run repeatable; BACKOPS_FUZZ=1 looks for new ones instead.
hypothesis.settings.register_profile(
    "default", derandomize=True, deadline=None, database=None, max_examples=150
)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=5000, print_blob=True)
hypothesis.settings.load_profile("fuzz" if os.environ.get("BACKOPS_FUZZ") == "1" else "default")


def pytest_addoption(parser):
    parser.addoption("--without-torch", action="store_true", help="skip what needs PyTorch")


def pytest_configure(config):
    if config.getoption("without_torch"):
        without_torch.install()


def pytest_ignore_collect(collection_path, config):
    # These are about nothing else.
    if config.getoption("without_torch") and collection_path == TESTS / "torch":
        return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from _without_torch(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _without_torch(item))


def _without_torch(item):
    if not item.config.getoption("without_torch"):
        return (yield)
    return (yield from without_torch.skip_where_used())

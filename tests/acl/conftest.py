"""acl as a program has it after its first calls."""

import pytest

from backops import acl
from tests.support.acl import check, initialised


@pytest.fixture
def device():
    with initialised():
        yield


@pytest.fixture
def stream(device):
    made = check(*acl.aclrtCreateStream())
    yield made
    check(acl.aclrtDestroyStream(made))

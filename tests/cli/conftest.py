"""Commands that compare with PyTorch, and measure no longer than they must."""

import pytest

from backops._bench import timing
from tests.support.onednn import _one_probe_of_each_kind

__all__ = ["_one_probe_of_each_kind"]


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch):
    """What is printed and written is looked at, not whether it is right to a percent."""
    for name in ("SETTLE_SECONDS", "SAMPLE_SECONDS", "TURN_SECONDS"):
        monkeypatch.setattr(timing, name, getattr(timing, name) / 20)

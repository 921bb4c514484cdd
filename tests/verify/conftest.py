"""Commands that compare with PyTorch."""

from tests.support.onednn import _one_probe_of_each_kind

__all__ = ["_one_probe_of_each_kind"]

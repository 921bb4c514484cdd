"""What PyTorch's bfloat16 convolutions survive on this machine, found out once."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace

import pytest

from backops._bench import pytorch


@pytest.fixture(autouse=True, scope="session")
def _one_probe_of_each_kind():
    """Commands in this process ask one that imports PyTorch: the first does, others are told."""
    answers = {}

    def run(command, **keywords):
        key = *command, os.environ.get("ONEDNN_MAX_CPU_ISA")
        if key not in answers:
            answers[key] = subprocess.run(command, **keywords)
        return answers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytorch, "subprocess", SimpleNamespace(run=run))
        yield

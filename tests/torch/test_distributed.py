"""The example of data-parallel training: losses of two processes are those of one."""

import json
import os
import subprocess
import sys

import pytest
import torch

from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "torch_ddp.py"


def losses_of(command, path):
    """The exit status is not judged: gloo's own end sometimes aborts after all is done."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    variables.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [sys.executable, *command, str(EXAMPLE), "--steps", "6", "--losses", str(path)],
        env=variables, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert path.exists(), done.stdout + done.stderr
    return json.loads(path.read_text())


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed")
def test_two_processes_have_the_losses_of_one(tmp_path):
    one = losses_of([], tmp_path / "one.json")
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    two = losses_of(torchrun, tmp_path / "two.json")
    assert len(one["losses"]) == 6
    assert one["losses"][-1] != one["losses"][0]
    assert two["losses"] == pytest.approx(one["losses"], rel=2e-5)
    cpus = len(os.sched_getaffinity(0))
    assert one["threads"] == cpus
    assert two["threads"] == max(1, cpus // 2)

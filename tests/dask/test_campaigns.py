"""`backops verify --suite --cluster`: cases on workers of Dask, and what may go wrong there."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import distributed
import pytest

from backops import infiniop
from backops.__main__ import main
from backops._command import CommandError
from backops._verify import cases, cluster, suite
from backops._verify.rules import Rules
from backops._verify.targets import Target
from tests.support import dask_clusters
from tests.support.paths import ROOT

SMALL = [
    {"name": name, "operator": "avg_pool2d_backward", "input": [1, channels, 6, 6],
     "kernel_size": 3, "stride": 2, "padding": 1}
    for name, channels in (("one", 1), ("two", 2), ("three", 3), ("four", 4), ("five", 5))
]  # fmt: skip


@pytest.fixture(scope="module")
def workers() -> Any:
    os.environ["PYTHONPATH"] = str(ROOT)  # candidates of the tests can be imported there
    with dask_clusters.processes() as made:
        yield made
    del os.environ["PYTHONPATH"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL))
    return path


def statuses(path: Path, candidate: str, address: str, **more: Any) -> dict[str, str]:
    target = Target(module=f"tests.support.candidates:{candidate}")
    results = suite.run_suite(
        cases.read_cases(str(path)), target, Rules("float32"), cluster=address, show=False, **more
    )
    return {result.name.split()[0]: result.status for result in results}


def test_command_starts_a_cluster_of_its_own(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, resume = tmp_path / "page.html", tmp_path / "done.jsonl"
    arguments = ["verify", "--suite", str(small), "--candidate", "backops", "--cluster", "local:1"]
    assert main([*arguments, "--report", str(page), "--resume", str(resume)]) == 0
    assert "5 right, 0 not" in capsys.readouterr().out
    assert "5 right" in page.read_text()
    assert len(resume.read_text().splitlines()) == 5
    # Without a cluster nothing is left to do.
    assert main([*arguments[:-2], "--resume", str(resume)]) == 0
    assert "5 of 5 cases are in" in capsys.readouterr().out.replace("\n", " ")


def test_candidate_that_crashes_costs_its_case(workers: Any, small: Path) -> None:
    found = statuses(small, "crashing", workers.scheduler_address)
    assert found == {**dict.fromkeys(("one", "three", "four", "five"), "right"), "two": "crashed"}


def test_slow_case_is_stopped(workers: Any, small: Path) -> None:
    found = statuses(small, "sleeping", workers.scheduler_address, timeout=2)
    assert found["two"] == "timeout"
    assert [*found.values()].count("right") == 4


def test_worker_that_dies_costs_nothing_but_time(workers: Any, small: Path, tmp_path: Path) -> None:
    """What it ran runs again elsewhere; what was done stays done."""
    resume = tmp_path / "done.jsonl"
    found: dict[str, str] = {}
    address = workers.scheduler_address
    campaign = threading.Thread(
        target=lambda: found.update(statuses(small, "slow", address, resume=resume))
    )
    with distributed.Client(workers) as client:
        before = list(client.run(os.getpid).values())
        campaign.start()
        wait_for(lambda: resume.exists())
        os.kill(before[0], signal.SIGKILL)
        campaign.join(60)
        assert set(client.run(os.getpid).values()) != set(before)
    assert found == dict.fromkeys(("one", "two", "three", "four", "five"), "right")
    assert len(resume.read_text().splitlines()) == 5


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_library_is_driven_by_its_path(workers: Any, small: Path) -> None:
    library = str(infiniop.root() / "lib" / "libinfiniop.so")
    results = suite.run_suite(
        cases.read_cases(str(small)), Target(library=library), Rules("float32"),
        cluster=workers.scheduler_address, show=False,
    )  # fmt: skip
    assert {result.status for result in results} == {"right"}


def test_library_that_is_another_file_on_a_worker_is_refused(workers: Any) -> None:
    target = Target(library=str(infiniop.root() / "lib" / "libinfiniop.so"))
    with distributed.Client(workers) as client:
        cluster.check_workers(client, target, target.digest())
        with pytest.raises(CommandError, match=r"worker tcp://.* is another file there \(sha256"):
            cluster.check_workers(client, target, "0" * 64)


def test_library_that_is_not_on_a_worker_is_named(workers: Any, tmp_path: Path) -> None:
    target = Target(library=str(tmp_path / "none.so"))
    with (
        distributed.Client(workers) as client,
        pytest.raises(CommandError, match=r"worker tcp://.*none.so: No such file"),
    ):
        cluster.check_workers(client, target, "")


def test_candidate_that_cannot_be_loaded_is_told(workers: Any, small: Path) -> None:
    with pytest.raises(CommandError, match="has no function 'nix'"):
        statuses(small, "nix", workers.scheduler_address)


def test_scheduler_that_is_not_there_is_told_within_seconds(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        start = time.monotonic()
        arguments = ["verify", "--suite", str(small), "--candidate", "backops"]
        assert main([*arguments, "--cluster", address]) == 2
        assert time.monotonic() - start < 15
    assert f"--cluster {address}: no scheduler answers there" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["local", "local:0", "tcp://", "host:80", "local:2x"])
def test_wrong_address_is_refused(
    address: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["verify", "--suite", str(small), "--candidate", "backops", "--cluster", address]
    assert main(arguments) == 2
    assert "expected local:N or tcp://HOST:PORT" in capsys.readouterr().err


def test_jobs_do_not_go_with_a_cluster(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", "--suite", str(small), "--candidate", "backops", "--jobs", "2"]
    assert main([*arguments, "--cluster", "local:2"]) == 2
    assert "--jobs does not go with --cluster" in capsys.readouterr().err

"""Cases on the workers of a Dask cluster, of this machine or of many.

Each worker runs cases in a process of its own, as a suite does without a cluster: a candidate that
crashes costs its case, not the worker. A worker that dies costs the cases it was running, which
Dask then runs elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import backops
from backops._command import CommandError, UsageError
from backops._verify.benchmark import prepare
from backops._verify.cases import Case
from backops._verify.results import Result
from backops._verify.rules import Rules
from backops._verify.targets import Target
from backops._verify.workers import Worker, is_late, lost, receive

CONNECT_SECONDS = 5
WORKERS_SECONDS = 30
ADDRESS = re.compile(r"local:([1-9]\d*)|((?:tcp|tls)://[^/]+:\d+)")


def check_address(text: str) -> None:
    if not ADDRESS.fullmatch(text):
        raise UsageError(f"--cluster {text}: expected local:N or tcp://HOST:PORT")


@contextlib.contextmanager
def connect(text: str) -> Iterator[Any]:
    """A client of the cluster; a local one is started, and ended afterwards."""
    try:
        import distributed
    except ImportError as missing:
        raise CommandError("--cluster needs Dask: pip install 'backops[dask]'") from missing
    check_address(text)
    if text.startswith("local:"):
        workers = int(text.partition(":")[2])
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, memory_limit=0,
                dashboard_address=":0", silence_logs=logging.CRITICAL,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):  # fmt: skip
            yield client
        return
    try:
        client = distributed.Client(text, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise CommandError(f"--cluster {text}: no scheduler answers there") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKERS_SECONDS)
        except TimeoutError:
            raise CommandError(
                f"--cluster {text}: the scheduler has no workers after {WORKERS_SECONDS} s"
            ) from None
        yield client


def run_cases(
    cases: Sequence[Case], target: Target, rules: Rules, *, cluster: str, timeout: float | None
) -> Iterator[tuple[Case, Result]]:
    """Each case's result, as soon as it is there."""
    if not cases:
        return
    digest = target.digest()
    with connect(cluster) as client:
        check_workers(client, target, digest)
        kinds = frozenset((case.operator, case.dtype) for case in cases)
        job = Job(target, rules, digest, kinds, threads_of(cluster), timeout)
        yield from results_of(client, job, cases)


def results_of(client: Any, job: Job, cases: Sequence[Case]) -> Iterator[tuple[Case, Result]]:
    import distributed

    futures = client.map(job, cases, pure=False)
    by_key = {future.key: case for future, case in zip(futures, cases, strict=True)}
    for future in distributed.as_completed(futures):
        case = by_key[future.key]
        if future.status == "finished":
            yield case, future.result()
        else:
            error = future.exception()
            if not isinstance(error, distributed.KilledWorker):
                client.cancel(futures)
                raise CommandError(str(error)) from error
            detail = "every worker that ran it died"
            yield case, Result(case.label, case.operator, "crashed", detail=detail)
        future.release()


def threads_of(cluster: str) -> int:
    """Of each case: this machine's CPUs are shared; elsewhere a worker's thread is one."""
    if not cluster.startswith("local:"):
        return 1
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cpus // int(cluster.partition(":")[2]))


def check_workers(client: Any, target: Target, digest: str) -> None:
    """Before a case is run: each worker has this version of backops, and the same library."""
    for address, found in client.run(describe, target, on_error="return").items():
        if isinstance(found, Exception):
            raise CommandError(f"worker {address}: {found}") from found
        version, theirs = found
        if version != backops.__version__:
            raise CommandError(
                f"worker {address}: backops {version}, expected {backops.__version__}"
            )
        check_digest(target, address, theirs, digest)


def check_digest(target: Target, address: str, theirs: str, digest: str) -> None:
    if theirs != digest:
        raise CommandError(
            f"worker {address}: {target.library} is another file there (sha256 {theirs[:12]}, "
            f"expected {digest[:12]})"
        )


def describe(target: Target) -> tuple[str, str]:
    return backops.__version__, target.digest()


class Job:
    """What a worker does with a case. The process that runs it stays for the next one."""

    def __init__(
        self,
        target: Target,
        rules: Rules,
        digest: str,
        kinds: frozenset[tuple[str, str]],
        threads: int,
        timeout: float | None,
    ) -> None:
        self.target, self.rules, self.digest = target, rules, digest
        self.kinds, self.threads, self.timeout = kinds, threads, timeout

    @property
    def identity(self) -> tuple[Any, ...]:
        return self.target, self.rules, self.digest, self.kinds, self.threads

    def __call__(self, case: Case) -> Result:
        worker = self.worker()
        while not worker.is_ready:
            receive(worker)
        worker.start(case)
        while not worker.connection.poll(0.2):
            if is_late(worker, self.timeout):
                outcome = lost(worker, "timeout", f"stopped after {self.timeout:g} s")
                break
        else:
            outcome = receive(worker)
        if worker.process.exitcode is not None:
            worker.stop()
            _kept.worker = None
        assert outcome is not None
        return outcome[1]

    def worker(self) -> Worker:
        """This thread's, or a new one; a worker that came late is checked now."""
        worker, identity = _kept.worker, _kept.identity
        if worker is not None and identity == self.identity and worker.process.exitcode is None:
            return worker
        if worker is not None:
            worker.stop()
        check_digest(self.target, "", self.target.digest(), self.digest)
        if self.rules.is_double:
            prepare(self.rules.benchmark, self.kinds)
        _kept.worker, _kept.identity = Worker(self.target, self.rules, self.threads), self.identity
        return _kept.worker


class _Kept(threading.local):
    worker: Worker | None = None
    identity: tuple[Any, ...] = ()


_kept = _Kept()

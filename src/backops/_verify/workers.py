"""Processes that run cases, one at a time each, so that a crash costs one case."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

import backops
from backops._command import CommandError
from backops._verify.benchmark import open_benchmark
from backops._verify.cases import Case
from backops._verify.results import Result
from backops._verify.rules import Rules
from backops._verify.targets import Target
from backops._verify.trial import run_case

READY = "ready"


class Process:
    """A new interpreter at the other end of a connection.

    Not forked: the candidate's library must not inherit threads that are not there. Not one of
    multiprocessing's: workers of Dask may not have such children.
    """

    def __init__(self, target: Target, rules: Rules, threads: int) -> None:
        ours, theirs = socket.socketpair()
        # What can be imported here can be imported there.
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with theirs:
            code = f"from backops._verify import workers; workers.main({theirs.fileno()})"
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
            )
        self.connection = Connection(ours.detach())
        self.connection.send((target, rules, threads))

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    def join(self) -> None:
        self._process.wait()


def main(descriptor: int) -> None:
    """What the new interpreter runs."""
    connection = Connection(descriptor)
    serve(connection, *connection.recv())


def serve(connection: Connection, target: Target, rules: Rules, threads: int) -> None:
    """What a worker does: loads what it needs, then runs every case it is sent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    backops.set_num_threads(threads)
    try:
        candidate = target.open()
        benchmark = open_benchmark(rules.benchmark) if rules.is_double else None
    except Exception as error:
        connection.send(f"{' '.join(str(error).split())}")
        return
    connection.send(READY)
    with np.errstate(all="ignore"):
        while True:
            try:
                case: Case | None = connection.recv()
            except EOFError:
                return
            if case is None:
                return
            connection.send(run_case(case, candidate, rules, benchmark))


class Worker:
    def __init__(self, target: Target, rules: Rules, threads: int) -> None:
        self.process = Process(target, rules, threads)
        self.connection = self.process.connection
        self.case: Case | None = None
        self.started = 0.0
        self.is_ready = False

    def start(self, case: Case) -> None:
        self.case, self.started = case, time.monotonic()
        self.connection.send(case)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_cases(
    cases: Sequence[Case],
    target: Target,
    rules: Rules,
    *,
    jobs: int,
    threads: int,
    timeout: float | None,
) -> Iterator[tuple[Case, Result]]:
    """Each case's result, as soon as it is there."""
    waiting = list(reversed(cases))
    workers = [Worker(target, rules, threads) for _ in range(min(jobs, len(cases)))]
    try:
        while workers:
            ready = wait([worker.connection for worker in workers], timeout=0.2)
            for worker in list(workers):
                outcome = None
                if worker.connection in ready:
                    outcome = receive(worker)
                elif is_late(worker, timeout):
                    outcome = lost(worker, "timeout", f"stopped after {timeout:g} s")
                if outcome is not None:
                    yield outcome
                if worker.process.exitcode is not None or not worker.connection.readable:
                    workers.remove(worker)
                    worker.stop()
                    if waiting:
                        workers.append(Worker(target, rules, threads))
                elif worker.is_ready and worker.case is None:
                    if waiting:
                        worker.start(waiting.pop())
                    else:
                        worker.connection.send(None)
                        workers.remove(worker)
                        worker.process.join()
    finally:
        for worker in workers:
            worker.stop()


def is_late(worker: Worker, timeout: float | None) -> bool:
    if timeout is None or worker.case is None:
        return False
    return time.monotonic() - worker.started > timeout


def receive(worker: Worker) -> tuple[Case, Result] | None:
    """What a worker sent: that it is ready, a result, or nothing because it crashed."""
    try:
        message: Any = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        code = worker.process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        if not worker.is_ready:
            raise CommandError(f"the candidate could not be loaded: {how}") from None
        return lost(worker, "crashed", how)
    if not worker.is_ready:
        if message != READY:
            raise CommandError(message)
        worker.is_ready = True
        return None
    case, worker.case = worker.case, None
    assert case is not None
    return case, message


def lost(worker: Worker, status: str, detail: str) -> tuple[Case, Result] | None:
    worker.process.kill()
    worker.process.join()
    case = worker.case
    if case is None:
        return None
    return case, Result(case.label, case.operator, status, detail=detail)

"""A cluster of processes on this machine, for tests."""

from __future__ import annotations

import contextlib
import logging

import distributed


@contextlib.contextmanager
def processes(workers: int = 2, memory_limit="2GB"):
    with distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        memory_limit=memory_limit,
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster

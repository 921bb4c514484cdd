"""The same bits on every scheduler, also when a worker dies."""

import os
import signal
import threading
import time

import dask
import dask.array as da
import distributed
import numpy as np
import pytest

import backops.dask
from tests.support import dask_clusters
from tests.support.floats import same_bits


@pytest.fixture(scope="module")
def cluster():
    """Two processes of one thread each. Tests may end one: the cluster starts another."""
    with dask_clusters.processes() as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client:
        yield client


def problem(dtype="float32", delay=0.0):
    """Gradients whose chunks need neighbours, and sums over many chunks."""
    random = np.random.default_rng(0)
    y, x = (random.standard_normal((2, 4, 16, 10, 14)).astype(dtype) for _ in range(2))
    weight = random.standard_normal((4, 4, 3, 3, 3)).astype(dtype)
    y, x = (da.from_array(array, chunks=(1, 3, 9, 10, 8)) for array in (y, x))
    if delay:
        y = y.map_blocks(slowly, delay, dtype=y.dtype)
    pooled = backops.dask.avg_pool3d_backward(y, x, 3, 1, 1, count_include_pad=False)
    adaptive = backops.dask.adaptive_avg_pool3d_backward(y, (2, 4, 21, 20, 7))
    return [pooled, adaptive, *backops.dask.conv_backward(y, x, weight, padding=1)]


def slowly(block, delay):
    time.sleep(delay)
    return block


@pytest.fixture(scope="module")
def expected():
    with dask.config.set(scheduler="synchronous"):
        return {dtype: dask.compute(*problem(dtype)) for dtype in ("float32", "float16")}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_give_the_same_bits(threads, dtype, expected):
    with dask.config.set(scheduler="threads", num_workers=threads):
        results = dask.compute(*problem(dtype))
    assert all(map(same_bits, results, expected[dtype]))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_processes_of_a_cluster_give_the_same_bits(client, dtype, expected):
    assert all(map(same_bits, dask.compute(*problem(dtype)), expected[dtype]))


def test_a_worker_that_dies_changes_nothing(client, expected):
    """Its chunks are computed again, elsewhere."""
    futures = client.compute(problem(delay=0.25))
    time.sleep(0.8)
    before = client.run(os.getpid)
    assert not all(future.done() for future in futures)
    os.kill(next(iter(before.values())), signal.SIGKILL)
    results = client.gather(futures)
    assert set(client.run(os.getpid).values()) != set(before.values())
    assert all(map(same_bits, results, expected["float32"]))


def test_number_of_threads_of_the_package_changes_nothing(expected):
    before = backops.get_num_threads()
    try:
        backops.set_num_threads(5)
        with dask.config.set(scheduler="synchronous"):
            assert all(map(same_bits, dask.compute(*problem()), expected["float32"]))
    finally:
        backops.set_num_threads(before)


def test_calls_of_many_threads_do_not_disturb_each_other(expected):
    """Each has memory of its own for what it brings together."""
    results = {}

    def run(number):
        with dask.config.set(scheduler="synchronous"):
            results[number] = dask.compute(*problem())

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results.values():
        assert all(map(same_bits, result, expected["float32"]))

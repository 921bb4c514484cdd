"""What docs/scale.md states about Dask, measured on this machine.

python bench/dask_scale.py chunks    # two threads: dask beside the plain call
python bench/dask_scale.py workers   # two workers of one thread: measured, and as the model has it
python bench/dask_scale.py large --operator pool --gigabytes 20 --memory-limit 1GB
python bench/dask_scale.py model     # 1 to 1000 workers, by the model
"""

import argparse
import contextlib
import logging
import math
import resource
import time

import dask
import dask.array as da
import distributed
import numpy as np

import backops
import backops.dask
from backops._cli.info import cpu_name


def best(run, repeat=3):
    """Of several runs, which get a number: what was computed before might still be there."""
    times = []
    for turn in range(repeat):
        start = time.perf_counter()
        result = run(turn)
        times.append(time.perf_counter() - start)
        del result
    return min(times)


def random(shape, chunks):
    return da.random.default_rng(0).random(shape, chunks=chunks, dtype=np.float32)


def weight(channels, turn):
    values = np.random.default_rng(turn).standard_normal((channels, channels, 3, 3, 3))
    return values.astype(np.float32)


def pool(module, y, turn=0):
    return module.avg_pool3d_backward(y, y.shape, 3, 1, 1, divisor_override=27 + turn)


def pool_strided(module, y, turn=0):
    shape = (*y.shape[:2], *(2 * n for n in y.shape[2:]))
    return module.avg_pool3d_backward(y, shape, 3, 2, 1, divisor_override=27 + turn)


def convolution(module, y, turn=0):
    mask = (True, False, False)
    kernel = weight(y.shape[1], turn)
    return module.conv_backward(y, y.shape, kernel, padding=1, output_mask=mask)[0]


def chunks(arguments):
    dask.config.set(scheduler="threads", num_workers=2)
    problems = [
        ("pool k3 s1", pool, (4, 8, 128, 128, 128), (1, 4, 128, 128, 128)),
        ("pool k3 s1", pool, (1, 8, 128, 256, 256), (1, 8, 64, 128, 128)),
        ("pool k3 s2", pool_strided, (4, 4, 96, 96, 96), (1, 1, 96, 96, 96)),
        ("pool k3 s2", pool_strided, (1, 4, 96, 192, 192), (1, 4, 48, 96, 96)),
        ("conv 3x3x3", convolution, (4, 16, 64, 64, 64), (1, 16, 64, 64, 64)),
        ("conv 3x3x3", convolution, (1, 16, 128, 128, 128), (1, 16, 64, 64, 64)),
    ]
    for name, run, shape, cut in problems:
        y = random(shape, cut).persist()
        whole = y.compute()
        plain = best(lambda turn, run=run, whole=whole: run(backops, whole, turn), 5)
        lazy = run(backops.dask, y)
        seconds = best(lambda turn, run=run, y=y: run(backops.dask, y, turn).persist(), 5)
        megabytes = lazy.nbytes / lazy.npartitions / 2**20
        where = "space" if cut[2:] != shape[2:] else "batch"
        print(
            f"{name}, {lazy.npartitions} chunks of {megabytes:.0f} MB, {where} cut: plain "
            f"{plain * 1e3:.0f} ms, dask {seconds * 1e3:.0f} ms, {seconds / plain:.2f} times"
        )


@contextlib.contextmanager
def cluster(workers, memory_limit="8GB"):
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0",
            memory_limit=memory_limit, silence_logs=logging.ERROR,
        ) as made,
        distributed.Client(made) as client,
    ):  # fmt: skip
        client.run(lambda: __import__("backops.dask"))
        yield client


def done(array):
    array = array.persist()
    distributed.wait(array)
    return array


def copy(block):
    return block + 1


def halves(client, shape, cut):
    """An operand whose first half of chunks lies on one worker, the second on the other."""
    one, other = sorted(client.scheduler_info()["workers"])
    counts = [-(n // -c) for n, c in zip(shape, cut, strict=True)]
    middle = math.prod(counts) // 2

    def place(key):
        return [one if np.ravel_multi_index(key[1:], counts) < middle else other]

    with dask.annotate(workers=place):
        y = random(shape, cut)
    y = client.persist(y, optimize_graph=False)
    distributed.wait(y)
    return y


def workers(arguments):
    shape, space, channels = (1, 16, 256, 256, 256), (1, 16, 64, 128, 128), (1, 1, 256, 256, 256)
    problems = [
        ("pool k3 s1, space cut", pool, space),
        ("conv 3x3x3, space cut", convolution, space),
        ("pool k3 s1, channels cut", pool, channels),
    ]
    problems = [each for each in problems if each[0].startswith(arguments.operator or "")]
    threads = {}
    with dask.config.set(scheduler="threads", num_workers=2):
        for name, run, cut in problems:
            y = random(shape, cut).persist()
            threads[name] = best(lambda turn, run=run, y=y: run(backops.dask, y, turn).persist(), 6)
            del y
    measured = {}
    with cluster(2) as client:
        overhead = best(lambda turn: done(da.full(1000, turn, chunks=1).map_blocks(copy))) / 1000
        for name, run, cut in problems:
            y = halves(client, shape, cut)
            measured[name] = best(lambda turn, run=run, y=y: done(run(backops.dask, y, turn)), 6)
            del y
    print(f"{overhead * 1e3:.2f} ms of scheduling per task")
    machine = backops.dask.Machine(seconds_per_task=overhead, is_scheduler_apart=False)
    for name, run, cut in problems:
        one = backops.dask.estimate(
            run, backops.dask, random(shape, cut), machine=machine, workers=2
        )
        # One thread takes what two did, twice: the model predicts the rest.
        print(
            f"{name}, {math.prod(shape) * 4 / 2**30:.0f} GB, {one.tasks} tasks: "
            f"two threads {threads[name]:.2f} s, two workers {measured[name]:.2f} s "
            f"({threads[name] / measured[name]:.2f} of their rate); "
            f"predicted {one.seconds_from(threads[name] * 2):.2f} s"
        )


class Nowhere:
    """A place to store to that keeps nothing."""

    def __init__(self, array):
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __setitem__(self, index, value):
        pass


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def large(arguments):
    elements = arguments.gigabytes * 1e9 / 4 / 4
    side = math.ceil(elements ** (1 / 3) / 16) * 16
    run = {"pool": pool_strided, "conv": convolution}[arguments.operator or "pool"]
    if run is pool_strided:
        side //= 2
    cut = arguments.chunk // 2 if run is pool_strided else arguments.chunk
    lazy = run(backops.dask, random((1, 4, side, side, side), (1, 4, cut, cut, cut)))
    start = time.perf_counter()
    with cluster(2, arguments.memory_limit) as client:
        pids = set(client.run(lambda: __import__("os").getpid()).values())
        future = client.compute(lazy.store(Nowhere(lazy), lock=False, compute=False))
        distributed.progress(future, notebook=False)
        future.result()
        seconds = time.perf_counter() - start
        most = max(client.run(peak).values())
        same = pids == set(client.run(lambda: __import__("os").getpid()).values())
    print(
        f"\n{run.__name__}: gradient of {lazy.nbytes / 1e9:.1f} GB in {lazy.npartitions} "
        f"chunks, two workers of {arguments.memory_limit}: {seconds:.0f} s, at most {most:.2f} GiB "
        f"per worker, {'none' if same else 'some'} restarted"
    )


def model(arguments):
    shape = (1, 16, 1024, 1024, 1024)
    for name, run in (("pool k3 s1", pool), ("conv 3x3x3", convolution)):
        for chunk in (64, 128, 256):
            y = random(shape, (1, 16, chunk, chunk, chunk))
            row = []
            for count in (1, 2, 10, 100, 1000):
                found = backops.dask.estimate(run, backops.dask, y, workers=count)
                row.append(f"{found.seconds:.1f}")
            print(
                f"{name}, {math.prod(shape) * 4 / 1e9:.0f} GB, chunks of {chunk}^3 "
                f"({16 * 4 * chunk**3 / 1e6:.0f} MB): tasks {found.tasks}, moved "
                f"{found.bytes_moved / 1e9:.1f} GB, memory {found.bytes_per_worker / 1e6:.0f} MB; "
                f"seconds on 1, 2, 10, 100, 1000 workers: {', '.join(row)}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["chunks", "workers", "large", "model"])
    parser.add_argument("--operator", choices=["pool", "conv"])
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--memory-limit", default="1GB")
    parser.add_argument("--chunk", type=int, default=128, help="of the result, along each axis")
    arguments = parser.parse_args()
    print(cpu_name())
    {"chunks": chunks, "workers": workers, "large": large, "model": model}[arguments.what](
        arguments
    )


if __name__ == "__main__":
    main()

"""The gradient of pooling a volume, from disk to disk: neither volume is ever whole in memory.

python volume.py make grad_output.zarr --size 128
python volume.py run grad_output.zarr grad_input.zarr
python volume.py run grad_output.zarr grad_input.zarr --cluster tcp://HOST:8786
python volume.py run grad_output.zarr grad_input.zarr --workers 2 --memory-limit 1GB
"""

import argparse
import resource

import dask
import dask.array as da
import numpy as np
import zarr
from dask.diagnostics import ProgressBar

import backops.dask


def make(path, size, chunk):
    """A random volume, written chunk by chunk."""
    shape = (1, 1, size, size, size)
    chunks = (1, 1, chunk, chunk, chunk)
    volume = da.random.default_rng(0).random(shape, chunks=chunks, dtype=np.float32)
    with ProgressBar():
        volume.store(create(path, shape, chunks), lock=False)


def create(path, shape, chunks):
    # Random numbers do not compress.
    return zarr.create_array(
        path, shape=shape, chunks=chunks, dtype="float32", compressors=None, overwrite=True
    )


def gradient(source, target):
    """What is to be done, as a dask object: nothing is computed yet."""
    grad_output = backops.dask.from_zarr(source)
    shape = tuple(2 * n if axis > 1 else n for axis, n in enumerate(grad_output.shape))
    chunks = tuple(2 * n if axis > 1 else n for axis, n in enumerate(grad_output.chunksize))
    grad_input = backops.dask.avg_pool3d_backward(
        grad_output, shape, kernel_size=3, stride=2, padding=1, chunks=chunks
    )
    # Chunks are files, so writers need no lock. (to_zarr would join chunks before it writes.)
    return grad_input.store(create(target, shape, chunks), lock=False, compute=False)


def run(arguments):
    work = gradient(arguments.source, arguments.target)
    if not arguments.cluster and not arguments.workers:
        before = peak()
        with ProgressBar():
            work.compute()
        print(f"at most {peak() - before:.0f} MB more memory than before")
        return
    import distributed

    with distributed.Client(
        arguments.cluster or distributed.LocalCluster(
            n_workers=arguments.workers, threads_per_worker=1, memory_limit=arguments.memory_limit
        )
    ) as client:  # fmt: skip
        future = client.compute(work)
        distributed.progress(future, notebook=False)
        future.result()
        for address, megabytes in client.run(peak).items():
            print(f"\n{address}: at most {megabytes:.0f} MB of memory")


def peak():
    """Of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make", help="write a random volume")
    maker.add_argument("target")
    maker.add_argument("--size", type=int, default=128)
    maker.add_argument("--chunk", type=int, default=64)
    runner = commands.add_parser("run", help="read a volume, write its gradient")
    runner.add_argument("source")
    runner.add_argument("target")
    runner.add_argument("--threads", type=int, default=2)
    runner.add_argument("--workers", type=int, help="processes of this machine")
    runner.add_argument("--memory-limit", default="1GB", help="of each of these")
    runner.add_argument("--cluster", help="address of a scheduler")
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.target, arguments.size, arguments.chunk)
    else:
        dask.config.set(num_workers=arguments.threads)
        run(arguments)


if __name__ == "__main__":
    main()

"""What a call will take is told before it is run, and is so."""

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback

import backops.dask


class Sizes(Callback):
    """Bytes of what each task made."""

    def __init__(self):
        self.bytes = {}

    def _posttask(self, key, result, dsk, state, worker_id):
        self.bytes[key] = getattr(result, "nbytes", 0)


def calls():
    y = da.ones((2, 4, 24, 24), chunks=(1, 2, 12, 12), dtype="float32")
    weight = np.ones((4, 4, 3, 3), np.float32)
    return {
        "pool": (backops.dask.avg_pool2d_backward, y, y.shape, 3, 1, 1),
        "forward": (backops.dask.avg_pool2d, y, 3, 1, 1),
        "global": (backops.dask.adaptive_avg_pool2d, y, 1),
        "conv": (backops.dask.conv_backward, y, y, weight),
    }


@pytest.mark.parametrize("name", ["pool", "forward", "global"])
def test_tasks_and_bytes_are_those_of_the_graph(name):
    function, source, *arguments = calls()[name]
    found = backops.dask.estimate(function, source, *arguments, workers=2)
    result = function(source, *arguments)
    own = set(dict(result.__dask_graph__())) - set(dict(source.__dask_graph__()))
    assert found.tasks == len(own)
    sizes = Sizes()
    with sizes, dask.config.set({"scheduler": "synchronous", "optimization.fuse.active": False}):
        result.compute()
    cut = sum(size for key, size in sizes.bytes.items() if key[0].startswith("backops-cut"))
    if name != "global":
        assert found.kinds["cut"] > 0
        # Every border travels, and half of it stays where it is on two workers.
        assert found.bytes_moved == cut // 2


def test_weight_gradients_are_counted():
    function, y, x, weight = calls()["conv"]
    found = backops.dask.estimate(function, y, x, weight, padding=1)
    assert found.kinds["conv"] == 2 * 16 + 2 * 2 * 8
    assert found.kinds["bias"] == 16
    assert found.kinds["sum"] > 8


def test_more_workers_help_until_scheduling_decides():
    y = da.ones((1, 8, 256, 256, 256), chunks=(1, 8, 64, 64, 64), dtype="float32")
    seconds = [
        backops.dask.estimate(
            backops.dask.avg_pool3d_backward, y, y.shape, 3, 1, 1, workers=workers
        ).seconds
        for workers in (1, 2, 1000)
    ]
    assert seconds[0] >= seconds[1] >= seconds[2]
    slow = backops.dask.Machine(seconds_per_task=1.0)
    found = backops.dask.estimate(
        backops.dask.avg_pool3d_backward, y, y.shape, 3, 1, 1, workers=1000, machine=slow
    )
    assert found.seconds == pytest.approx(found.tasks)


def test_memory_of_a_worker_is_a_few_chunks():
    y = da.ones((1, 8, 256, 256, 256), chunks=(1, 8, 64, 64, 64), dtype="float32")
    chunk = 8 * 64**3 * 4
    found = backops.dask.estimate(backops.dask.avg_pool3d_backward, y, y.shape, 3, 1, 1)
    assert 3 * chunk < found.bytes_per_worker < 6 * chunk

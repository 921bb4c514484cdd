"""What tasks hold and what travels between them."""

import itertools

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback

import backops.dask
from backops.dask import _tasks


def cuts(array):
    return [key for key in dict(array.__dask_graph__()) if key[0].startswith("backops-cut")]


def test_chunks_of_batch_and_channels_need_nothing_of_others():
    grad = da.zeros((4, 6, 8, 8), chunks=(1, 2, 8, 8), dtype="float32")
    result = backops.dask.avg_pool2d_backward(grad, (4, 6, 16, 16), 3, 2, 1)
    assert result.chunks == ((1,) * 4, (2,) * 3, (16,), (16,))
    assert not cuts(result)


def test_windows_that_meet_at_borders_need_nothing_of_neighbours():
    grad = da.zeros((1, 1, 8, 8), chunks=(1, 1, 4, 2), dtype="float32")
    result = backops.dask.avg_pool2d_backward(grad, (1, 1, 16, 16), 2)
    assert result.chunks[2:] == ((8, 8), (4,) * 4)
    assert not cuts(result)


def test_borders_are_as_wide_as_windows_reach():
    grad = da.zeros((1, 1, 30), chunks=10, dtype="float32")
    result = backops.dask.avg_pool1d_backward(grad, (1, 1, 30), 3, 1, 1)
    widths = sorted(key[-1] - key[-2] for key in cuts(result))
    assert widths == [1, 1, 1, 1]
    result = backops.dask.avg_pool1d_backward(grad, (1, 1, 30), 5, 1, 2)
    assert {key[-1] - key[-2] for key in cuts(result)} == {2}


def test_borders_of_convolutions_are_as_wide_as_taps_reach():
    y, x = (da.zeros((1, 1, 40), chunks=10, dtype="float32") for _ in range(2))
    weight = np.zeros((1, 1, 3), "float32")
    grad_x, grad_weight, grad_bias = backops.dask.conv_backward(y, x, weight, padding=2, dilation=2)
    assert {key[-1] - key[-2] for key in cuts(grad_x)} == {2}
    assert {key[-1] - key[-2] for key in cuts(grad_weight)} == {2}
    assert not cuts(grad_bias)


CUBES = {
    "pool": lambda g: backops.dask.avg_pool3d_backward(g, g.shape, 3, 1, 1),
    "forward": lambda g: backops.dask.avg_pool3d(g, 3, 1, 1),
    "conv": lambda g: backops.dask.conv(g, np.zeros((2, 2, 3, 3, 3), "f4"), padding=1),
    "grad_weight": lambda g: backops.dask.conv_backward(
        g, g, np.zeros((2, 2, 3, 3, 3), "f4"), padding=1
    )[1],
}


@pytest.mark.parametrize("call", CUBES.values(), ids=CUBES)
def test_a_chunk_in_the_middle_has_six_borders(call):
    """Two along each axis, which bring edges and corners, instead of one from each neighbour."""
    grad = da.zeros((1, 2, 24, 24, 24), chunks=(1, 2, 8, 8, 8), dtype="float32")
    result = call(grad)
    assert len(cuts(result)) == 3 * 2 * 2 * 9
    dependencies = dict(result.__dask_graph__().get_all_dependencies())
    borders = [
        [key for key in needed if key[0].startswith("backops-cut")]
        for key, needed in dependencies.items()
        if not key[0].startswith("backops-cut") and (grad.name, 0, 0, 1, 1, 1) in needed
    ]
    assert [len(keys) for keys in borders] == [6]


@pytest.mark.parametrize("call", CUBES.values(), ids=CUBES)
@pytest.mark.parametrize("chunks", [(8, 8, 8), ((10, 3, 11), (2, 22), (9, 9, 6)), (24, 7, 24)])
def test_only_borders_travel(call, chunks):
    """No task needs more than one whole chunk, and borders are all that is not in it."""
    grad = da.ones((1, 2, 24, 24, 24), chunks=(1, 2, *chunks), dtype="float32")
    result = call(grad)
    for key, needed in result.__dask_graph__().get_all_dependencies().items():
        assert key[0] == grad.name or sum(other[0] == grad.name for other in needed) <= 1
    made = {}
    with (
        Made(made),
        dask.config.set({"scheduler": "synchronous", "optimization.fuse.active": False}),
    ):
        result.compute()
    moved = sum(made[key].nbytes for key in cuts(result))
    wanted = 1
    for sizes in grad.chunks[2:]:
        ends = np.cumsum([0, *sizes])
        wanted *= sum(min(24, e + 1) - max(0, b - 1) for b, e in itertools.pairwise(ends))
    assert moved == (wanted - 24**3) * 2 * 4


class Made(Callback):
    """What each task made."""

    def __init__(self, made):
        self.made = made

    def _posttask(self, key, result, dsk, state, worker_id):
        self.made[key] = result


@pytest.mark.parametrize(
    "call",
    [
        lambda g: backops.dask.avg_pool3d_backward(g, g.shape, 3, 1, 1),
        lambda g: backops.dask.adaptive_avg_pool3d_backward(g, (1, 2, 61, 61, 61)),
        lambda g: backops.dask.avg_pool3d(g, 3, 2, 1),
        lambda g: backops.dask.adaptive_avg_pool3d(g, 1),
        lambda g: backops.dask.avg_pool3d(g, 40, 2),
        lambda g: backops.dask.conv_backward(g, g, np.zeros((2, 2, 3, 3, 3), "f4"), padding=1)[0],
        lambda g: backops.dask.conv_backward(g, g, np.zeros((2, 2, 3, 3, 3), "f4"), padding=1)[1],
    ],
    ids=["pool", "adaptive", "forward", "global", "large windows", "grad_input", "grad_weight"],
)
def test_no_task_holds_more_than_its_chunk_and_a_border(call, monkeypatch):
    """Largest block of memory that any task puts together, beside the largest chunk."""
    made = []
    fill = _tasks.Frame.fill

    def watched(self, *arguments):
        region = fill(self, *arguments)
        made.append(region.size)
        return region

    monkeypatch.setattr(_tasks.Frame, "fill", watched)
    grad = da.zeros((1, 2, 48, 48, 48), chunks=(1, 2, 16, 16, 16), dtype="float32")
    with dask.config.set(scheduler="synchronous"):
        call(grad).compute()
    assert max(made) <= 2 * 20**3


def test_small_cuts_do_not_keep_their_chunk():
    chunk = np.zeros((10, 10))
    assert _tasks.cut((slice(0, 2), slice(None)), chunk).base is None


def test_gradient_of_input_has_the_chunks_of_input():
    grad = da.zeros((2, 4, 8), chunks=(1, 2, 3), dtype="float32")
    x = da.zeros((2, 4, 16), chunks=(2, 3, 5), dtype="float32")
    assert backops.dask.avg_pool1d_backward(grad, x, 2).chunks == x.chunks


def test_same_call_has_the_same_keys():
    grad = da.zeros((2, 4, 8), chunks=(1, 2, 3), dtype="float32")
    one, other = (backops.dask.avg_pool1d_backward(grad, (2, 4, 16), 2) for _ in range(2))
    assert one.name == other.name
    assert one.name != backops.dask.avg_pool1d_backward(grad, (2, 4, 15), 2, padding=1).name

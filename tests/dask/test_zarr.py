"""Volumes from disk to disk: in little memory, with a progress bar; a corrupt file is named."""

import re
import subprocess
import sys

import distributed
import numpy as np
import pytest

import backops
import backops.dask
from tests.support import dask_clusters
from tests.support.paths import ROOT

if sys.version_info < (3, 11):
    pytest.skip("Zarr 3 wants Python 3.11", allow_module_level=True)
import zarr

EXAMPLE = ROOT / "examples" / "dask" / "volume.py"


def run_example(*arguments):
    command = [sys.executable, str(EXAMPLE), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_example_needs_a_fraction_of_the_volumes(tmp_path):
    source, target = tmp_path / "source.zarr", tmp_path / "target.zarr"
    run_example("make", source, "--size", 192, "--chunk", 48)
    shown = run_example("run", source, target)
    assert "100% Completed" in shown
    read, written = zarr.open_array(source), zarr.open_array(target)
    volume = (read.nbytes + written.nbytes) / 2**20
    more = float(re.search(r"at most (\d+) MB more", shown)[1])
    assert more < volume / 4, f"{more} MB for {volume} MB"
    # A corner where eight chunks meet.
    place = (0, 0, slice(90, 102), slice(90, 102), slice(90, 102))
    around = (slice(0, 1), slice(0, 1), *(slice(40, 56),) * 3)
    plain = backops.avg_pool3d_backward(read[around], (1, 1, 32, 32, 32), 3, 2, 1)
    assert np.array_equal(written[place], plain[0, 0, 10:22, 10:22, 10:22])


@pytest.fixture
def volume(tmp_path):
    values = np.random.default_rng(0).random((1, 2, 24, 24), dtype=np.float32)
    path = tmp_path / "volume.zarr"
    array = zarr.create_array(path, shape=values.shape, chunks=(1, 1, 12, 12), dtype="float32")
    array[...] = values
    return path, values


def test_zarr_is_cut_as_its_files(volume):
    path, values = volume
    lazy = backops.dask.from_zarr(path)
    assert lazy.chunks == ((1,), (1, 1), (12, 12), (12, 12))
    assert lazy.dtype == np.float32
    assert np.array_equal(lazy.compute(), values)
    assert backops.dask.from_zarr(zarr.open_array(path), chunks=(1, 2, 24, 24)).npartitions == 1
    assert backops.dask.from_zarr(path).name == lazy.name


@pytest.mark.parametrize("damage", ["cut off", "other bytes"])
def test_corrupt_chunk_file_is_named(volume, damage):
    path, _ = volume
    file = path / "c" / "0" / "1" / "0" / "1"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] if damage == "cut off" else b"x" * len(content))
    gradient = backops.dask.avg_pool2d_backward(backops.dask.from_zarr(path), (1, 2, 48, 48), 2)
    with pytest.raises(OSError, match=rf"{re.escape(str(file))}: this chunk cannot be read"):
        gradient.compute(scheduler="threads")


def test_corrupt_chunk_file_is_named_by_a_cluster(volume):
    path, _ = volume
    file = path / "c" / "0" / "0" / "1" / "1"
    file.write_bytes(b"")
    gradient = backops.dask.avg_pool2d_backward(backops.dask.from_zarr(path), (1, 2, 48, 48), 2)
    with (
        dask_clusters.processes(1) as cluster,
        distributed.Client(cluster),
        pytest.raises(OSError, match=rf"{re.escape(str(file))}: this chunk cannot be read"),
    ):
        gradient.compute()

"""Zarr arrays as dask arrays whose errors name the chunk's file."""

from __future__ import annotations

import itertools
from typing import Any

import dask.array as da
from dask.base import tokenize


class ChunkFiles:
    """A Zarr array as dask reads it."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim
        self.chunks = array.shards or array.chunks  # what is a file

    def __dask_tokenize__(self) -> str:
        return str(tokenize(str(self.array.store_path), self.shape, str(self.dtype)))

    def __getitem__(self, index: tuple[slice, ...]) -> Any:
        try:
            return self.array[index]
        except Exception as error:
            name = self.first_unreadable(index)
            if name is None:
                raise
            raise OSError(f"{name}: this chunk cannot be read ({error})") from error

    def first_unreadable(self, index: tuple[slice, ...]) -> str | None:
        """The file of the first chunk, of those that an index reaches, that fails alone."""
        along = [
            range(cut.start // size, -(cut.stop // -size))
            for cut, size in zip(index, self.chunks, strict=True)
        ]
        for place in itertools.product(*along):
            try:
                sides = zip(place, self.chunks, strict=True)
                self.array[tuple(slice(i * size, (i + 1) * size) for i, size in sides)]
            except Exception:
                key = self.array.metadata.encode_chunk_key(place)
                return f"{self.array.store_path}/{key}".removeprefix("file://")
        return None


def from_zarr(store: Any, *, chunks: Any = None) -> da.Array:
    """A Zarr array on disk as a dask array, cut as its files are.

    >>> import tempfile, zarr
    >>> path = tempfile.mkdtemp()
    >>> zarr.create_array(path, shape=(4,), chunks=(2,), dtype="float32")[:] = 1
    >>> backops.dask.from_zarr(path).sum().compute()
    np.float32(4.0)

    It is :func:`dask.array.from_zarr` but for errors: a chunk that cannot be read is named.

    Arguments:
        store: a path, or an array of :mod:`zarr`.
        chunks: chunks of the array, as :mod:`dask.array` takes them; multiples of the files' are
            read fastest.
    """
    import zarr

    array = store if isinstance(store, zarr.Array) else zarr.open_array(store, mode="r")
    source = ChunkFiles(array)
    return da.from_array(
        source, chunks=chunks or source.chunks, meta=array[(slice(0, 0),) * array.ndim]
    )

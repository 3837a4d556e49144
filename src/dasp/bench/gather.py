"""Rows of arrays on the disk into a batch in memory, near the disk's speed."""

import mmap
from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from dasp.bench.store import Array

LARGE = 2**16  # bytes of a row from which asking for it ahead is worth a call of the system
AHEAD = 8  # rows that the disk fetches while one is copied


def gather(
    arrays: Sequence[Array], places: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Copy row `rows[i]` of the array `places[i]` for each i: (len(rows), ...), of its own memory.

    In the order in which the rows lie on the disk, which is told of the next ones, and straight
    into their place: nothing is copied twice.
    """
    found = np.empty((len(rows), *arrays[0].shape[1:]), np.float32)
    order = np.lexsort((rows, places))
    coming = iter(order)
    for i in islice(coming, AHEAD):
        _ask_for(arrays[places[i]], int(rows[i]))
    for i in order:
        for later in islice(coming, 1):
            _ask_for(arrays[places[later]], int(rows[later]))
        _copy(arrays[places[i]][rows[i]], found[i])
    return found


def _ask_for(array: Array, row: int) -> None:
    """Let the disk fetch a row while others are copied."""
    pages, size = array.base, array.strides[0]
    if size < LARGE or not isinstance(array, np.memmap) or not isinstance(pages, mmap.mmap):
        return
    first = array.offset % mmap.ALLOCATIONGRANULARITY + row * size
    start = first - first % mmap.PAGESIZE
    pages.madvise(mmap.MADV_WILLNEED, start, first + size - start)


def _copy(row: Array, place: NDArray[np.float32]) -> None:
    if row.dtype == np.float16:  # torch converts twice as fast, but takes no read-only memory
        torch.from_numpy(place).copy_(torch.from_numpy(np.array(row)))
    else:
        place[...] = row

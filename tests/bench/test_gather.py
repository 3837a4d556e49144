"""Rows of several arrays, from memory or the disk, into one batch."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from dasp.bench import gather as gather_module
from dasp.bench.gather import gather

ROWS, ARRAYS = 7, 3


def made(dtype):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(ROWS, 2, 5)).astype(dtype) for _ in range(ARRAYS)]


def saved(arrays, folder):
    for number, array in enumerate(arrays):
        np.save(folder / f"{number}.npy", array)
    return [np.load(folder / f"{number}.npy", mmap_mode="r") for number in range(len(arrays))]


numbers = some.lists(some.tuples(some.integers(0, ARRAYS - 1), some.integers(0, ROWS - 1)))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers, some.booleans(), some.sampled_from([np.float32, np.float16]))
def test_each_row_is_found_where_it_was_asked_for(tmp_path, asked, on_disk, dtype):
    arrays = made(dtype)
    sources = saved(arrays, tmp_path) if on_disk else arrays
    places, rows = np.array(asked, np.int64).reshape(-1, 2).T
    found = gather(sources, places, rows)
    assert found.dtype == np.float32
    assert found.shape == (len(asked), 2, 5)
    for row, (place, number) in zip(found, asked, strict=True):
        assert np.array_equal(row, arrays[place][number].astype(np.float32))


def test_the_disk_is_asked_for_whole_rows(tmp_path, monkeypatch):
    big = np.arange(5 * 30_000, dtype=np.float32).reshape(5, 30_000)
    (stored,) = saved([big], tmp_path)
    found = gather([stored], np.zeros(3, int), np.array([4, 0, 4]))  # the last row ends the file
    assert np.array_equal(found, big[[4, 0, 4]])
    monkeypatch.setattr(gather_module, "LARGE", 1)
    (small,) = saved([made(np.float16)[0]], tmp_path)
    assert np.array_equal(gather([small], np.zeros(1, int), np.array([6]))[0], small[6])


def test_a_row_that_is_not_there_is_an_error(tmp_path):
    (stored,) = saved([np.zeros((5, 30_000), np.float32)], tmp_path)
    with pytest.raises((IndexError, ValueError)):
        gather([stored], np.zeros(1, int), np.array([5]))


def test_a_batch_is_not_the_disk(tmp_path):
    (stored,) = saved([np.zeros((5, 3), np.float32)], tmp_path)
    found = gather([stored], np.zeros(2, int), np.array([1, 2]))
    found += 1
    assert not stored.any()

"""The feature store: arrays made once, whole or not at all; and rows of them put into batches."""

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from dasp.bench.store import _VERIFIED, Store, gather
from dasp.core.errors import DataError

KEY = {"kind": "inputs", "name": "a"}


def chunks(value=1.0, rows=6):
    def make():
        yield np.full((rows - 2, 3), value, np.float32)
        yield np.full((2, 3), value, np.float32)

    return make


def there(folder):
    """Return the value that each array is full of."""
    return sorted(float(np.load(path)[0, 0]) for path in folder.glob("[!.]*.npy"))


def test_an_array_is_made_once_and_read_back(tmp_path):
    first = Store(tmp_path).get(KEY, 6, chunks())
    again = Store(tmp_path).get(KEY, 6, chunks(2.0))
    assert first.shape == (6, 3)
    assert (again == 1).all()
    assert not again.flags.writeable
    assert there(tmp_path) == [1.0]
    about = json.loads(Path(again.filename).with_suffix(".json").read_text())
    assert about.items() >= (KEY | {"rows": 6, "bytes": 200}).items()


def test_arrays_of_the_wrong_length_are_named(tmp_path):
    with pytest.raises(DataError, match="6 of 7 rows"):
        Store(tmp_path).get(KEY, 7, chunks())
    assert not list(tmp_path.glob("*.npy"))
    path = Path(Store(tmp_path).get(KEY, 6, chunks()).filename)
    with pytest.raises(DataError, match=rf"{path.name} has 6 rows instead of 7"):
        Store(tmp_path).get(KEY, 7, chunks())


@pytest.mark.parametrize("damage", ["bit", "header", "cut", "empty", "checksum"])
def test_a_damaged_array_is_named_set_aside_and_made_again(tmp_path, damage):
    path = Path(Store(tmp_path).get(KEY, 6, chunks()).filename)
    whole = path.read_bytes()
    flipped = {place: bytearray(whole) for place in (-5, 60)}
    for place, content in flipped.items():
        content[place] ^= 4
    contents = {"bit": flipped[-5], "header": flipped[60], "cut": whole[:-8], "empty": b""}
    damaged = bytes(contents.get(damage, whole))
    path.unlink()  # another file, as another process would find it
    (tmp_path / "new").write_bytes(damaged)
    (tmp_path / "new").rename(path)
    if damage == "checksum":
        path.with_suffix(".json").write_text("{")
    _VERIFIED.clear()
    with pytest.warns(RuntimeWarning, match=rf"{path.name} is damaged, set aside as .* made again"):
        array = Store(tmp_path).get(KEY, 6, chunks())
    assert (array == 1).all()
    assert path.read_bytes() == whole
    assert path.with_name(f"damaged-{path.name}").read_bytes() == damaged


def test_a_store_may_be_removed_at_any_time(tmp_path):
    folder, left = tmp_path / "store", [3]

    def make():
        for chunk in chunks()():
            if left[0]:
                left[0] -= 1
                shutil.rmtree(folder, ignore_errors=True)
            yield chunk

    store = Store(folder)
    shutil.rmtree(folder)
    array = store.get(KEY, 6, make)
    shutil.rmtree(folder)
    assert (array == 1).all()
    array = store.get(KEY, 6, chunks(2.0))
    assert (array == 2).all()
    Path(array.filename).with_suffix(".json").unlink()  # the array itself would be next
    _VERIFIED.clear()
    assert (store.get(KEY, 6, chunks(3.0)) == 3).all()

    def broken():
        (tmp_path / "clip.wav").read_bytes()
        yield

    with pytest.raises(FileNotFoundError, match=r"clip\.wav"):  # and not for ever
        store.get(KEY | {"name": "b"}, 6, broken)


def write_half(folder):
    def make():
        yield np.zeros((2, 3), np.float32)
        os.kill(os.getpid(), signal.SIGKILL)

    Store(folder).get(KEY, 6, make)


def test_a_killed_process_leaves_no_half_array_and_its_rest_is_removed(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=write_half, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".*.part"))) == 1
    Store(tmp_path)
    assert not [*tmp_path.glob("*.npy"), *tmp_path.glob(".*.part")]


def test_the_oldest_go_when_the_store_is_full(tmp_path):
    half = tmp_path / ".inputs-00.abc.part" / "inputs-00.npy"  # which another process is writing
    half.parent.mkdir()
    half.write_bytes(b"x" * 1000)
    store = Store(tmp_path, limit=500)  # each array takes 200 bytes
    kept = store.get(KEY | {"name": "0"}, 6, chunks(0.0))
    for name in "123":
        store.get(KEY | {"name": name}, 6, chunks(float(name)))
    assert there(tmp_path) == [2.0, 3.0]
    assert (kept == 0).all()  # whoever has it open keeps it
    assert half.exists()


def fill(folder, names, made):
    for name in names:
        Store(folder).get(KEY | {"name": name}, 6, lambda: made.put(1) or chunks()())


def test_many_processes_make_each_array_once(tmp_path):
    context = multiprocessing.get_context("fork")
    made = context.SimpleQueue()
    names = [["shared", *(f"{worker}-{number}" for number in range(30))] for worker in range(4)]
    workers = [context.Process(target=fill, args=(tmp_path, own, made)) for own in names]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert len(list(tmp_path.glob("inputs-*.npy"))) == 121
    assert sum(made.get() for _ in range(121)) == 121
    assert made.empty()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=some.lists(some.integers(1, 4), min_size=0, max_size=3),
    sizes=some.lists(some.integers(1, 5), min_size=1, max_size=4),
    dtype=some.sampled_from([np.float32, np.float16]),
)
def test_any_chunks_become_the_file_that_numpy_saves(tmp_path, shape, sizes, dtype):
    rng = np.random.default_rng(0)
    pieces = [rng.normal(size=(size, *shape)).astype(dtype)[::-1] for size in sizes]
    key = {"kind": "inputs", "case": [shape, sizes, str(dtype)]}
    stored = Store(tmp_path / "store").get(key, sum(sizes), lambda: iter(pieces))
    np.save(tmp_path / "plain.npy", np.concatenate(pieces))
    assert Path(stored.filename).read_bytes() == (tmp_path / "plain.npy").read_bytes()


ROWS, ARRAYS = 7, 3
numbers = some.lists(some.tuples(some.integers(0, ARRAYS - 1), some.integers(0, ROWS - 1)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers, some.booleans(), some.sampled_from([np.float32, np.float16]))
def test_each_row_is_found_where_it_was_asked_for(tmp_path, asked, on_disk, dtype):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(ROWS, 2, 5)).astype(dtype) for _ in range(ARRAYS)]
    places, rows = np.array(asked, np.int64).reshape(-1, 2).T
    if on_disk:
        np.save(tmp_path / "all.npy", arrays)
        arrays = list(np.load(tmp_path / "all.npy", mmap_mode="r"))
    found = gather(arrays, places, rows)
    assert found.dtype == np.float32
    assert found.shape == (len(asked), 2, 5)
    for row, (place, number) in zip(found, asked, strict=True):
        assert np.array_equal(row, arrays[place][number].astype(np.float32))
    with pytest.raises(IndexError):
        gather(arrays, np.zeros(1, int), np.array([ROWS]))

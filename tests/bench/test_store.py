import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from dasp.bench.store import Store, digest
from dasp.core.errors import DataError

KEY = {"kind": "inputs", "name": "a"}


def chunks(value=1.0, rows=6):
    def make(clock):
        clock.add({"decode": 2.0})
        yield np.full((rows - 2, 3), value, np.float32)
        yield np.full((2, 3), value, np.float32)

    return make


def test_an_array_is_made_once_and_read_back(tmp_path):
    store, calls = Store(tmp_path), []

    def make(clock):
        calls.append(1)
        return chunks()(clock)

    first = store.get(KEY, 6, make)
    again = Store(tmp_path).get(KEY, 6, make)
    assert len(calls) == 1
    assert first.shape == (6, 3)
    assert np.array_equal(first, again)
    assert not again.flags.writeable
    assert store.has(KEY)
    assert not store.has(KEY | {"name": "b"})


def test_a_failure_leaves_nothing(tmp_path):
    store = Store(tmp_path)

    def fails(clock):
        yield np.zeros((2, 3), np.float32)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        store.get(KEY, 6, fails)
    assert not list(tmp_path.glob("*.npy"))
    assert store.get(KEY, 6, chunks()).shape == (6, 3)


def test_too_few_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match="6 of 7 rows"):
        Store(tmp_path).get(KEY, 7, chunks())
    assert not list(tmp_path.glob("*.npy"))


def test_the_oldest_go_when_the_store_is_full(tmp_path):
    store = Store(tmp_path, limit=500)  # each array takes 200 bytes
    kept = store.get(KEY | {"name": "0"}, 6, chunks(0.0))
    for name in "123":
        store.get(KEY | {"name": name}, 6, chunks(float(name)))
    present = [name for name in "0123" if store.has(KEY | {"name": name})]
    assert present == ["2", "3"]
    assert (kept == 0).all()  # whoever has it open keeps it


def test_what_others_are_writing_is_left_alone(tmp_path):
    store = Store(tmp_path, limit=0)
    half = tmp_path / ".inputs-00.abc.part.npy"
    half.write_bytes(b"x" * 1000)
    store.get(KEY, 6, chunks())
    assert half.exists()


def fill(folder, names):
    store = Store(folder)
    for name in names:
        store.get(KEY | {"name": name}, 6, chunks())


def test_many_processes_filling_at_once_do_not_trip_over_each_other(tmp_path):
    context = multiprocessing.get_context("fork")
    names = [[f"{w}-{n}" for n in range(150)] for w in range(3)]
    workers = [context.Process(target=fill, args=(tmp_path, own)) for own in names]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(list(tmp_path.glob("inputs-*.npy"))) == 450


def hold(folder, queue):
    def slow(clock):
        queue.put("made")
        return chunks(7.0)(clock)

    Store(folder).get(KEY, 6, slow)


def test_several_processes_make_it_once(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    workers = [context.Process(target=hold, args=(tmp_path, queue)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert queue.get() == "made"
    assert queue.empty()


def test_digests_see_content_and_not_order():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_what_an_array_took_is_kept_beside_it(tmp_path):
    store = Store(tmp_path)
    store.get(KEY, 6, chunks())
    (path,) = tmp_path.glob("*.json")
    about = json.loads(path.read_text())
    assert about.items() >= KEY.items()
    assert (about["rows"], about["bytes"]) == (6, path.with_suffix(".npy").stat().st_size)
    assert about["seconds"]["decode"] == 2.0
    assert about["seconds"]["write"] > 0
    assert store.clock.news() == about["seconds"]
    store.get(KEY, 6, chunks())
    assert store.clock.news() == {}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=some.lists(some.integers(1, 4), min_size=0, max_size=3),
    sizes=some.lists(some.integers(1, 5), min_size=1, max_size=4),
    dtype=some.sampled_from([np.float32, np.float16]),
)
def test_any_chunks_become_the_file_that_numpy_saves(tmp_path, shape, sizes, dtype):
    rng = np.random.default_rng(0)
    pieces = [rng.normal(size=(size, *shape)).astype(dtype) for size in sizes]
    key = {"kind": "inputs", "case": [shape, sizes, str(dtype)]}
    stored = Store(tmp_path / "store").get(key, sum(sizes), lambda clock: iter(pieces))
    np.save(tmp_path / "plain.npy", np.concatenate(pieces))
    assert Path(stored.filename).read_bytes() == (tmp_path / "plain.npy").read_bytes()


def test_chunks_that_are_not_contiguous_keep_their_order(tmp_path):
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    stored = Store(tmp_path).get(KEY, 6, lambda clock: iter([rows[:, ::-1]]))
    assert np.array_equal(stored, rows[:, ::-1])

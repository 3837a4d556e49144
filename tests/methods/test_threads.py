"""Calls from many threads give what the same calls give one after another."""

import threading

import pytest
import torch

import dasp
from dasp.bench.trial import trial
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld

THREADS, EACH = 4, 12


def calls():
    """Batches of different sizes, so that the log tells which was which."""
    world = SyntheticWorld()
    return [
        world.draw(2 + place, seed=place, shift={"audio" if place % 2 else "video": 4.0})
        for place in range(THREADS * EACH)
    ]


def in_threads(target):
    errors = []

    def guarded(number):
        try:
            target(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


@pytest.mark.parametrize("name", ["tent", "tsa", "dasp"])
def test_threads_give_what_some_order_gives(name, tmp_path):
    options = {"delta": 1e-6} if name == "dasp" else {}
    tta = trial(name, lr=1e-2, log=tmp_path / "events.jsonl", **options)
    batches = [batch.inputs for batch in calls()]
    outcomes = {}
    barrier = threading.Barrier(THREADS)

    def work(number):
        barrier.wait()
        for place in range(number, len(batches), THREADS):
            outcomes[place] = tta(batches[place])
            tta.metrics()

    in_threads(work)
    order = [event["size"] - 2 for event in dasp.events.read(tmp_path / "events.jsonl")[1:]]
    assert sorted(order) == list(range(len(batches)))
    twin = trial(name, lr=1e-2, **options)
    for place in order:
        expected = twin(batches[place])
        assert torch.equal(outcomes[place].logits, expected.logits)
    state, serial = tta.memory.capture(), twin.memory.capture()
    assert state.batch_index == serial.batch_index == len(batches)
    assert all(torch.equal(value, serial.tensors[key]) for key, value in state.tensors.items())


def test_resets_saves_and_loads_among_calls_break_nothing(tmp_path, batches):
    tta = dasp.adapt(
        Toy(seed=1), "dasp", delta=1e-6, lr=1e-2,
        checkpoint=tmp_path / "checkpoint.safetensors", checkpoint_every=3,
    )  # fmt: skip

    def work(number):
        for place in range(8):
            assert tta(batches[place % 3]).rejected is None
            if number == 0:
                tta.reset()
            if number == 1:
                tta.save(tmp_path / "state.safetensors")
                tta.load(tmp_path / "state.safetensors")
            if number == 2:
                tta.load_state(tta.state())
                tta.alone(batches[0])

    in_threads(work)
    assert tta.counters["batches"] == 8 * THREADS
    assert tta.counters["saves"] == 8 + 8 * THREADS // 3
    tta.reset()
    fresh = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    assert torch.equal(tta(batches[1]).logits, fresh(batches[1]).logits)


def test_frozen_holds_for_its_own_thread_alone(batches):
    tta = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    inside, done, seen = threading.Event(), threading.Event(), []

    def freezer():
        with tta.frozen():
            inside.set()
            assert done.wait(30)
            seen.append(tta(batches[1]).updated)

    thread = threading.Thread(target=freezer)
    thread.start()
    assert inside.wait(30)
    assert tta(batches[1]).updated
    done.set()
    thread.join()
    assert seen == [False]
    assert tta.counters["frozen"] == 1

import copy
import io
import pickle

import pytest
import torch

import dasp
from dasp.bench.trial import trial
from dasp.core.errors import OptionError, StateError
from dasp.methods import saved
from dasp.models import Toy


def adapt(path=None, **options):
    return dasp.adapt(
        Toy(seed=1), "dasp", delta=1e-6, lr=1e-2, checkpoint=path, checkpoint_every=2, **options
    )


@pytest.mark.parametrize("name", list(dasp.METHODS))
def test_a_state_taken_and_loaded_goes_on_bit_for_bit(name, batches):
    tta, other = (trial(name, lr=1e-2, seed=5) for _ in range(2))
    for batch in batches:
        tta(batch)
    state = tta.state()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    ahead = [tta(batch).logits for batch in batches]
    buffer.seek(0)
    other.load_state(torch.load(buffer, weights_only=True))  # plain enough for the strict reader
    assert all(torch.equal(a, other(b).logits) for a, b in zip(ahead, batches, strict=True))
    tta.load_state(pickle.loads(pickle.dumps(state)))
    assert all(torch.equal(a, tta(b).logits) for a, b in zip(ahead, batches, strict=True))


def test_a_state_is_a_copy(batches):
    tta = adapt()
    tta(batches[1])
    state = tta.state()
    kept = copy.deepcopy(state)
    tta(batches[2])
    tta.load_state(state)
    tta(batches[2])
    assert all(torch.equal(value, state["tensors"][key]) for key, value in kept["tensors"].items())
    assert kept["counters"] == state["counters"]
    assert kept["counters"]["batches"] == kept["batch_index"] == 1


def test_a_state_holds_what_is_trained_and_its_moments_and_no_more(batches):
    tta = adapt()
    for batch in batches:
        tta(batch)
    tensors = tta.state()["tensors"]
    learnt = list(tta.memory.weights.values())
    counts = sum(value.nbytes for key, value in tensors.items() if key.endswith("/step"))
    diagnosis = sum(v.nbytes for key, v in tensors.items() if key.startswith("buffer/diagnoser."))
    size = sum(v.nbytes for v in tensors.values())
    assert size == 3 * sum(w.nbytes for w in learnt) + counts + diagnosis
    assert diagnosis < 100
    assert counts == 4 * len(learnt)


def test_foreign_states_are_refused_and_change_nothing(batches):
    tta = adapt()
    tta(batches[1])
    before = tta.memory.capture().tensors
    other = dasp.adapt(Toy(seed=2), "dasp", delta=1e-6)
    hyper = dasp.adapt(Toy(seed=1), "dasp", delta=0.5)
    good = tta.state()
    first = next(iter(good["tensors"]))
    cases = {
        "this state was saved with another model": other.state(),
        "other options: delta 0.5, here 1e-06": hyper.state(),
        r"is not a saved state \(format 'list'\)": [],
        r"is not a saved state \(format None\)": {},
        "lacks its batch_index": good | {"batch_index": None},
        "does not fit: weight/": good | {"tensors": {**good["tensors"], first: 1}},
    }
    for message, state in cases.items():
        with pytest.raises(StateError, match=message):
            tta.load_state(state)
    after = tta.memory.capture().tensors
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    assert tta.counters["loads"] == 0


def test_checkpoints_come_every_so_many_batches_and_are_gone_on_from(batches, tmp_path):
    path = tmp_path / "state.safetensors"
    stream = batches * 2
    tta = adapt(path)
    assert tta.resume() == 0
    expected, existed = [], []
    for batch in stream[:5]:
        expected.append(tta(batch))
        existed.append(path.exists())
    assert existed == [False, True, True, True, True]
    again = adapt(path)
    done = again.resume()
    assert done == 4
    assert torch.equal(again(stream[done]).logits, expected[done].logits)
    assert again.counters["batches"] == tta.counters["batches"] == 5
    assert again.counters["updates"] == tta.counters["updates"]
    assert again.counters["saves"] == 1  # as of when the checkpoint was written
    again(stream[5])
    assert adapt(path).resume() == 6


def test_the_place_counts_what_was_refused_too(batches, tmp_path):
    path = tmp_path / "state.safetensors"
    tta = adapt(path)
    tta(batches[1])
    tta({name: value * torch.nan for name, value in batches[0].items()})
    assert tta.memory.batch_index == 1
    again = adapt(path)
    assert again.resume() == 2
    assert again.memory.batch_index == 1
    with pytest.raises(dasp.DaspError):
        again({})
    again(batches[1])
    third = adapt(path)
    assert third.resume() == 4


def test_frozen_calls_are_no_batches(batches, tmp_path):
    tta = adapt(tmp_path / "state.safetensors")
    with tta.frozen():
        for batch in batches:
            tta(batch)
    assert not (tmp_path / "state.safetensors").exists()
    assert tta.counters["batches"] == 0


def test_a_checkpoint_of_something_else_is_refused(batches, tmp_path):
    path = tmp_path / "state.safetensors"
    tta = adapt(path)
    for batch in batches:
        tta(batch)
    other = dasp.adapt(Toy(seed=2), "dasp", delta=1e-6, checkpoint=path)
    with pytest.raises(StateError, match=r"state.safetensors was saved with another model"):
        other.resume()
    assert other.counters["batches"] == 0
    path.write_bytes(b"half")
    with pytest.raises(StateError, match="damaged"):
        adapt(path).resume()


def test_a_checkpoint_that_cannot_be_written_costs_no_prediction(
    batches, tmp_path, monkeypatch, caplog
):
    path = tmp_path / "state.safetensors"
    tta, plain = adapt(path), adapt()
    for batch in batches[:2]:
        tta(batch)
        plain(batch)

    def full(*_, **__):
        raise saved.SafetensorError("I/O error: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(saved, "save_file", full)
        for batch in batches + batches:
            assert torch.equal(tta(batch).logits, plain(batch).logits)
    assert tta.counters["write_errors"] == 3
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert adapt(path).resume() == 2  # the last good one is still there
    assert [file.name for file in tmp_path.iterdir()] == ["state.safetensors"]


def test_what_kills_left_is_removed_and_nothing_else(tmp_path):
    names = [".state.abcd1234.part.safetensors", ".state.other.abcd1234.part.safetensors", "x"]
    for name in names:
        (tmp_path / name).write_text("half")
    adapt(tmp_path / "state.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == names[1:]


def test_impossible_checkpoints(tmp_path):
    with pytest.raises(OptionError, match="checkpoint_every must be a whole number from 1"):
        dasp.adapt(Toy(), "dasp", checkpoint=tmp_path / "a", checkpoint_every=0)
    with pytest.raises(OptionError, match="is a folder"):
        dasp.adapt(Toy(), "dasp", checkpoint=tmp_path)
    with pytest.raises(OptionError, match=r"resume\(\) needs a checkpoint"):
        dasp.adapt(Toy(), "dasp").resume()


def test_the_state_is_on_the_disk_before_its_name(batches, tmp_path, monkeypatch):
    from dasp.core import files

    order, fsync, replace = [], files.os.fsync, files.Path.replace
    monkeypatch.setattr(files.os, "fsync", lambda h: (order.append("fsync"), fsync(h))[1])
    monkeypatch.setattr(
        files.Path, "replace", lambda a, b: (order.append("replace"), replace(a, b))[1]
    )
    adapt().save(tmp_path / "state.safetensors")
    assert order == ["fsync", "replace", "fsync"]


def test_the_source_weights_are_hashed_once(batches, monkeypatch):
    from dasp.methods.state import Memory

    hashed, compute = [], Memory._hash
    monkeypatch.setattr(Memory, "_hash", lambda self, s: (hashed.append(1), compute(self, s))[1])
    tta = adapt()
    for batch in batches:
        tta(batch)
        tta.state()
    assert len(hashed) == 1


def test_a_handle_is_not_copied_by_mistake():
    with pytest.raises(StateError, match=r"take tta.state\(\)"):
        copy.deepcopy(adapt())
    with pytest.raises(StateError, match="cannot be copied or pickled"):
        pickle.dumps(adapt())

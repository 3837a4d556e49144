"""States in memory, in files and in checkpoints: exact, refused where foreign, resumed."""

import copy
import io
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

import dasp
from dasp.bench.checks import trial
from dasp.core import files
from dasp.core.errors import OptionError, StateError
from dasp.methods import state as state_file
from dasp.methods.state import Memory
from dasp.models import Toy


def adapt(path=None, seed=1, **options):
    usual = {"delta": 1e-6, "lr": 1e-2, "checkpoint": path, "checkpoint_every": 2}
    return dasp.adapt(Toy(seed=seed), "dasp", **usual | options)


def same(first, second):
    return all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.fixture
def adapted(batches):
    tta = adapt()
    for batch in batches:
        tta(batch)
    return tta


@pytest.mark.parametrize("name", ["sar", "tsa", "triage"])
def test_a_state_goes_on_bit_for_bit(name, batches, tmp_path):
    """As a file, as what torch.load reads strictly, and pickled; on another handle or the same."""
    path = tmp_path / "state.safetensors"
    tta, other, third = (trial(name, lr=1e-2, seed=5) for _ in range(3))
    for batch in batches:
        tta(batch)
    state, buffer = tta.state(), io.BytesIO()
    tta.save(path)
    torch.save(state, buffer)
    ahead = [tta(batch).logits for batch in batches]
    buffer.seek(0)
    other.load_state(torch.load(buffer, weights_only=True))
    third.load(path)
    tta.load_state(pickle.loads(pickle.dumps(state)))
    for handle in (other, third, tta):
        assert all(torch.equal(a, handle(b).logits) for a, b in zip(ahead, batches, strict=True))


@pytest.mark.parametrize("name", ["tent", "dasp"])
def test_a_state_of_a_double_model_goes_on_bit_for_bit(name, batches):
    double = [{name: value.double() for name, value in batch.items()} for batch in batches]
    tta, other = (dasp.adapt(Toy(seed=1).double(), name, lr=1e-2) for _ in range(2))
    for batch in double:
        tta(batch)
    other.load_state(tta.state())
    assert torch.equal(tta(double[1]).logits, other(double[1]).logits)


def test_a_state_is_a_copy_and_a_loaded_one_can_still_be_reset(batches):
    tta = adapt()
    tta(batches[1])
    state = tta.state()
    kept = copy.deepcopy(state)
    for _ in range(2):
        tta(batches[2])
        tta.load_state(state)
    assert same(kept["tensors"], state["tensors"])
    assert kept["counters"] == state["counters"]
    assert kept["counters"]["batches"] == kept["batch_index"] == 1
    tta.reset()
    assert torch.equal(tta(batches[1]).logits, adapt()(batches[1]).logits)


def test_a_state_holds_what_is_trained_and_its_moments_and_no_more(adapted, tmp_path):
    tensors = adapted.state()["tensors"]
    learnt = list(adapted.memory.weights.values())
    counts = sum(value.nbytes for key, value in tensors.items() if key.endswith("/step"))
    assert counts == 4 * len(learnt)
    size = sum(v.nbytes for v in tensors.values())
    assert size == 3 * sum(w.nbytes for w in learnt) + counts
    adapted.save(tmp_path / "state.safetensors")
    assert (tmp_path / "state.safetensors").stat().st_size < size + 8192


def test_foreign_states_are_refused_and_change_nothing(batches, tmp_path):
    tta = adapt()
    tta(batches[1])
    before = tta.memory.capture().tensors
    cases = {
        "this state was saved with another model": adapt(seed=2).state(),
        "saved with another method": dasp.adapt(Toy(seed=1), "tsa").state(),
        "another version of the method: 7, here 1": adapt().state() | {"version": "7"},
        "other options: delta 0.5, here 1e-06": adapt(delta=0.5).state(),
        "is not a saved state .format 'list'": [],
        "is not a saved state .format None": {},
    }
    for message, state in cases.items():
        with pytest.raises(StateError, match=message):
            tta.load_state(state)
    assert same(before, tta.memory.capture().tensors)
    assert tta.counters["loads"] == 0
    tuned = dasp.adapt(Toy(seed=1), "read", lr=1e-2)
    tuned(batches[0])
    dasp.adapt(Toy(seed=1), "read").load_state(tuned.state())
    with pytest.raises(StateError, match="another model"):
        dasp.adapt(Toy(seed=3), "read").load_state(tuned.state())


def test_damaged_files_are_named_and_change_nothing(adapted, tmp_path):
    path = tmp_path / "state.safetensors"
    adapted.save(path)
    before, whole = adapted.memory.capture().tensors, path.read_bytes()
    save_file(load_file(path), path)
    cases = [whole[: len(whole) // 2], b"", b"not a state", path.read_bytes()]
    for content in cases:
        path.write_bytes(content)
        with pytest.raises(StateError, match=r"state.safetensors is damaged or not a saved state"):
            adapted.load(path)
    with pytest.raises(StateError, match="no saved state at"):
        adapted.load(tmp_path / "none.safetensors")
    assert same(before, adapted.memory.capture().tensors)


def test_checkpoints_come_every_so_many_batches_and_are_resumed_from(batches, tmp_path):
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


def test_rejected_and_failed_batches_count_and_frozen_calls_do_not(batches, tmp_path):
    path = tmp_path / "state.safetensors"
    tta = adapt(path)
    with tta.frozen():
        for batch in batches:
            tta(batch)
    assert not path.exists()
    tta(batches[1])
    tta({name: value * torch.nan for name, value in batches[0].items()})
    assert tta.memory.batch_index == 1
    again = adapt(path)
    assert again.resume() == 2
    assert again.memory.batch_index == 1
    with pytest.raises(dasp.DaspError):
        again({})
    again(batches[1])
    assert adapt(path).resume() == 4


def test_a_checkpoint_of_something_else_is_refused(batches, tmp_path):
    path = tmp_path / "state.safetensors"
    tta = adapt(path)
    for batch in batches:
        tta(batch)
    other = adapt(path, seed=2)
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
        raise state_file.SafetensorError("I/O error: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(state_file, "save_file", full)
        for batch in batches + batches:
            assert torch.equal(tta(batch).logits, plain(batch).logits)
    assert tta.counters["write_errors"] == 3
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert adapt(path).resume() == 2  # the last good one is still there
    assert [file.name for file in tmp_path.iterdir()] == ["state.safetensors"]


def test_what_kills_left_is_removed_and_nothing_else(tmp_path):
    (tmp_path / ".state.abcd1234.part").mkdir()
    left = [".state.abcd1234.part/.lock", ".state.abcd1234.part/state.safetensors"]
    for name in (*left, ".state.part", "x"):
        (tmp_path / name).write_text("half")
    adapt(tmp_path / "state.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".state.part", "x"]


def test_impossible_checkpoints(tmp_path):
    with pytest.raises(OptionError, match="checkpoint_every must be an integer from 1"):
        adapt(tmp_path / "a", checkpoint_every=0)
    with pytest.raises(OptionError, match="is a directory"):
        adapt(tmp_path)
    with pytest.raises(OptionError, match=r"resume\(\) needs a checkpoint"):
        adapt().resume()


def test_the_state_is_on_the_disk_before_its_name(tmp_path, monkeypatch):
    order, fsync, replace = [], files.os.fsync, files.Path.replace
    monkeypatch.setattr(files.os, "fsync", lambda h: (order.append("fsync"), fsync(h))[1])
    moved = lambda a, b: (order.append("replace"), replace(a, b))[1]  # noqa: E731
    monkeypatch.setattr(files.Path, "replace", moved)
    adapt().save(tmp_path / "state.safetensors")
    assert order == ["fsync", "replace", "fsync"]


def test_the_source_weights_are_hashed_once(batches, monkeypatch):
    hashed, compute = [], Memory.digest
    monkeypatch.setattr(Memory, "digest", lambda self, s: (hashed.append(1), compute(self, s))[1])
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

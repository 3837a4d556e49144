import pytest
import torch
from safetensors.torch import save_file

import dasp
from dasp.bench.trial import trial
from dasp.core.errors import StateError
from dasp.models import Toy


@pytest.fixture
def adapted(batches):
    tta = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    for batch in batches:
        tta(batch)
    return tta


@pytest.mark.parametrize("name", list(dasp.METHODS))
def test_a_saved_state_goes_on_bit_for_bit(name, tmp_path, batches):
    path = tmp_path / "state.safetensors"
    tta = trial(name, lr=1e-2, seed=5)
    for batch in batches:
        tta(batch)
    tta.save(path)
    ahead = [tta(batch).logits for batch in batches]
    other = trial(name, lr=1e-2, seed=5)
    other.load(path)
    assert all(torch.equal(a, other(b).logits) for a, b in zip(ahead, batches, strict=True))
    tta.load(path)  # rolling back works on the same handle too
    assert all(torch.equal(a, tta(b).logits) for a, b in zip(ahead, batches, strict=True))


def test_a_loaded_state_can_still_be_reset(adapted, tmp_path, batches):
    path = tmp_path / "state.safetensors"
    adapted.save(path)
    fresh = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    expected = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)(batches[1]).logits
    fresh.load(path)
    fresh.reset()
    assert torch.equal(fresh(batches[1]).logits, expected)


def test_a_state_of_another_model_method_or_setting_is_refused(adapted, tmp_path, batches):
    path = tmp_path / "state.safetensors"
    adapted.save(path)
    others = {
        "another model": dasp.adapt(Toy(seed=2), "dasp", delta=1e-6),
        "another method": dasp.adapt(Toy(seed=1), "tsa"),
        "other options": dasp.adapt(Toy(seed=1), "dasp", delta=0.1),
    }
    for what, other in others.items():
        before = other.memory.capture()
        with pytest.raises(StateError, match=f"saved with {what}"):
            other.load(path)
        assert all(
            torch.equal(v, other.memory.capture().tensors[k]) for k, v in before.tensors.items()
        )


def test_a_state_of_a_tuned_model_belongs_to_its_source_weights(tmp_path, batches):
    path = tmp_path / "state.safetensors"
    tta = dasp.adapt(Toy(seed=1), "read", lr=1e-2)
    tta(batches[0])
    tta.save(path)
    dasp.adapt(Toy(seed=1), "read", lr=1e-2).load(path)
    with pytest.raises(StateError, match="another model"):
        dasp.adapt(Toy(seed=3), "read", lr=1e-2).load(path)


def test_damaged_files_are_named_and_change_nothing(adapted, tmp_path):
    path = tmp_path / "state.safetensors"
    adapted.save(path)
    before = adapted.memory.capture()
    whole = path.read_bytes()
    cases = {"cut": whole[: len(whole) // 2], "empty": b"", "text": b"not a state"}
    for name, content in cases.items():
        bad = tmp_path / f"{name}.safetensors"
        bad.write_bytes(content)
        with pytest.raises(StateError, match=f"{name}.safetensors is damaged"):
            adapted.load(bad)
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(StateError, match="not a saved state"):
        adapted.load(tmp_path / "other.safetensors")
    with pytest.raises(StateError, match="no saved state at"):
        adapted.load(tmp_path / "none.safetensors")
    after = adapted.memory.capture()
    assert all(torch.equal(value, after.tensors[key]) for key, value in before.tensors.items())


def test_a_state_with_tensors_missing_is_refused(adapted, tmp_path):
    from safetensors import safe_open

    path = tmp_path / "state.safetensors"
    adapted.save(path)
    with safe_open(path, framework="pt") as file:
        metadata, names = file.metadata(), list(file.keys())
        tensors = {name: file.get_tensor(name) for name in names}
    dropped = next(name for name in names if name.startswith("weight/"))
    del tensors[dropped]
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(StateError, match="does not fit: weight/"):
        adapted.load(path)


def test_the_file_holds_the_state_and_not_the_model(adapted, tmp_path):
    path = tmp_path / "state.safetensors"
    adapted.save(path)
    weights = 4 * adapted.trainable.count
    assert path.stat().st_size < 3 * weights + 8192  # weights and two moments of Adam

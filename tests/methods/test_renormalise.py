"""BatchNorms that know the samples of a condition: what they see, repair, and leave as it was."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dasp
from dasp.methods.renormalise import ConditionNorms

CLASSES = 6
NAMES = ("audio", "video")


class Normed(nn.Module):
    """Normalises each sensor, gives its steps as tokens, and sums what they say."""

    modalities, embed_dim, num_classes = NAMES, CLASSES, CLASSES

    def __init__(self):
        super().__init__()
        self.encoders = nn.ModuleDict({name: nn.BatchNorm1d(CLASSES) for name in NAMES})
        for norm in self.encoders.values():
            norm.running_mean.fill_(0.5)
            norm.running_var.fill_(9.0)

    def encode(self, inputs):
        return {n: 3 * self.encoders[n](value).transpose(1, 2) for n, value in inputs.items()}

    def fuse(self, tokens):
        logits = sum(value.mean(dim=1) for value in tokens.values())
        return dasp.Fused(logits, logits, None)


def world(count, seed, gain=1.0, only=None):
    """Return inputs (n, C, 4) that tell the labels, and the labels; the audio may be damaged."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    labels = labels if only is None else torch.full_like(labels, only)
    said = 3 * nn.functional.one_hot(labels, CLASSES).float()[..., None]
    inputs = {n: said + 3 * torch.randn(count, CLASSES, 4, generator=generator) for n in NAMES}
    slopes = gain ** torch.linspace(1, -1, CLASSES)[:, None]  # some channels louder, others fainter
    inputs["audio"] = slopes * inputs["audio"] + (slopes - 1)
    return inputs, labels


def triage(**options):
    tta = dasp.adapt(Normed(), "triage", lr=1e-2, **options)
    tta.fit([world(256, 0)[0]])
    return tta


def method_of(model):
    return dasp.adapt(model, "source").method


@settings(max_examples=20)
@given(first=st.integers(1, 19), seed=st.integers(0, 100))
def test_moments_of_parts_are_those_of_the_whole(first, seed):
    method = method_of(Normed())
    norms = ConditionNorms(method.model, NAMES, calm=16, most=100)
    audio = world(20, seed, gain=3.0)[0]["audio"]
    tokens, whole = norms.encode(method, {"audio": audio}, 20, None)
    _, part = norms.encode(method, {"audio": audio[:first]}, first, None)
    norms.remember({"audio": part})
    last, both = norms.encode(
        method, {"audio": audio[first:]}, 20 - first, norms.earlier()["audio"]
    )
    assert both.samples == whole.samples == 20
    torch.testing.assert_close(both.values, whole.values)
    torch.testing.assert_close(last["audio"], tokens["audio"][first:])


def test_many_samples_are_normalised_to_what_the_model_was_trained_with():
    method = method_of(Normed())
    norms = ConditionNorms(method.model, NAMES, calm=1, most=100)
    inputs, _ = world(4000, 1, gain=4.0)
    tokens, moments = norms.encode(method, {"audio": inputs["audio"]}, 4000, None)
    assert tokens["audio"].mean().abs() < 0.02
    assert tokens["audio"].std(dim=(0, 1)).sub(3).abs().max() < 0.05
    calm = ConditionNorms(method.model, NAMES, calm=16, most=100)
    few, _ = calm.encode(method, {"audio": inputs["audio"][:1]}, 1, None)
    usual = method.model.encode(inputs)["audio"][:1]
    assert (few["audio"] - usual).abs().max() < 0.3 * (tokens["audio"][:1] - usual).abs().max()
    norms.remember({"video": moments})
    assert norms.earlier().keys() == {"video"}
    assert norms.earlier()["video"].samples == 100  # as many as it was told to let count


def test_a_model_without_batch_norms_has_nothing_to_encode_again():
    tta = dasp.adapt(dasp.models.Toy(), "triage")
    assert not tta.method.takes_inputs
    assert tta.method.condition_norms.moments.numel() == 0
    assert not dasp.adapt(Normed(), "triage", align=False).method.takes_inputs


@pytest.mark.parametrize("learn", [False, True])
def test_what_a_shift_cannot_repair_is_repaired_where_there_are_batch_norms(learn):
    """From raw inputs it gains more than from tokens, and leaves the model as it was."""
    found = {"source": 0, "inputs": 0, "tokens": 0}
    again, shifted = triage(learn=learn), triage(learn=learn)
    source = dasp.adapt(Normed(), "source")
    before = {name: value.clone() for name, value in again.model.state_dict().items()}
    for number in range(4):
        inputs, labels = world(64, 10 + number, gain=6.0)
        out = again(inputs)
        assert out.diagnosis.biased == {"audio"}
        for name, logits in {
            "source": source(inputs).logits,
            "inputs": out.logits,
            "tokens": shifted.on_tokens(shifted.model.encode(inputs)).logits,
        }.items():
            found[name] += int((logits.argmax(dim=1) == labels).sum())
    assert found["inputs"] > found["source"] + 10
    assert found["inputs"] > found["tokens"]
    assert all(torch.equal(before[n], v) for n, v in again.model.state_dict().items())
    assert not any(norm._forward_hooks for norm in again.model.encoders.values())


def test_few_classes_are_not_encoded_again():
    """Their statistics are those of the classes, too."""
    tta = triage(learn=False)
    for number in range(4):
        tta(world(64, 20 + number, gain=6.0, only=number)[0])
        assert not tta.method.condition_norms.earlier()


def test_a_condition_that_ends_is_forgotten_and_a_frozen_call_changes_nothing():
    tta = triage(learn=False)
    damaged = world(64, 30, gain=6.0)[0]
    tta(damaged)
    tta(world(64, 31, gain=6.0)[0])
    norms = tta.method.condition_norms
    assert norms.samples.tolist() == [64 + norms.most, 0]
    kept = norms.moments.clone()
    with tta.frozen():
        first = tta(damaged).logits
    assert torch.equal(norms.moments, kept)
    assert torch.equal(
        dasp.adapt(Normed(), "source")(damaged).logits,
        tta.model.fuse(tta.model.encode(damaged)).logits,
    )
    tta(world(64, 32)[0])
    assert not norms.earlier()
    with tta.frozen():
        assert torch.equal(tta(damaged).logits, first)  # it knows its own samples alone


@pytest.mark.parametrize("learn", [False, True])
def test_it_resumes_and_resets_bit_for_bit(learn, tmp_path):
    batches = [world(32, 40 + number, gain=6.0)[0] for number in range(4)]
    one, other = triage(learn=learn), triage(learn=learn)
    logits = [one(batch).logits for batch in batches]
    for batch in batches[:2]:
        other(batch)
    other.save(tmp_path / "state.safetensors")
    third = triage(learn=learn)
    third.load(tmp_path / "state.safetensors")
    for tta in (other, third):
        for place in (2, 3):
            assert torch.equal(tta(batches[place]).logits, logits[place])
    one.reset()
    assert all(torch.equal(one(b).logits, found) for b, found in zip(batches, logits, strict=True))


def test_a_failing_encoder_leaves_no_hook_behind(monkeypatch):
    tta = triage(learn=False)
    tta(world(64, 50, gain=6.0)[0])

    def fails(inputs):
        raise ValueError("a wire is loose")

    monkeypatch.setattr(tta.method, "encode", fails)
    norms = tta.method.condition_norms
    with pytest.raises(ValueError, match="loose"):
        norms.encode(tta.method, world(4, 51)[0], 4, None)
    assert not any(norm._forward_hooks for norm in tta.model.encoders.values())

"""BatchNorms that know the samples of a condition: what they see, repair, and leave as it was."""

import copy
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dasp
from dasp.methods.diagnosis import Diagnoser
from dasp.methods.renormalise import ConditionNorms, OtherStatistics, without_compiled_code
from dasp.methods.triage import Triage

CLASSES, CALM = 6, 16
NAMES = ("audio", "video")


class Normed(nn.Module):
    """Normalises each sensor, gives its steps as tokens, and sums what they say."""

    modalities, embed_dim, num_classes = NAMES, CLASSES, CLASSES

    def __init__(self, kind=nn.BatchNorm1d):
        super().__init__()
        self.encoders = nn.ModuleDict({name: kind(CLASSES) for name in NAMES})
        for norm in self.encoders.values():
            norm.running_mean.fill_(0.5)
            norm.running_var.fill_(9.0)

    def encode(self, inputs):
        return {n: 3 * self.encoders[n](value).transpose(1, 2) for n, value in inputs.items()}

    def fuse(self, tokens):
        logits = sum(value.mean(dim=1) for value in tokens.values())
        return dasp.Fused(logits, logits, None)


class Activated(nn.BatchNorm1d):
    """A norm that does more, and takes its input by name."""

    def forward(self, x):
        return super().forward(x).relu()


class Named(Normed):
    def encode(self, inputs):
        return {n: self.encoders[n](x=value).transpose(1, 2) for n, value in inputs.items()}


class Last(nn.BatchNorm1d):
    """A norm that has its channels last."""

    def forward(self, x):
        return super().forward(x.transpose(1, 2))


class ChannelsLast(Normed):
    def __init__(self):
        super().__init__(Last)

    def encode(self, inputs):
        return super().encode({name: value.transpose(1, 2) for name, value in inputs.items()})


class Twice(Normed):
    """Calls its norm for either half of the steps."""

    def encode(self, inputs):
        halves = {n: [self.encoders[n](v) for v in own.chunk(2, 2)] for n, own in inputs.items()}
        return {n: torch.cat(parts, dim=2).transpose(1, 2) for n, parts in halves.items()}


def world(count, seed, gain=1.0, only=None, both=False):
    """Return inputs (n, C, 4) that tell the labels, and the labels; the audio may be damaged."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    labels = labels if only is None else torch.full_like(labels, only)
    said = 3 * nn.functional.one_hot(labels, CLASSES).float()[..., None]
    inputs = {n: said + 3 * torch.randn(count, CLASSES, 4, generator=generator) for n in NAMES}
    slopes = gain ** torch.linspace(1, -1, CLASSES)[:, None]  # some channels louder, others fainter
    for name in NAMES if both else ("audio",):
        inputs[name] = slopes * inputs[name] + (slopes - 1)
    return inputs, labels


def triage(model=None, **options):
    tta = dasp.adapt(model or Normed(), "triage", lr=1e-2, **options)
    tta.fit([world(256, 0)[0]])
    return tta


@pytest.fixture(autouse=True)
def same_damage(monkeypatch):
    """Let louder channels, which let samples vary, not look like damage of some samples only."""
    monkeypatch.setattr(Diagnoser, "_is_mixed", lambda *_: False)


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


@pytest.mark.parametrize(
    "model", [Normed(), Normed(Activated), Twice(), Named(Activated), ChannelsLast()]
)
@pytest.mark.parametrize("offset", [0.0, 1.0, 300.0])
def test_a_norm_does_what_it_did_with_other_statistics(model, offset):
    """Its weights, its ε, an activation in it and a user's own hook keep their part."""
    model, draws = copy.deepcopy(model), torch.Generator().manual_seed(0)
    norm = model.encoders["audio"]
    norm.eps = 0.5
    for value in (norm.weight.data, norm.bias.data, norm.running_mean):
        value.copy_(torch.randn(CLASSES, generator=draws))
    norm.register_forward_hook(lambda module, given, out: out + 1)
    audio = world(32, 2, gain=3.0)[0]["audio"] + offset
    rows = audio.transpose(1, 2).flatten(0, 1).double()
    gap, variance = rows.mean(dim=0) - norm.running_mean, rows.var(dim=0, correction=0)
    there = norm.running_var.double().lerp(variance, 32 / (32 + CALM))
    noise = there.maximum(variance)
    share = 32 / (32 + CALM * noise / (noise + gap.square()))
    other = copy.deepcopy(model).eval()
    other.encoders["audio"].running_mean += share * gap
    other.encoders["audio"].running_var.copy_(there)
    norms = ConditionNorms(model, NAMES, calm=CALM, most=100)
    tokens, moments = norms.encode(method_of(model), {"audio": audio}, 32, None)
    if not isinstance(model, Twice):  # its first call knows the first half of the steps alone
        wanted = other.encode({"audio": audio})["audio"]
        torch.testing.assert_close(tokens["audio"], wanted, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(moments.values[0, :CLASSES], gap.float(), atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(moments.values[1, :CLASSES], variance.float(), atol=1e-3, rtol=1e-3)


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


def test_only_the_thread_that_encodes_again_sees_it():
    """Handles may share a model: what one does to it must not reach another one's answer."""

    class Waiting(Normed):
        inside, goes_on, calls = threading.Event(), threading.Event(), 0

        def encode(self, inputs):
            if threading.current_thread() is not threading.main_thread():
                self.calls += 1
                if self.calls == 2:  # again
                    self.inside.set()
                    assert self.goes_on.wait(60)
            return super().encode(inputs)

    model = Waiting()
    tta, source, damaged = (
        triage(model, learn=False),
        dasp.adapt(model, "source"),
        world(64, 10, 6.0),
    )
    clean = world(64, 61)[0]
    wanted, found = source(clean).logits, []
    thread = threading.Thread(target=lambda: found.append(tta(damaged[0])))
    thread.start()
    assert model.inside.wait(60)
    assert torch.equal(source(clean).logits, wanted)
    model.goes_on.set()
    thread.join()
    assert torch.equal(found[0].logits, triage(learn=False)(damaged[0]).logits)


def test_compiled_code_runs_as_written_until_the_last_thread_is_done():
    """It was compiled with the statistics of training."""
    norm, rows = nn.BatchNorm1d(CLASSES).eval(), torch.randn(4, CLASSES)
    compiled = torch.compile(norm, backend="eager")
    usual = compiled(rows)
    first, second = without_compiled_code(), without_compiled_code()
    other = OtherStatistics([norm], lambda *_: (torch.ones(CLASSES), torch.ones(CLASSES)))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # of two threads, the one that began first
    with other:
        torch.testing.assert_close(compiled(rows), norm(rows))
        torch.testing.assert_close(norm(rows + 1), usual)
    second.__exit__(None, None, None)
    assert torch.equal(compiled(rows), usual)
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_an_encoder_without_norms_is_asked_once(monkeypatch):
    """A norm in the fusion alone changes no token."""

    class Late(Normed):
        def encode(self, inputs):
            return {name: value.transpose(1, 2) for name, value in inputs.items()}

        def fuse(self, tokens):
            fused = super().fuse(tokens)
            return dasp.Fused(
                fused.embedding, self.encoders["video"](fused.logits[..., None])[..., 0]
            )

    tta, calls = triage(Late(), learn=False), []
    norms = tta.method.condition_norms
    inputs = world(8, 0)[0]
    encode = tta.method.encode
    monkeypatch.setattr(tta.method, "encode", lambda own: calls.append(own) or encode(own))
    for _ in range(2):
        assert norms.encode(tta.method, {"audio": inputs["audio"]}, 8, None) is None
    assert len(calls) == 1


def test_a_norm_of_another_sensor_does_not_end_the_alignment():
    """The code before wrapped encoders runs for all sensors, with stand-ins."""

    class Others(Normed):
        def encode(self, inputs):
            video = inputs.get("video", torch.zeros(8, CLASSES, 4))
            found = {"audio": inputs.get("audio"), "video": self.encoders["video"](video)}
            return {name: 3 * found[name].transpose(1, 2) for name in inputs}

    inputs = {name: value + 9 * (name == "audio") for name, value in world(64, 11)[0].items()}
    tta, tokens = triage(Others(), learn=False), triage(Others(), learn=False)
    wanted = tokens.on_tokens(tta.model.encode(inputs))
    assert wanted.diagnosis.biased == {"audio"}
    torch.testing.assert_close(tta(inputs).logits, wanted.logits)


def test_a_single_sample_is_not_its_own_mean():
    """Of one value there is no variance: any gap would count as large."""
    method = method_of(Normed())
    norms = ConditionNorms(method.model, NAMES, calm=CALM, most=100)
    one, other = (
        norms.encode(method, {"audio": world(1, seed)[0]["audio"][..., :1]}, 1, None)[0]["audio"]
        for seed in (1, 2)
    )
    usual = [method.model.encode({"audio": world(1, s)[0]["audio"][..., :1]}) for s in (1, 2)]
    apart = (usual[0]["audio"] - usual[1]["audio"]).norm()
    assert (one - other).norm() > 0.7 * apart


@pytest.mark.parametrize("value", [1e5, 1e20])
def test_a_sample_that_is_far_too_large_spoils_no_other(value):
    inputs, _ = world(64, 62, gain=6.0)
    inputs["audio"][5, 0, 0] = value
    tta = triage(learn=False)
    assert tta(inputs).logits.isfinite().all()
    assert tta.method.condition_norms.moments.isfinite().all()
    assert tta(world(64, 63, gain=6.0)[0]).logits.isfinite().all()


@pytest.mark.parametrize("value", [1e2, 1e4])
def test_a_glitch_in_one_sample_spoils_no_other(value):
    (inputs, labels), others = world(64, 62, gain=6.0), torch.arange(64) != 5
    usual, glitch = triage(learn=False), triage(learn=False)
    wanted = usual(inputs).logits[others].argmax(dim=1) == labels[others]
    inputs["audio"][5, 0, 0] = value
    found = glitch(inputs).logits[others].argmax(dim=1) == labels[others]
    assert found.sum() >= wanted.sum() - 4
    later, labels = world(64, 63, gain=6.0)
    right = [int((tta(later).logits.argmax(dim=1) == labels).sum()) for tta in (usual, glitch)]
    assert right[1] >= right[0] - 4


def test_samples_beside_one_that_the_model_fails_on_are_encoded_again():
    class Fails(Normed):
        def fuse(self, tokens):
            fused = super().fuse(tokens)
            if len(tokens) < 2:
                return fused
            bad = tokens["video"].amax(dim=(1, 2)) > 1e3
            return dasp.Fused(fused.embedding, fused.logits.masked_fill(bad[:, None], torch.nan))

    inputs, _ = world(64, 11, gain=6.0)
    inputs["video"][5, 0, 0] = 5e4
    outcome, others = triage(Fails(), learn=False)(inputs), torch.arange(64) != 5
    assert "1 of 64" in outcome.rejected
    tta = triage(learn=False)
    with tta.frozen():
        wanted = tta({name: own[others] for name, own in inputs.items()}).logits
    assert torch.equal(outcome.logits[others], wanted)


def test_views_are_those_of_tokens_encoded_again_and_not_moved_too():
    tta, damaged = triage(learn=False), world(64, 64, gain=6.0)[0]
    norms = tta.method.condition_norms
    tokens, _ = norms.encode(tta.method, {"audio": damaged["audio"]}, 64, None)
    with tta.frozen():
        alone = tta.alone(damaged)
    assert torch.equal(alone["audio"], tta.model.fuse(tokens).logits)
    assert torch.equal(alone["video"], tta.model.fuse(tta.model.encode(damaged)).logits) is False
    assert tta.method.inputs is None


def test_tokens_that_follow_inputs_are_not_taken_for_these():
    tta, damaged = triage(learn=False), world(64, 65, gain=6.0)[0]
    tta(damaged)
    assert tta.method.inputs is None
    kept = tta.method.condition_norms.moments.clone()
    tta.on_tokens(tta.model.encode(world(64, 66, gain=6.0)[0]))
    assert torch.equal(tta.method.condition_norms.moments, kept)


def test_another_condition_and_a_roll_back_start_over(monkeypatch):
    tta = triage(learn=False)
    norms = tta.method.condition_norms
    tta(world(64, 67, gain=6.0)[0])
    tta(world(64, 68, gain=1 / 6)[0])
    assert norms.samples.tolist() == [64, 0]
    tta.method.roll_back()
    assert not norms.earlier()
    monkeypatch.setattr(Triage, "_cannot_treat", lambda *_: "not now")
    assert tta(world(64, 69, gain=6.0)[0]).skipped == "not now"
    assert not norms.earlier()


def test_without_a_healthy_modality_it_encodes_again_and_asks_for_agreement():
    """Damage of both lets the source model see few classes; what repairs it must not wait."""
    tta, source = triage(learn=False), dasp.adapt(Normed(), "source")
    right = {"triage": 0, "source": 0}
    for number in range(4):
        inputs, labels = world(64, 70 + number, gain=6.0, both=True)
        out = tta(inputs)
        assert out.diagnosis.biased == set(NAMES)
        assert tta.method.condition_norms.samples.min() > 0
        for name, logits in (("triage", out.logits), ("source", source(inputs).logits)):
            right[name] += int((logits.argmax(dim=1) == labels).sum())
    assert right["triage"] > right["source"] + 20
    tta = triage(learn=False)
    for number in range(4):
        inputs, _ = world(64, 80 + number, gain=6.0, only=number, both=True)
        out = tta(inputs)
        assert torch.equal(out.logits, source(inputs).logits)

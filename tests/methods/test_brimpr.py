"""BriMPR: its terms by hand and against the reference, and what it needs."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dasp
from dasp.bench.checks import trial, trial_model
from dasp.core.errors import ContractError, InputError, OptionError, StateError
from dasp.methods.brimpr import SourceMoments, contrast, drop_half, teacher_temperature
from dasp.models import Toy

seeds = st.integers(0, 10_000)


def generator(seed):
    return torch.Generator().manual_seed(seed)


@given(seeds, st.integers(1, 5), st.integers(1, 17))
def test_half_of_the_tokens_stay_each_once_and_unchanged(seed, batch, count):
    tokens = torch.arange(batch * count).reshape(batch, count, 1).expand(-1, -1, 3).float()
    kept = drop_half(tokens, generator(seed))
    assert kept.shape == (batch, max(count // 2, 1), 3)
    for row, before in zip(kept, tokens, strict=True):
        places = row[:, 0].tolist()
        assert len(set(places)) == len(places)
        assert set(places) <= set(before[:, 0].tolist())


@given(seeds, st.integers(2, 9))
def test_the_distance_to_ones_own_moments_is_zero_and_has_no_pull(seed, batch):
    features = torch.randn(3, batch, 4, generator=generator(seed)).requires_grad_()
    moments = SourceMoments(3, 4)
    moments.set(features.detach())
    distance = moments(features)
    assert distance < 1e-6
    moments.mean += 1.0
    assert moments(features).item() == pytest.approx(2.0, abs=1e-5)  # ‖(1, 1, 1, 1)‖
    moments.std.fill_(0.0)
    (pull,) = torch.autograd.grad(moments(features), features)
    assert torch.isfinite(pull).all()


@given(seeds)
def test_contrast_is_symmetric_blind_to_length_and_lowest_for_what_belongs_together(seed):
    first, second = torch.randn(2, 6, 8, generator=generator(seed)).double()
    value = contrast(first, second, 0.07)
    torch.testing.assert_close(value, contrast(second, first, 0.07))
    torch.testing.assert_close(value, contrast(3 * first, 0.2 * second, 0.07))
    assert contrast(first, first, 0.07) < value


def test_the_teacher_is_softer_the_further_it_is():
    values = [float(teacher_temperature(torch.tensor(d))) for d in (0.0, 5.0, 50.0)]
    assert values == pytest.approx([1 + 0.2 / (1 + 2.718281828**5), 1.1, 1.2], abs=1e-6)


def test_statistics_and_losses_agree_with_the_reference(
    reference_model, reference_batches, reference_config, figures
):
    expected, source = figures("brimpr"), [reference_batches[0], reference_batches[5]]
    tta = dasp.adapt(reference_model, "brimpr", lr=reference_config["lr"])
    tta.fit([{name: torch.cat([batch[name] for batch in source]) for name in source[0]}])
    whole = tta.memory.capture().tensors
    tta.fit(source)
    for name, value in tta.memory.capture().tensors.items():
        torch.testing.assert_close(value, whole[name])
    for name, moments in {**tta.method.moments, "joint": tta.method.joint_moments}.items():
        for kind in ("mean", "std"):
            value = expected[f"source.{kind}.{name}"]
            torch.testing.assert_close(getattr(moments, kind), value, atol=1e-6, rtol=0)
    for name in ("audio", "video"):
        tta.adapters[name].values.data.copy_(expected[f"init.prompts_{name}"])
    losses = [tta(batch).loss for batch in reference_batches]
    assert losses == pytest.approx(expected["loss"].tolist(), abs=2e-5)


def test_nothing_but_prompts_moves(batches):
    tta = trial("brimpr", lr=1e-2)
    model, prompts = copy.deepcopy(tta.model.state_dict()), copy.deepcopy(dict(tta.memory.weights))
    for batch in batches:
        tta(batch)
    assert all(torch.equal(value, model[key]) for key, value in tta.model.state_dict().items())
    assert set(prompts) == {"adapters.audio.values", "adapters.video.values"}
    assert all(not torch.equal(value, prompts[k]) for k, value in tta.memory.weights.items())
    assert tta.trainable.count == 2 * 1 * 10 * 32


def test_the_teacher_and_the_weights_are_constants(batches):
    """The gradient of the whole is that of its parts with teacher and distances held."""
    method = trial("brimpr", lr=1e-2).method
    parameters = list(method.trainable())
    method.generator.manual_seed(0)
    whole = torch.autograd.grad(method.step(batches[1]).loss, parameters)
    embedded = method._embed(batches[1])
    layered = method._prompted(embedded)
    tokens = {name: own.tokens for name, own in layered.items()}
    with torch.no_grad():
        joint = method.model.fuse(tokens)
        far = method.joint_moments(joint.embedding[None])
        target = (joint.logits / teacher_temperature(far)).softmax(dim=1)
        held = {name: method.moments[name](own.features) for name, own in layered.items()}
    method.generator.manual_seed(0)
    halves = method._prompted({n: drop_half(v, method.generator) for n, v in embedded.items()})
    loss = contrast(*method._views(tokens), 0.07)
    for name, other in (("audio", "video"), ("video", "audio")):
        loss = loss + method.moments[name](layered[name].features)
        student = method.model.fuse({**tokens, name: halves[name].tokens}).logits
        weight = held[other] / (held[name] + held[other])
        loss = loss - weight * (target * student.log_softmax(dim=1)).sum(dim=1).mean()
    for ours, theirs in zip(whole, torch.autograd.grad(loss, parameters), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


def test_what_fit_learnt_survives_reset_and_saving(batches, tmp_path, same_state):
    tta = trial("brimpr", lr=1e-2)
    start = tta.memory.capture()
    tta(batches[0])
    tta.reset()
    assert same_state(start, tta.memory.capture())
    tta(batches[0])
    tta.save(tmp_path / "state.safetensors")
    other = dasp.adapt(trial_model(), "brimpr", lr=1e-2)
    other.load(tmp_path / "state.safetensors")  # into one that was never fitted
    assert torch.equal(other(batches[1]).logits, tta(batches[1]).logits)
    with pytest.warns(RuntimeWarning, match="the fitted state that was loaded is gone"):
        other.reset()  # to what it was before the load: not fitted
    with pytest.raises(StateError, match=r"needs source statistics: call tta.fit"):
        other(batches[1])


def test_one_sample_is_refused_as_source_and_teaches_nothing(batches, same_state):
    tta = trial("brimpr")
    before = tta.memory.capture()
    for samples in (0, 1):
        with pytest.raises(InputError, match=f"got {samples} source samples"):
            tta.fit([{name: torch.zeros(1, 4, 12) for name in ("audio", "video")}] * samples)
    assert same_state(before, tta.memory.capture())
    one, two = (tta({n: value[:count] for n, value in batches[0].items()}) for count in (1, 2))
    assert (one.updated, one.rejected) == (False, None)
    assert torch.isfinite(one.logits).all()
    assert two.updated


def test_what_it_cannot_be_built_on(toy3):
    with pytest.raises(ContractError, match="two modalities"):
        dasp.adapt(toy3, "brimpr")
    with pytest.raises(ContractError, match="layers to prompt: 'audio' has 0"):
        dasp.adapt(Toy(), "brimpr")
    for wrong in ({"prompts": 0}, {"temperature": 0.0}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            dasp.adapt(trial_model(), "brimpr", **wrong)

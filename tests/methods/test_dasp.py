"""DASP: the paper's variant against numpy, who moves, how many passes, any number of modalities."""

import numpy as np
import pytest
import torch

import dasp
from dasp.core.errors import OptionError
from dasp.methods.dasp_loss import dasp_loss, diversity
from dasp.models import Toy


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def loss_in_numpy(logits, pairs, ent, kl):
    """The equations of the paper; `pairs` are (adapted, source) logits of unbiased modalities."""
    p = softmax(logits)
    mean = np.clip(p, 1e-7, 1 - 1e-7).mean(axis=0)
    total = (mean * np.log(mean)).sum() - ent * (p * np.log(p)).sum(axis=1).mean()
    for adapted, source in pairs:
        pt, ps = softmax(adapted), softmax(source)
        total += kl * (pt * (np.log(pt) - np.log(ps))).sum(axis=1).mean()
    return total


def weights_of(tta):
    return {name: value.detach().clone() for name, value in tta.memory.weights.items()}


def moved(before, after):
    """Name the adapters whose weights changed, such as 'audio.plastic'."""
    return {".".join(n.split(".")[1:3]) for n in before if not torch.equal(before[n], after[n])}


class Counted(Toy):
    """Counts passes through the fusion by the modalities in them and whether they learn."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.passes = []

    def fuse(self, tokens):
        self.passes.append(("+".join(tokens), torch.is_grad_enabled()))
        return super().fuse(tokens)


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("shifted", [1, 2])
def test_no_pass_more_than_needed(variant, shifted, batches):
    model = Counted(seed=1)
    tta = dasp.adapt(model, "dasp", variant=variant, delta=1e-6)
    outcome = tta(batches[shifted])
    (biased,) = outcome.diagnosis.biased
    other = {"audio": "video", "video": "audio"}[biased]
    scores = [("audio", False), ("video", False)]
    assert model.passes == [*scores, ("audio+video", True), (other, True)]


def test_passes_when_nothing_is_flagged(batches):
    model = Counted(seed=1)
    dasp.adapt(model, "dasp", delta=10.0)(batches[1])
    assert model.passes == [("audio", False), ("video", False), ("audio+video", False)]
    model.passes.clear()
    dasp.adapt(model, "dasp", variant="paper", delta=10.0)(batches[1])
    joint = ("audio+video", True)
    assert model.passes[2:] == [joint, ("audio", True), ("video", True)]


def test_passes_with_three_modalities_and_when_frozen(batches3):
    model = Counted(modalities=("audio", "video", "depth"), seed=1)
    tta = dasp.adapt(model, "dasp", delta=1e-6)
    flagged = tta(batches3[1]).diagnosis.biased
    assert len(model.passes) == 3 + 1 + (3 - len(flagged))
    model.passes.clear()
    with tta.frozen():
        tta(batches3[1])
    assert model.passes == [(n, False) for n in ("audio", "video", "depth", "audio+video+depth")]


def test_without_kl_its_pass_is_saved(batches):
    model = Counted(seed=1)
    dasp.adapt(model, "dasp", delta=1e-6, lambda_kl=0.0)(batches[1])
    assert len(model.passes) == 3


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_who_moves_and_who_does_not(variant, batches):
    tta = dasp.adapt(Toy(seed=1), "dasp", variant=variant, delta=1e-6, lr=1e-2)
    seen = set()
    for batch in batches * 3:
        before = weights_of(tta)
        outcome = tta(batch)
        (biased,) = outcome.diagnosis.biased
        (other,) = {"audio", "video"} - outcome.diagnosis.biased
        assert moved(before, weights_of(tta)) == {f"{biased}.plastic", f"{other}.stable"}
        seen.add(biased)
    assert seen == {"audio", "video"}


def test_nothing_flagged(batches):
    released = dasp.adapt(Toy(seed=1), "dasp", delta=10.0, lr=1e-2)
    before = weights_of(released)
    source = dasp.adapt(Toy(seed=1), "source")
    outcome = released(batches[1])
    assert not outcome.updated
    assert outcome.loss is None
    assert torch.equal(outcome.logits, source(batches[1]).logits)
    assert moved(before, weights_of(released)) == set()

    paper = dasp.adapt(Toy(seed=1), "dasp", variant="paper", delta=10.0, lr=1e-2)
    before = weights_of(paper)
    assert paper(batches[1]).updated
    assert moved(before, weights_of(paper)) == {"audio.stable", "video.stable"}


def test_released_leaves_the_source_alone_after_adapting(batches):
    """Adapters that learned under a shift are not applied when nothing is flagged."""
    tta = dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, lr=1e-2)
    for batch in batches * 3:
        tta(batch)
    tta.method.delta = 10.0
    source = dasp.adapt(Toy(seed=1), "source")
    assert torch.equal(tta(batches[0]).logits, source(batches[0]).logits)


def adapted_logits(tta, batch, names):
    """Recompute from the public parts what DASP's second call sees."""
    model, biased = tta.model, tta.method.predict(model_tokens(tta, batch)).diagnosis.biased
    tokens = model_tokens(tta, batch)
    adapted = {
        n: tta.adapters[n](tokens[n], "plastic" if n in biased else "stable") for n in tokens
    }
    joint = model.fuse(adapted).logits.detach().numpy()
    pairs = [
        (
            model.fuse({n: adapted[n]}).logits.detach().numpy(),
            model.fuse({n: tokens[n]}).logits.detach().numpy(),
        )
        for n in names
        if n not in biased
    ]
    return joint, pairs, biased


def model_tokens(tta, batch):
    with torch.no_grad():
        return tta.model.encode(batch)


@pytest.mark.parametrize("names", [("audio", "video"), ("audio", "video", "depth")])
@pytest.mark.parametrize("delta", [1e-6, 10.0])
def test_paper_loss_agrees_with_numpy(names, delta, batches, batches3):
    stream = batches if len(names) == 2 else batches3
    options = {"variant": "paper", "delta": delta, "lambda_ent": 0.7, "lambda_kl": 1.3}
    tta = dasp.adapt(Toy(modalities=names, seed=1), "dasp", lr=1e-2, **options)
    for batch in stream * 2:
        joint, pairs, biased = adapted_logits(tta, batch, names)
        expected = loss_in_numpy(joint, pairs, 0.7, 1.3)
        outcome = tta(batch)
        assert outcome.diagnosis.biased == biased
        assert outcome.loss == pytest.approx(expected, abs=1e-5)
        np.testing.assert_allclose(outcome.logits.numpy(), joint, atol=1e-6)


def test_kl_directions_differ_between_variants(batches):
    losses = {}
    for variant in ("paper", "released"):
        tta = dasp.adapt(Toy(seed=1), "dasp", variant=variant, delta=1e-6)
        for pair in tta.adapters.values():
            generator = torch.Generator().manual_seed(0)
            pair.stable.up.weight.data.normal_(0, 0.5, generator=generator)
        joint, [(adapted, source)], _ = adapted_logits(tta, batches[1], ("audio", "video"))
        forward = (adapted, source) if variant == "paper" else (source, adapted)
        losses[variant] = loss_in_numpy(joint, [forward], 0.5, 1.0)
        assert tta(batches[1]).loss == pytest.approx(losses[variant], abs=1e-5)
    assert abs(losses["paper"] - losses["released"]) > 1e-4


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_gradients_point_where_finite_differences_do(variant, batches):
    """The gradient of the loss on each active weight, by central differences in float64."""
    model = Toy(seed=1).double()
    batch = {name: value.double() for name, value in batches[1].items()}
    tta = dasp.adapt(model, "dasp", variant=variant, delta=1e-6)
    generator = torch.Generator().manual_seed(0)
    for weight in tta.memory.weights.values():
        weight.data.normal_(0, 0.05, generator=generator)
    tokens = model_tokens(tta, batch)
    step = tta.method.step(tokens)
    (biased,) = step.diagnosis.biased
    for (name, weight), gradient in zip(tta.memory.weights.items(), step.gradients, strict=True):
        active = ("plastic" in name) == (biased in name)
        assert (gradient is not None) == active
        if not active:
            continue
        where = int(gradient.abs().argmax())
        slope = gradient.flatten()[where].item()
        values = []
        for move in (1e-4, -1e-4):
            weight.data.view(-1)[where] += move
            values.append(tta.method.step(tokens).loss.item())
            weight.data.view(-1)[where] -= move
        assert (values[0] - values[1]) / 2e-4 == pytest.approx(slope, rel=2e-2)


def test_the_clamp_keeps_a_certain_batch_finite_and_is_part_of_the_value():
    logits = torch.tensor([[80.0, 0.0, 0.0], [80.0, 0.0, 0.0]], requires_grad=True)
    value = diversity(logits).detach()
    low, high = 1e-7, 1 - 1e-7
    expected = 2 * low * np.log(low) + high * np.log(high)
    assert float(value) == pytest.approx(expected, rel=1e-2)
    dasp_loss(logits, 0.5).backward()
    assert torch.isfinite(logits.grad).all()


def test_diversity_rewards_spread_and_entropy_term_rewards_certainty():
    same = torch.tensor([[4.0, 0.0], [4.0, 0.0]])
    spread = torch.tensor([[4.0, 0.0], [0.0, 4.0]])
    vague = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert float(diversity(spread)) < float(diversity(same))
    assert float(dasp_loss(spread, 0.5)) < float(dasp_loss(vague, 0.5))


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_batch_of_one_and_constant_features(variant, batches):
    one = {name: value[:1] for name, value in batches[1].items()}
    tta = dasp.adapt(Toy(seed=1), "dasp", variant=variant)
    outcome = tta(one)
    assert outcome.diagnosis.biased == frozenset()
    assert outcome.updated == (variant == "paper")
    assert torch.isfinite(outcome.logits).all()
    constant = {name: torch.ones_like(value) for name, value in batches[1].items()}
    outcome = tta(constant)
    assert outcome.rejected is None
    assert all(np.isfinite(score) for score in outcome.diagnosis.scores.values())
    assert torch.isfinite(outcome.logits).all()


def test_initial_weights_follow_the_seed():
    def first(seed):
        return dasp.adapt(Toy(), "dasp", seed=seed).adapters["audio"].stable.down.weight

    assert torch.equal(first(3), first(3))
    assert not torch.equal(first(3), first(4))
    bound = 1 / np.sqrt(32)  # Kaiming uniform with a = √3: sqrt(6 / (1 + 3) / D)·… = 1/√D·√1.5
    assert first(0).abs().max() <= bound * np.sqrt(1.5)
    tta = dasp.adapt(Toy(), "dasp")
    for pair in tta.adapters.values():
        assert not pair.stable.up.weight.any()
        assert not pair.plastic.weight.any()


def test_weights_set_before_the_first_batch_are_what_reset_returns_to(batches):
    tta = dasp.adapt(Toy(seed=1), "dasp", lr=1e-2)
    tta.adapters["audio"].stable.down.weight.data.fill_(0.25)
    tta(batches[1])
    tta.reset()
    assert (tta.adapters["audio"].stable.down.weight == 0.25).all()


@pytest.mark.parametrize(
    "wrong",
    [{"variant": "mine"}, {"stable_rank": 0}, {"delta": -1}, {"lambda_kl": float("nan")}],
)
def test_impossible_options(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        dasp.adapt(Toy(), "dasp", **wrong)

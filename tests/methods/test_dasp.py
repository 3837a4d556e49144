"""DASP: who moves, loss and gradients by hand, how many passes, the differences of the variants."""

import numpy as np
import pytest
import torch

import dasp
from dasp.core.errors import OptionError
from dasp.core.types import Fused
from dasp.methods.dasp import RULES, VARIANTS, diversity
from dasp.methods.losses import entropy
from dasp.models import Toy

OPTIONS = {variant: {n: both[i] for n, both in RULES.items()} for i, variant in enumerate(VARIANTS)}
TWO = ("audio", "video")
THREE = ("audio", "video", "depth")

# Of a biased and of an unbiased modality: what moves, and whether it has a KL term.
ROWS = {
    "full": ({}, ({"plastic"}, False), ({"stable"}, True)),
    "without stable": ({"adapter_kinds": "plastic"}, ({"plastic"}, False), ({"plastic"}, True)),
    "without plastic": ({"adapter_kinds": "stable"}, ({"stable"}, False), ({"stable"}, True)),
    "without asymmetry": (
        {"roles": "same"},
        ({"stable", "plastic"}, True),
        ({"stable", "plastic"}, True),
    ),
    "opposite": ({"roles": "opposite"}, ({"stable"}, True), ({"plastic"}, False)),
}


def expected(row, biased, names):
    """Return the adapters that should move and the modalities that should have a KL term."""
    _, free, steady = ROWS[row]
    parts = {name: free if name in biased else steady for name in names}
    movers = {f"{name}.{kind}" for name, (kinds, _) in parts.items() for kind in kinds}
    return movers, {name for name, (_, anchored) in parts.items() if anchored}


def moved(before, after):
    return {".".join(n.split(".")[1:3]) for n in before if not torch.equal(before[n], after[n])}


def weights_of(tta):
    return {name: value.detach().clone() for name, value in tta.memory.weights.items()}


def disturbed(tta, scale=0.05):
    """Move the adapters off the identity, where all rows and both KL directions coincide."""
    generator = torch.Generator().manual_seed(0)
    for weight in tta.memory.weights.values():
        weight.data.normal_(0, scale, generator=generator)
    return tta


@pytest.fixture
def streams(batches, batches3):
    return {TWO: batches, THREE: batches3}


@pytest.mark.parametrize("names", [TWO, THREE], ids=len)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("row", ROWS)
def test_who_moves(row, variant, names, streams):
    options = {"variant": variant, "delta": 1e-6, "lr": 1e-2, **ROWS[row][0]}
    tta = dasp.adapt(Toy(modalities=names, seed=1), "dasp", **options)
    seen = set()
    for batch in streams[names] * 2:
        before = weights_of(tta)
        outcome = tta(batch)
        movers, _ = expected(row, outcome.diagnosis.biased, names)
        assert moved(before, weights_of(tta)) == movers
        seen.add(outcome.diagnosis.biased)
    assert len(seen) > 1


class Counted(Toy):
    """Counts passes through the fusion by the modalities in them and whether they learn."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.passes = []

    def fuse(self, tokens):
        self.passes.append(("+".join(tokens), torch.is_grad_enabled()))
        return super().fuse(tokens)


@pytest.mark.parametrize("names", [TWO, THREE], ids=len)
@pytest.mark.parametrize("row", ROWS)
def test_no_pass_more_than_needed(row, names, streams):
    model = Counted(modalities=names, seed=1)
    tta = dasp.adapt(model, "dasp", lr=1e-4, delta=1e-6, **ROWS[row][0])

    def passes():
        model.passes.clear()
        outcome = tta(streams[names][1])
        return outcome.diagnosis.biased, model.passes

    biased, found = passes()
    _, anchored = expected(row, biased, names)
    scores = [(name, False) for name in names]
    terms = [(name, True) for name in names if name in anchored]
    assert found == [*scores, ("+".join(names), True), *terms]
    tta.method.lambda_kl = 0.0
    assert len(passes()[1]) == len(names) + 1
    without_gradient = [*scores, ("+".join(names), False)]
    with tta.frozen():
        assert passes()[1] == without_gradient
    tta.method.delta = 10.0  # nothing is flagged: the source prediction, in the paper all learn
    assert passes()[1] == without_gradient
    if row == "full":
        tta = dasp.adapt(model, "dasp", lr=1e-4, variant="paper", delta=10.0)
        assert passes()[1][len(names) :] == [("+".join(names), True), *((n, True) for n in names)]


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def loss_in_numpy(joint, pairs, kl_from):
    """The loss from joint logits and (adapted, source) logits of modalities with a KL term."""
    log_p = log_softmax(joint)
    mean = np.exp(log_p).mean(axis=0)
    total = (mean * np.log(mean)).sum() - 0.5 * (np.exp(log_p) * log_p).sum(axis=1).mean()
    for adapted, source in pairs:
        a, s = log_softmax(adapted), log_softmax(source)
        p, q = (s, a) if kl_from == "source" else (a, s)
        total += (np.exp(p) * (p - q)).sum(axis=1).mean()
    return total


def by_hand(tta, tokens, row, biased):
    """Apply the adapters' weights as the row says, in plain matrix products."""
    adapted = {}
    for name, x in tokens.items():
        weights = {k: v for k, v in tta.memory.weights.items() if f".{name}." in k}
        kinds, _ = ROWS[row][1 if name in biased else 2]
        # A plastic adapter stands behind the stable one wherever both exist.
        if "stable" in kinds or row in ("full", "opposite"):
            down, up = (weights[f"adapters.{name}.stable.{p}.weight"] for p in ("down", "up"))
            x = x + (x @ down.T).clamp(min=0) @ up.T
        if "plastic" in kinds:
            x = x + x @ weights[f"adapters.{name}.plastic.weight"].T
        adapted[name] = x
    return adapted


@pytest.mark.parametrize("names", [TWO, THREE], ids=len)
@pytest.mark.parametrize("kl_from", ["source", "adapted"])
@pytest.mark.parametrize("row", ROWS)
def test_loss_and_gradients_of_each_row(row, kl_from, names, streams):
    """The value by hand, the slopes by central differences, in float64; None for idle adapters."""
    model = Toy(modalities=names, seed=1).double()
    options = {"kl_from": kl_from, "delta": 1e-6, **ROWS[row][0]}
    tta = disturbed(dasp.adapt(model, "dasp", **options), scale=0.2)
    with torch.no_grad():
        tokens = model.encode({n: value.double() for n, value in streams[names][1].items()})
    step = tta.method.step(tokens)
    biased = step.diagnosis.biased
    movers, anchored = expected(row, biased, names)

    adapted = by_hand(tta, tokens, row, biased)
    joint = model.fuse(adapted).logits.detach().numpy()
    pairs = [
        [model.fuse({n: x[n]}).logits.detach().numpy() for x in (adapted, tokens)] for n in anchored
    ]
    assert float(step.loss.detach()) == pytest.approx(
        loss_in_numpy(joint, pairs, kl_from), abs=1e-6
    )
    np.testing.assert_allclose(step.logits.detach().numpy(), joint, atol=1e-9)

    pairs = zip(tta.memory.weights, step.gradients, strict=True)
    learning = {name: gradient for name, gradient in pairs if gradient is not None}
    assert {".".join(n.split(".")[1:3]) for n in learning} == movers
    for name, gradient in learning.items():
        weight = tta.memory.weights[name]
        where = int(gradient.abs().argmax())
        values = []
        for move in (1e-5, -1e-5):
            weight.data.view(-1)[where] += move
            values.append(tta.method.step(tokens).loss.item())
            weight.data.view(-1)[where] -= move
        slope = gradient.flatten()[where].item()
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("row", ROWS)
def test_nothing_biased(row, batches):
    source = dasp.adapt(Toy(seed=1), "source")(batches[1]).logits
    options = {"delta": 10.0, "lr": 1e-2, **ROWS[row][0]}
    left = disturbed(dasp.adapt(Toy(seed=1), "dasp", **options))
    assert torch.equal(left(batches[1]).logits, source)
    tta = dasp.adapt(Toy(seed=1), "dasp", none_biased="adapt", **options)
    before = weights_of(tta)
    assert tta(batches[1]).updated
    assert moved(before, weights_of(tta)) == expected(row, (), TWO)[0]


def test_all_biased_has_no_kl_term_and_works(batches):
    """δ = 0 is reached by the lowest score too. An adapter that is left out has no weights."""
    for kinds in ("both", "plastic", "stable"):
        options = {"variant": "paper", "delta": 0.0, "lr": 1e-2, "adapter_kinds": kinds}
        tta = dasp.adapt(Toy(seed=1), "dasp", **options)
        before = weights_of(tta)
        assert tta(batches[1]).diagnosis.biased == set(TWO)
        kind = "plastic" if kinds == "both" else kinds
        assert moved(before, weights_of(tta)) == {f"audio.{kind}", f"video.{kind}"}
        assert kinds == "both" or {name.split(".")[2] for name in tta.memory.weights} == {kinds}


class Quiet(Toy):
    """One dimension of the embedding varies too little for the joint filter, not for its own."""

    def fuse(self, tokens):
        fused = super().fuse(tokens)
        scale = torch.ones(self.embed_dim).index_fill_(0, torch.tensor([0]), 1e-3)
        return Fused(fused.embedding * scale, fused.logits)


def other_of(variant):
    return "paper" if variant == "released" else "released"


@pytest.mark.parametrize("names", [TWO, THREE], ids=len)
@pytest.mark.parametrize("delta", [1e-6, 0.05, 10.0])
@pytest.mark.parametrize("variant", VARIANTS)
def test_all_switches_together_make_the_other_variant(variant, delta, names, streams):
    runs = []
    for options in (
        {"variant": other_of(variant)},
        {"variant": variant} | OPTIONS[other_of(variant)],
    ):
        tta = dasp.adapt(Toy(modalities=names, seed=1), "dasp", delta=delta, lr=1e-2, **options)
        outcomes = [tta(batch) for batch in streams[names] * 2]
        runs.append((outcomes, weights_of(tta)))
    (expected_outcomes, weights), (outcomes, found) = runs
    for one, other in zip(expected_outcomes, outcomes, strict=True):
        assert torch.equal(one.logits, other.logits)
        assert (one.diagnosis, one.loss) == (other.diagnosis, other.loss)
    assert all(torch.equal(weights[name], found[name]) for name in weights)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("switch", RULES)
def test_each_switch_changes_what_it_says_and_nothing_else(variant, switch, batches):
    """A gap exactly at δ, nothing above it, and adapters off the identity: all five show."""
    value = OPTIONS[other_of(variant)][switch]
    plain = disturbed(dasp.adapt(Quiet(seed=1), "dasp", variant=variant, delta=0.0))
    switched = disturbed(
        dasp.adapt(Quiet(seed=1), "dasp", variant=variant, delta=0.0, **{switch: value})
    )
    gaps = plain(batches[1]).diagnosis.differences
    delta = 10.0 if switch == "none_biased" else max(gaps.values())
    if switch == "kl_from":
        delta /= 2
    for tta in (plain, switched):
        tta.reset()
        tta.method.delta = delta
    one, other = plain(batches[1]), switched(batches[1])
    same_scores = one.diagnosis.scores == other.diagnosis.scores
    assert same_scores == (switch not in ("score", "dimension_filter"))
    if switch == "threshold":
        reached = {"above": 0, "reached": 1}
        counts = [len(found.diagnosis.biased) for found in (one, other)]
        assert counts == [reached[OPTIONS[v][switch]] for v in (variant, other_of(variant))]
    if switch == "none_biased":
        assert (one.updated, other.updated) == (variant == "paper", variant == "released")
    if switch == "kl_from":
        assert torch.equal(one.logits, other.logits)
        assert one.loss != other.loss


@pytest.mark.parametrize("row", ROWS)
def test_adapted_tokens_are_what_the_prediction_fuses(row, batches):
    tta = disturbed(dasp.adapt(Toy(seed=1), "dasp", delta=1e-6, **ROWS[row][0]))
    with torch.no_grad():
        tokens = tta.model.encode(batches[1])
        found = tta.method.adapted_tokens(tokens)
        prediction = tta.method.predict(tokens)
        assert torch.equal(tta.model.fuse(found).logits, prediction.logits)
        for name, value in by_hand(tta, tokens, row, prediction.diagnosis.biased).items():
            torch.testing.assert_close(found[name], value)
        tta.method.delta = 10.0
        assert all(torch.equal(tta.method.adapted_tokens(tokens)[n], tokens[n]) for n in tokens)


def test_the_clamp_keeps_a_certain_batch_finite_and_is_part_of_the_value():
    logits = torch.tensor([[80.0, 0.0, 0.0], [80.0, 0.0, 0.0]], requires_grad=True)
    value = diversity(logits).detach()
    low, high = 1e-7, 1 - 1e-7
    expected = 2 * low * np.log(low) + high * np.log(high)
    assert float(value) == pytest.approx(expected, rel=1e-2)
    (diversity(logits) + 0.5 * entropy(logits).mean()).backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("variant", VARIANTS)
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


def test_initial_weights_follow_the_seed_or_are_set_before_the_first_batch(batches):
    def first(seed):
        return dasp.adapt(Toy(), "dasp", seed=seed).adapters["audio"].stable.down.weight

    assert torch.equal(first(3), first(3))
    assert not torch.equal(first(3), first(4))
    assert first(0).abs().max() <= np.sqrt(1.5 / 32)  # Kaiming uniform with a = √3
    tta = dasp.adapt(Toy(seed=1), "dasp", lr=1e-2)
    for pair in tta.adapters.values():
        assert not pair.stable.up.weight.any()
        assert not pair.plastic.weight.any()
    tta.adapters["audio"].stable.down.weight.data.fill_(0.25)
    tta(batches[1])
    tta.reset()
    assert (tta.adapters["audio"].stable.down.weight == 0.25).all()


NAMED = {"adapter_kinds": "stable", "roles": "opposite", "variant": "paper"} | OPTIONS["paper"]


@pytest.mark.parametrize(
    ("option", "wrong", "said"),
    [
        *((name, wrong, f"one of .*'{NAMED[name]}'") for name in NAMED for wrong in ("mine", 1)),
        ("stable_rank", 0, "an integer from 1"),
        ("delta", -1, "a number from 0"),
        ("lambda_kl", float("nan"), "a number from 0"),
    ],
)
def test_impossible_options_name_the_possible(option, wrong, said):
    with pytest.raises(OptionError, match=f"^{option} must be {said}.*not {wrong!r}"):
        dasp.adapt(Toy(), "dasp", **{option: wrong})

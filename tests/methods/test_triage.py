"""Our own method: whom it believes, what it remembers, what it does to tokens, and all together."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dasp
from dasp.core.errors import InputError, OptionError
from dasp.core.types import Diagnosis
from dasp.methods.dasp import diversity
from dasp.methods.diagnosis import Diagnoser, summaries
from dasp.methods.triage import (
    ConditionMemory,
    Triage,
    belief,
    class_mix,
    concordance,
    contradiction,
    covariance,
    divergence_from_mix,
    has_few_classes,
    has_moved,
    have_same_mix,
    information,
    is_steady,
    reliability,
)
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld

CLASSES = 6


@pytest.fixture
def clean():
    return [SyntheticWorld().draw(64, seed=5).inputs]


def triage(model=None, **options):
    return dasp.adapt(model or Toy(seed=1), "triage", lr=1e-2, **options)


def hurt(batch, name="audio", by=3.0):
    """Return a batch in which one modality has an offset and some noise."""
    generator = torch.Generator().manual_seed(9)
    noise = torch.randn(batch[name].shape, generator=generator)
    return dict(batch) | {name: batch[name] + by * (0.3 * noise + 1)}


def views(count=200, accuracy=(0.9, 0.8, 0.85), seed=0):
    """Return log-probabilities (n, M, C) of views that are right in these shares of samples."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    found = []
    for share in accuracy:
        wrong = torch.rand(count, generator=generator) > share
        said = torch.where(wrong, torch.randint(CLASSES, (count,), generator=generator), labels)
        found.append(4 * torch.nn.functional.one_hot(said, CLASSES).float())
    return torch.stack(found, dim=1).log_softmax(dim=2), labels


# Whom to believe


def test_views_are_as_reliable_as_on_clean_samples_if_they_agree_as_well():
    clean, _ = views()
    assert reliability(clean, clean).tolist() == pytest.approx([1, 1, 1])
    assert float(reliability(views(seed=1)[0], clean).min()) > 0.85
    assert reliability(clean[:, :1], clean[:, :1]).tolist() == [1]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_two_views_outvote_a_third(bad, known):
    accuracy = [0.9, 0.9, 0.9]
    accuracy[bad] = 1 / CLASSES
    found = reliability(views(accuracy=accuracy)[0], views(seed=1)[0] if known else None)
    others = [place for place in range(3) if place != bad]
    assert found[bad] < 0.5
    assert found[bad] < 0.7 * found[others].min()


def test_what_is_believed_is_the_product_of_views_and_ignores_those_without_weight():
    rows, labels = views(accuracy=(0.9, 0.2, 0.9))
    assert torch.allclose(belief(rows, torch.tensor([0.0, 1.0, 0.0])), rows[:, 1], atol=1e-6)
    without = belief(rows, torch.tensor([1.0, 0.0, 1.0]))
    right = [(b.argmax(dim=1) == labels).float().mean() for b in (without, rows[:, 1])]
    assert right[0] > right[1]
    assert contradiction(without, without) == pytest.approx(0, abs=1e-6)
    assert contradiction(rows[:, 1], without) > 0.5


def test_predictions_tell_nothing_if_they_are_unsure_or_all_alike():
    rows, _ = views(accuracy=(1.0, 0.5))
    told = information(rows)
    assert float(told[0]) > float(told[1]) > 0  # an unlucky guess is as sure, but not as even
    assert float(told[0]) < torch.tensor(float(CLASSES)).log()
    alike = rows[:1].expand(50, -1, -1)
    unsure = torch.zeros(50, 1, CLASSES).log_softmax(dim=2)
    for nothing in (alike, unsure):
        assert information(nothing).max() < 1e-3


def test_classes_that_come_in_an_order_are_seen():
    rows, labels = views(accuracy=(1.0,))
    assert is_steady(rows[:, 0])
    assert not is_steady(rows[labels.argsort(), 0])
    assert is_steady(rows[labels.argsort()[:12], 0])  # too few to tell


def test_few_classes_are_seen():
    rows, labels = views(count=300, accuracy=(0.9, 0.8))
    own, few = rows[:, 0], labels < 2
    assert have_same_mix(own[:100], own[100:])
    assert not have_same_mix(own[few], own[100:])
    assert has_few_classes(own[few])
    assert not has_few_classes(own)
    assert not has_few_classes(own[:1])


@given(seed=st.integers(0, 100), count=st.integers(40, 200))
def test_views_of_several_classes_agree_sample_by_sample_and_those_of_one_do_not(seed, count):
    rows, labels = views(count=count * CLASSES, accuracy=(0.7, 0.6, 0.5), seed=seed)
    assert covariance(rows) > 0.1
    assert concordance(rows) > 10
    assert abs(concordance(rows[labels == 2])) < 5  # about a standard normal variable
    chance = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    pairs = torch.stack([rows[:, 0], rows[chance, 1]], dim=1)
    assert abs(concordance(pairs)) < 5
    assert abs(covariance(pairs)) < 0.1


def test_a_view_that_says_the_same_of_all_samples_agrees_with_none():
    rows, _ = views(count=100)
    rows[:, 0] = rows[0, 0]
    assert (covariance(rows[:, :2]), concordance(rows[:, :2])) == pytest.approx((0, 0), abs=1e-4)


def test_agreement_is_of_the_same_precision_under_autocast():
    rows, _ = views(count=600, accuracy=(0.7, 0.6))
    with torch.autocast("cpu", torch.float16):
        assert concordance(rows) == concordance(rows) > 10


def test_diversity_towards_a_mix_is_a_divergence():
    logits = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    even = torch.full((4,), 0.25)
    plain = diversity(logits) + torch.tensor(4.0).log()
    torch.testing.assert_close(divergence_from_mix(logits, even), plain)
    own = logits.softmax(dim=1).mean(dim=0)
    assert float(divergence_from_mix(logits, 2 * own - even)) == pytest.approx(0, abs=1e-6)


# The condition


def test_a_mean_token_moves_by_more_than_chance_or_it_does_not():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(80, 12, generator=generator)
    assert not has_moved(rows, 16)
    assert has_moved(torch.cat([rows[:-16], rows[-16:] + 1]), 16)
    assert not has_moved(rows[:10] * 100, 8)  # too few before it to tell


def test_rows_are_kept_while_the_condition_lasts():
    condition = ConditionMemory({"audio": 3, "video": 2}, classes=4)
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 20, condition.rows.shape[1], generator=generator)
    flagged = torch.tensor([2, 1])
    condition.remember(flagged, first)
    assert torch.equal(condition.joined(flagged, second), torch.cat([first, second]))
    assert torch.equal(condition.joined(torch.tensor([1, 2]), second), second)
    moved = second.clone()
    condition.means(moved)["audio"].add_(9)
    assert torch.equal(condition.joined(flagged, moved), moved)
    condition.remember(flagged, torch.cat([first, second]))
    assert torch.equal(condition.rows, torch.cat([first, second])[-condition.capacity :])
    condition.remember(torch.tensor([1, 1]), first)  # nothing flagged
    assert not len(condition.rows)


# All together


def test_it_is_the_source_model_while_nothing_is_flagged(clean, batches):
    tta, source = triage(), dasp.adapt(Toy(seed=1), "source")
    tta.fit(clean)
    world = SyntheticWorld().draw(64, seed=6).inputs
    outcome = tta(world)
    assert not outcome.diagnosis.biased
    assert torch.equal(outcome.logits, source(world).logits)
    assert outcome.skipped == "no modality is flagged"


@pytest.mark.parametrize("learn", [True, False])
def test_a_hurt_modality_is_treated(clean, learn):
    tta = triage(learn=learn)
    tta.fit(clean)
    batch = hurt(SyntheticWorld().draw(64, seed=6).inputs)
    outcome = tta(batch)
    assert outcome.diagnosis.biased == {"audio"}
    assert outcome.updated == learn
    assert learn or "treated audio" in outcome.skipped
    torch.testing.assert_close(outcome.logits.exp().sum(dim=1), torch.ones(64))
    encoded = tta.model.encode(batch)
    moved = tta.method.adapted_tokens(encoded)
    clean_mean = tta.method.condition.means(tta.method.clean.rows)["audio"].mean(dim=0)
    gaps = [float((t["audio"].mean(dim=(0, 1)) - clean_mean).norm()) for t in (encoded, moved)]
    assert learn or gaps[1] < 0.5 * gaps[0]
    assert learn or torch.equal(moved["video"], encoded["video"])


def test_of_two_hurt_modalities_the_one_that_tells_more_is_believed(clean):
    tta = triage(learn=False)
    tta.fit(clean)
    rows = tta.method.clean.rows.clone()
    tta.method.condition.views(rows)[:, 0] = -torch.tensor(8.0).log()  # audio tells nothing
    both = torch.tensor([2, 2])
    weights = tta.method._weights(both, rows)
    assert weights[1] == 1
    assert weights[0] < 0.01


THREE = ("audio", "video", "depth")


@pytest.mark.parametrize("treatment", ["mends", "spoils", "changes nothing"])
def test_a_treated_view_is_used_if_the_others_say_that_it_is_worth_more(treatment):
    tta = triage(Toy(modalities=THREE, seed=1), learn=False)
    world = SyntheticWorld(modalities=THREE)
    tta.fit([world.draw(128, seed=5).inputs])
    good = dict(tta.model.encode(world.draw(64, seed=6).inputs))
    bad = good | {"audio": good["audio"].mean(dim=0).expand_as(good["audio"])}  # tells nothing
    before, after = {"mends": (bad, good), "spoils": (good, bad)}.get(treatment, (bad, bad))
    method, state = tta.method, torch.tensor([2, 1, 1])
    with torch.no_grad():
        alone = {name: tta.model.fuse({name: value}) for name, value in before.items()}
        rows = method._rows(before, alone)
        method._write_treated_views(state, rows, before, lambda _: after)
        found = method._with_treated_views(state, rows)
        treated = method._rows(after, {n: tta.model.fuse({n: v}) for n, v in after.items()})
    expected = treated if treatment == "mends" else rows
    assert torch.equal(method.condition.views(found), method.condition.views(expected))
    two = method._with_treated_views(torch.tensor([2, 1, 0]), rows)
    assert torch.equal(two, rows)  # one other view cannot vouch for it


@pytest.mark.parametrize("frozen", [True, False])
def test_a_treatment_that_leaves_nothing_to_tell_is_given_up(clean, frozen):
    tta, source = triage(), dasp.adapt(Toy(seed=1), "source")
    tta.fit(clean)
    batch = hurt(hurt(SyntheticWorld().draw(64, seed=6).inputs), "video")
    with torch.no_grad():  # adapters that turn every token into nothing
        for pair in tta.adapters.values():
            pair.plastic.weight.fill_diagonal_(-1)
    if frozen:
        with tta.frozen():
            assert torch.equal(tta(batch).logits, source(batch).logits)
        return
    outcome = tta(batch)
    assert "of the source's information" in outcome.rollback
    assert not outcome.updated
    assert torch.equal(outcome.logits, source(batch).logits)
    assert not any(pair.plastic.weight.any() for pair in tta.adapters.values())
    assert not len(tta.method.condition.rows)
    assert tta(batch).rollback is None


def test_a_treatment_that_no_healthy_modality_vouches_for_must_lose_nothing(clean):
    """Damage that costs little and is treated loses a few percent of the information."""
    tta = triage()
    tta.fit(clean)
    method, rows = tta.method, tta.method.clean.rows.clone()
    joint = method.condition.joint(rows, treated=True)
    untreated = method.condition.joint(rows, treated=False)
    joint.copy_((0.97 * untreated.exp() + 0.03 / joint.shape[1]).log())
    assert 0.9 < information(joint) / information(untreated) < 0.97
    healthy, flagged = 1, 2
    assert method._harms(torch.tensor([flagged, healthy]), rows) is None
    assert "of the source's information" in method._harms(torch.tensor([flagged, flagged]), rows)
    joint.copy_(untreated)
    assert method._harms(torch.tensor([flagged, flagged]), rows) is None


def test_nothing_is_learned_from_predictions_that_tell_little(clean, monkeypatch):
    monkeypatch.setattr(Triage, "_unconfirmed", lambda *_: None)
    tta = triage()
    tta.fit(clean)
    both = {name: 1e-4 * value for name, value in SyntheticWorld().draw(64, seed=6).inputs.items()}
    outcome = tta(both)
    assert outcome.diagnosis.biased == {"audio", "video"}
    assert not outcome.updated
    assert "of what it tells on clean samples" in outcome.skipped


def test_without_learning_there_is_nothing_to_train(clean):
    tta = triage(learn=False)
    assert tta.trainable.count == 0
    assert not tta.adapters


def test_samples_in_another_order_get_the_same_answers(clean):
    batch = hurt(SyntheticWorld().draw(32, seed=6).inputs)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    found = []
    for rows in (torch.arange(32), order):
        tta = triage(learn=False, balance=False)
        tta.fit(clean)
        found.append(tta({name: value[rows] for name, value in batch.items()}).logits)
    torch.testing.assert_close(found[0][order], found[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("learn", [True, False])
def test_fit_survives_reset_and_state_and_a_stream_goes_on_from_it(clean, learn):
    stream = [hurt(SyntheticWorld().draw(16, seed=seed).inputs) for seed in range(6, 9)]
    tta = triage(learn=learn)
    tta.fit(clean)
    first = [tta(batch).logits for batch in stream]
    assert len(tta.method.condition.rows)
    tta.reset()
    assert tta.method.fitted
    assert not len(tta.method.condition.rows)
    assert all(torch.equal(a, tta(b).logits) for a, b in zip(first, stream, strict=True))
    other = triage(learn=learn)
    other.load_state(tta.state())
    for batch in stream:
        assert torch.equal(tta(batch).logits, other(batch).logits)


def test_a_modality_may_be_missing_and_batches_be_single_samples(clean):
    tta = triage(learn=False)
    tta.fit(clean)
    batch = hurt(SyntheticWorld().draw(24, seed=6).inputs)
    for row in range(24):
        one = {name: value[row : row + 1] for name, value in batch.items()}
        if row % 8 == 7:
            del one["video"]
        assert torch.isfinite(tta(one).logits).all()
    assert tta.method.condition.state.tolist() in ([2, 0], [2, 1])


def test_a_frozen_call_neither_sees_nor_changes_the_condition(clean):
    tta = triage(learn=False)
    tta.fit(clean)
    batch = hurt(SyntheticWorld().draw(16, seed=6).inputs)
    with tta.frozen():
        together, alone = tta(batch).logits, tta.alone(batch)
    tta(hurt(SyntheticWorld().draw(32, seed=7).inputs))
    before = tta.method.condition.rows.clone()
    with tta.frozen():
        assert torch.equal(tta(batch).logits, together)
        assert all(torch.equal(logits, alone[name]) for name, logits in tta.alone(batch).items())
    assert torch.equal(tta.method.condition.rows, before)


def test_fit_says_why_it_does_nothing(clean):
    tta = triage()
    with pytest.raises(InputError, match="no clean samples of audio, video"):
        tta.fit([])
    assert not tta.method.fitted


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (lambda b: b, "put a single batch into a list"),
        (lambda b: None, "not NoneType"),
        (lambda b: [(b, torch.zeros(64))], "not tuple: leave the labels out"),
        (lambda b: [{"audio": b["audio"]}], "lack video"),
        (lambda b: [b | {"sound": b["audio"]}], "unknown modality 'sound'"),
        (lambda b: [b | {"audio": b["audio"] * torch.nan}], "must be finite: NaN or Inf in audio"),
        (lambda b: [{n: v[:3] for n, v in b.items()}], "3 clean samples"),
    ],
)
def test_clean_samples_that_would_spoil_it_are_refused(source, said, clean, batches):
    tta = triage()
    tta.fit(clean)
    before = [tta(batch).diagnosis for batch in batches]
    tta.reset()
    with pytest.raises(InputError, match=said):
        tta.fit(source(dict(clean[0])))
    assert [tta(batch).diagnosis for batch in batches] == before


def test_a_fit_with_few_clean_samples_warns(clean):
    tta = triage()
    with pytest.warns(RuntimeWarning, match="got 16 clean samples") as warned:
        tta.fit([{name: value[:16] for name, value in clean[0].items()}])
    assert warned[0].filename == __file__
    assert tta.method.fitted


def test_a_fit_with_clean_samples_of_one_class_warns():
    tta = dasp.adapt(Lopsided(), "triage")
    tokens, _ = lopsided_world(64, 0)
    said = Lopsided().fuse(tokens).logits.argmax(dim=1)
    with pytest.warns(RuntimeWarning, match="of one predicted class"):
        tta.fit_on_tokens(
            [
                {name: value[said == said.mode().values] for name, value in tokens.items()}
                for _ in range(4)
            ]
        )


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("queue", -1), ("learn", 1), ("align", "no"), ("lambda_kl_biased", -0.1),
        ("false_alarms", 0), ("false_alarms", 1), ("believe", None), ("balance", 2),
    ],
)  # fmt: skip
def test_impossible_options_are_named(option, wrong):
    with pytest.raises(OptionError, match=f"^{option} "):
        dasp.adapt(Toy(), "triage", **{option: wrong})


# Batches in which not all samples are damaged


def tokens_of(model, count=20, seed=3):
    """Return tokens of 64 samples, the audio of the first ones damaged."""
    with torch.no_grad():
        tokens = dict(model.encode(SyntheticWorld().draw(64, seed=seed).inputs))
    noise = torch.randn(tokens["audio"].shape, generator=torch.Generator().manual_seed(9))
    tokens["audio"] = tokens["audio"].clone()
    tokens["audio"][:count] += 4 * (noise + 1)[:count]
    return tokens


@pytest.fixture
def ready(clean):
    tta = triage()
    tta.fit([*clean, SyntheticWorld().draw(64, seed=6).inputs])  # one in a hundred needs a hundred
    return tta


@pytest.mark.parametrize("count", [20, 40])
def test_samples_of_a_mixed_batch_are_told_apart_and_answered_one_by_one(ready, monkeypatch, count):
    monkeypatch.setattr(Triage, "_trust", lambda *_: 2.0)  # the model is not trained
    mixed, source = tokens_of(ready.model, count), dasp.adapt(Toy(seed=1), "source")
    with ready.frozen():
        alone = ready.on_tokens(mixed).logits
    out, usual = ready.on_tokens(mixed), source.on_tokens(mixed).logits.log_softmax(dim=1)
    damaged = torch.tensor(out.diagnosis.samples["audio"])
    assert damaged[:count].float().mean() > 0.9
    assert damaged[count:].float().mean() < 0.05
    assert "damage differs from sample to sample (audio" in out.skipped
    assert torch.allclose(out.logits[~damaged], usual[~damaged], atol=1e-5)
    assert not torch.allclose(out.logits[damaged], usual[damaged], atol=1e-2)
    assert torch.equal(alone, out.logits)


def test_damage_of_all_samples_is_one_condition(ready):
    out = ready.on_tokens(tokens_of(ready.model, 64))
    assert out.diagnosis.biased == {"audio"}
    assert out.diagnosis.samples == {}


def test_healthy_samples_that_are_unlike_those_of_fit_are_not_taken_for_damaged(ready):
    """Some of another day are beyond the limit of those of `fit`, but not with the damaged ones."""
    clean = ready.method.diagnoser.clean["audio"]
    clean.furthest = 0.6 * clean.furthest
    mixed = tokens_of(ready.model, 16)
    with torch.no_grad():
        alone = ready.model.fuse({"audio": mixed["audio"]})
    far = clean.distance(clean.look(summaries(mixed)["audio"], alone)) > clean.furthest
    assert far[16:].float().mean() > 0.1
    damaged = torch.tensor(ready.on_tokens(mixed).diagnosis.samples["audio"])
    assert damaged[:16].all()
    assert not damaged[16:].any()


def test_refused_samples_of_a_mixed_batch_are_not_told_apart(ready):
    mixed = tokens_of(ready.model)
    mixed["audio"][30] = torch.nan
    out = ready.on_tokens(mixed)
    assert out.rejected
    damaged = torch.tensor(out.diagnosis.samples["audio"])
    assert damaged.shape == (64,)
    assert not damaged[30]
    assert damaged[:20].float().mean() > 0.9


# Models that were never trained without one of their modalities


class Lopsided(torch.nn.Module):
    """Sums the logits of both sensors; one that is absent leaves the other's lopsided."""

    modalities, embed_dim, num_classes = ("audio", "video"), CLASSES, CLASSES

    def encode(self, inputs):
        return dict(inputs)

    def fuse(self, tokens):
        means = {name: value.mean(dim=1) for name, value in tokens.items()}
        lean = 6 * torch.nn.functional.one_hot(torch.tensor(0), CLASSES).float()
        sides = {"audio": lean, "video": -lean, "depth": 0}
        logits = sum(means[name] + sides[name] for name in means)
        return dasp.Fused(logits, logits, None)


def lopsided_world(count, seed, offset=0.0, only=None):
    """Return tokens (n, 4, C) that tell the labels, and the labels; the audio may be damaged."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    labels = labels if only is None else torch.full_like(labels, only)
    said = 3 * torch.nn.functional.one_hot(labels, CLASSES).float()[:, None]
    tokens = {
        name: said + 3 * torch.randn(count, 4, CLASSES, generator=generator)
        for name in Lopsided.modalities
    }
    tokens["audio"] = tokens["audio"] + offset * torch.arange(CLASSES) / CLASSES
    return tokens, labels


def test_views_of_clean_samples_have_the_class_mix_of_the_joint_prediction():
    tta = dasp.adapt(Lopsided(), "triage", learn=False)
    tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    method = tta.method
    raw = Lopsided().fuse({"audio": lopsided_world(256, 0)[0]["audio"]}).logits.softmax(dim=1)
    found = method.condition.views(method.clean.rows).exp().mean(dim=0)
    joint = method.condition.joint(method.clean.rows).exp().mean(dim=0)
    assert (raw.mean(dim=0) - joint).abs().max() > 0.3
    assert (found - joint).abs().max() < 0.03


@pytest.mark.parametrize("again", [False, True])
def test_a_model_that_favours_classes_without_a_modality_is_not_harmed(again):
    tta = dasp.adapt(Lopsided(), "triage", learn=False)
    for _ in range(1 + again):  # a second fit starts over
        tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    source = dasp.adapt(Lopsided(), "source")
    right = {"source": 0, "triage": 0}
    for number in range(4):
        tokens, labels = lopsided_world(64, 10 + number, offset=8.0)
        out = tta.on_tokens(tokens)
        assert out.diagnosis.biased == {"audio"}
        for name, logits in (("triage", out.logits), ("source", source.on_tokens(tokens).logits)):
            right[name] += int((logits.argmax(dim=1) == labels).sum())
    assert right["triage"] > right["source"] + 20


@pytest.mark.parametrize(
    ("untreated", "treated", "kept", "few", "said"),
    [
        (0.5, 0.8, 96, (), None),
        (0.8, 0.8, 96, (), None),
        (0.5, 0.8, 12, (), "12 samples are too few"),
        (0.9, 0.7, 96, (), "of their agreement"),
        (0.1, 0.2, 96, (), "by chance only"),
        (0.5, 0.8, 96, (False, True), None),
        (0.75, 0.85, 96, (False, True), "classes are few"),
        (0.75, 0.85, 96, (False,), None),  # few only if untreated
        (0.8, 0.8, 96, (False, True), None),  # nothing was moved
    ],
)
def test_a_treatment_of_all_is_confirmed_by_views_that_agree_more_and_as_well_as_before(
    untreated, treated, kept, few, said
):
    method = dasp.adapt(Lopsided(), "triage").method
    rows = torch.zeros(kept, method.condition.rows.shape[1])
    method.clean.rows = torch.zeros(96, method.condition.rows.shape[1])
    for own in (rows, method.clean.rows):
        for slot in (False, True):
            predicted = torch.arange(len(own)) % (1 if own is rows and slot in few else CLASSES)
            joint = method.condition.joint(own, slot)
            joint.copy_(torch.nn.functional.one_hot(predicted, CLASSES))
    for slot, accuracy in ((False, untreated), (True, treated)):
        method.condition.views(rows, slot).copy_(
            views(count=kept, accuracy=(accuracy, accuracy))[0]
        )
    why = method._unconfirmed(diagnosed(audio=2.0, video=2.0), rows)
    assert (why is None) == (said is None)
    assert (said or "") in (why or "")
    assert method._unconfirmed(diagnosed(audio=2.0, video=0.1), rows) is None


def diagnosed(**scores):
    """Return a diagnosis with these scores."""
    flagged = frozenset(name for name, score in scores.items() if score > 1)
    return Diagnosis(scores, {name: score - 1 for name, score in scores.items()}, flagged)


@pytest.mark.parametrize(
    ("scores", "vouched"),
    [
        ({"audio": 2.0}, [True, False]),
        ({"audio": 2.0, "video": 2.0}, [False, False]),
        ({"audio": 2.0, "video": 0.2}, [True, True]),
        ({"audio": 2.0, "video": 0.7}, [True, False]),
        ({"audio": 2.0, "video": 0.7, "depth": 0.7}, [True, True]),
        ({"audio": 2.0, "video": 2.0, "depth": 0.7}, [True, True]),
        ({"audio": 2.0, "video": 2.0, "depth": 2.0}, [False, False]),
    ],
)
def test_where_classes_are_few_a_healthy_modality_must_be_beyond_doubt(
    monkeypatch, scores, vouched
):
    monkeypatch.setattr(Triage, "fitted", True)
    method = dasp.adapt(Lopsided(), "triage").method
    for ordinary, expected in zip((True, False), vouched, strict=True):
        monkeypatch.setattr(Triage, "_state", lambda *_: None)
        monkeypatch.setattr(Triage, "_ordinary", lambda *_, found=ordinary: found)
        monkeypatch.setattr(Triage, "_sees_few", lambda *_, few=not ordinary: few)
        assert method._has_voucher(diagnosed(**scores), torch.zeros(0, 1)) == expected


@pytest.mark.parametrize("only", [None, 2])
def test_a_stream_in_no_order_vouches_for_a_treatment_for_a_while(monkeypatch, only):
    monkeypatch.setattr(Triage, "_unconfirmed", lambda *_: "nobody confirms it")
    tta = dasp.adapt(Lopsided(), "triage", learn=False)
    tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    source = dasp.adapt(Lopsided(), "source")

    def said(number):
        tokens, _ = lopsided_world(64, 10 + number, offset=6.0)
        tokens["video"] = tokens["video"] + 6.0 * (torch.arange(CLASSES) > 3)
        with tta.frozen():  # knows no earlier answers
            assert torch.equal(tta.on_tokens(tokens).logits, source.on_tokens(tokens).logits)
        return tta.on_tokens(tokens).skipped

    assert said(0) == "nobody confirms it"
    for number in range(2):
        tta.on_tokens(lopsided_world(64, 20 + number, only=only)[0])
    treated = ["treated" in said(number) for number in range(1, 5)]
    assert treated == ([True, True, False, False] if only is None else [False] * 4)
    tta.reset()
    assert said(5) == "nobody confirms it"


@pytest.mark.parametrize("only", [None, 2])
def test_the_only_sensor_that_is_present_is_treated_unless_it_sees_few_classes(monkeypatch, only):
    """Nobody can say whether one class is what there is, or what damage makes of all."""
    monkeypatch.setattr(Triage, "_harms", lambda *_: None)
    monkeypatch.setattr(Diagnoser, "_is_mixed", lambda *_: False)
    tta = dasp.adapt(Lopsided(), "triage", learn=False)
    tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    source = dasp.adapt(Lopsided(), "source")
    for number in range(4):
        tokens, labels = lopsided_world(64, 30 + number, offset=6.0, only=only)
        said = torch.nn.functional.one_hot(labels, CLASSES)[:, None]
        alone = {"audio": tokens["audio"] + 9 * said}
        out, answer = tta.on_tokens(alone), source.on_tokens(alone)
        assert out.diagnosis.biased == {"audio"}
        if only is None:
            assert "treated audio" in out.skipped
        else:
            assert "classes are few" in out.skipped
            assert torch.equal(out.logits, answer.logits)


def test_a_clean_batch_is_fused_once_by_each_sensor_and_once_by_all(monkeypatch):
    tta, calls = dasp.adapt(Lopsided(), "triage"), []
    tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    fuse = tta.method.fuse
    monkeypatch.setattr(tta.method, "fuse", lambda own: calls.append(tuple(own)) or fuse(own))
    assert not tta.on_tokens(lopsided_world(64, 1)[0]).diagnosis.biased
    assert calls == [("audio",), ("video",), ("audio", "video")]


@pytest.mark.parametrize("given_up", [None, "it harms"])
def test_adapted_tokens_are_those_of_the_prediction(monkeypatch, given_up):
    """A treatment is judged by the joint prediction of treated tokens in both."""
    tta, judged = dasp.adapt(Lopsided(), "triage", learn=False), []
    tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    monkeypatch.setattr(
        Triage, "_unconfirmed", lambda _, __, rows: judged.append(rows.clone()) or given_up
    )
    tokens, method = lopsided_world(64, 1, offset=8.0)[0], tta.method
    with torch.no_grad():
        method.predict(tokens)
        adapted = method.adapted_tokens(tokens)
    assert torch.equal(judged[0], judged[1])
    assert not torch.equal(
        method.condition.joint(judged[0]), method.condition.joint(judged[0], False)
    )
    assert all(torch.equal(adapted[n], own) for n, own in tokens.items()) == bool(given_up)


def test_nothing_is_learned_where_all_are_damaged_and_few_classes_are_seen(monkeypatch):
    tta = dasp.adapt(Lopsided(), "triage", lr=1e-2)
    tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    monkeypatch.setattr(Triage, "_unconfirmed", lambda *_: None)
    tokens, _ = lopsided_world(64, 1, offset=6.0)
    tokens["video"] = tokens["video"] + 6.0 * (torch.arange(CLASSES) > 3)
    monkeypatch.setattr(Triage, "_sees_few", lambda *_: True)
    assert "classes are few" in tta.on_tokens(tokens).skipped
    monkeypatch.setattr(Triage, "_sees_few", lambda *_: False)
    assert tta.on_tokens(tokens).updated


def test_a_condition_keeps_views_of_untreated_tokens_beside_those_of_treated_ones(monkeypatch):
    """Three modalities are damaged, and believed as they are treated; evidence needs both."""
    monkeypatch.setattr(Lopsided, "modalities", THREE)
    tta = dasp.adapt(Lopsided(), "triage", learn=False)
    tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    condition, answers = tta.method.condition, []
    for seed in range(1, 6):
        tokens, labels = lopsided_world(32, seed)
        tokens = {n: x + 6.0 * (torch.arange(CLASSES) > 3) for n, x in tokens.items()}
        out = tta.on_tokens(tokens)
        assert out.diagnosis.biased == set(THREE)
        answers.append((out.logits.argmax(dim=1) == labels).float().mean())
        alone = [tta.model.fuse({n: tokens[n]}).logits for n in THREE]
        expected = torch.stack(alone, dim=1) + tta.method.clean.bias
        kept = condition.views(condition.rows)[-32:]
        torch.testing.assert_close(kept, expected.log_softmax(dim=2).clamp(min=-50))
        assert not torch.equal(kept, condition.views(condition.rows, treated=True)[-32:])
    assert answers[-1] > answers[0]


@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize(("only", "size"), [(None, 64), (2, 64), (None, 12)])
def test_all_modalities_are_treated_only_if_they_confirm_each_other(only, size, learn):
    """Both favour some classes; samples of one class have another mean than the clean ones."""
    tta = dasp.adapt(Lopsided(), "triage", learn=learn)
    tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    tokens, labels = lopsided_world(size, 1, offset=6.0, only=only)
    tokens["video"] = tokens["video"] + 6.0 * (torch.arange(CLASSES) > 3)
    with tta.frozen():
        alone = tta.on_tokens(tokens)
    outcome, untreated = tta.on_tokens(tokens), dasp.adapt(Lopsided(), "source").on_tokens(tokens)
    torch.testing.assert_close(alone.logits, outcome.logits)
    assert outcome.diagnosis.biased == {"audio", "video"}
    if only is None and size > 16:
        right = [(found.logits.argmax(dim=1) == labels).sum() for found in (outcome, untreated)]
        assert right[0] >= right[1] + 10
    else:
        assert "no modality is healthy for sure" in outcome.skipped
        assert torch.equal(outcome.logits, untreated.logits)


def test_batches_of_one_class_are_not_harmed():
    """Whatever favours a class is right there: neither balance nor a mean of all classes helps."""
    source = dasp.adapt(Lopsided(), "source")
    flagged, right = 0, {"source": 0, "triage": 0}
    for only in range(CLASSES):
        tta = dasp.adapt(Lopsided(), "triage", learn=False)
        tta.fit_on_tokens([lopsided_world(256, 0)[0]])
        tokens, _ = lopsided_world(64, 20 + only, offset=5.0, only=only)
        out = tta.on_tokens(tokens)
        flagged += "audio" in out.diagnosis.biased
        for name, logits in (("triage", out.logits), ("source", source.on_tokens(tokens).logits)):
            right[name] += int((logits.argmax(dim=1) == only).sum())
    assert flagged > CLASSES / 2
    assert right["triage"] >= right["source"]


@pytest.mark.parametrize("modalities", [("audio", "video"), THREE])
@pytest.mark.parametrize("only", [None, 2])
def test_before_fit_nothing_is_treated_where_classes_are_few(monkeypatch, only, modalities):
    monkeypatch.setattr(Lopsided, "modalities", modalities)
    tta = dasp.adapt(Lopsided(), "triage", learn=False)
    diagnose = tta.method._diagnose

    def flag_audio(batch, remember):
        passes, found = diagnose(batch, remember)
        return passes, replace(found, biased=frozenset({"audio"}))

    monkeypatch.setattr(tta.method, "_diagnose", flag_audio)
    tokens, _ = lopsided_world(64, 3, offset=5.0, only=only)
    expected = dasp.adapt(Lopsided(), "source").on_tokens(tokens).logits
    with tta.frozen():
        asked = tta.on_tokens(tokens)
    out = tta.on_tokens(tokens)
    few = only is not None
    assert ("without fit()" in out.skipped) == few
    for answer in (asked, out):
        assert torch.equal(answer.logits, expected) == few


# Few classes beside sensors that tell little


def test_the_mix_of_unsure_predictions_is_found():
    """Their mean is near the usual mix, whatever the samples are."""
    generator = torch.Generator().manual_seed(0)
    usual = torch.full((CLASSES,), 1 / CLASSES)
    logits = torch.randn(400, CLASSES, generator=generator)
    logits[:, 2] += 1.0  # likelihoods of a class that are e times as large on average
    rows = logits.log_softmax(dim=1)
    found = class_mix(rows, usual)
    assert float(rows.exp().mean(dim=0)[2]) < 0.5
    assert float(found[2]) > 0.9
    assert float(found.sum()) == pytest.approx(1)


def test_the_mix_of_sure_predictions_is_their_mean():
    rows, _ = views(accuracy=(1.0,))
    rows = (10 * rows[:, 0]).log_softmax(dim=1)
    usual = torch.full((CLASSES,), 1 / CLASSES)
    torch.testing.assert_close(class_mix(rows, usual), rows.exp().mean(dim=0), atol=1e-4, rtol=0)


class Uneven(Lopsided):
    """The audio tells nearly all, the video little; none is lopsided."""

    def fuse(self, tokens):
        means = {name: value.mean(dim=1) for name, value in tokens.items()}
        logits = 4 * means.get("audio", 0) + 0.3 * means.get("video", 0)
        return dasp.Fused(logits, logits, None)


@pytest.mark.parametrize("only", range(CLASSES))
def test_a_good_sensor_that_is_only_stronger_is_left_alone_by_poor_ones(only):
    tta = dasp.adapt(Uneven(), "triage", learn=False)
    tta.fit_on_tokens([lopsided_world(256, 0)[0]])
    tokens, _ = lopsided_world(64, 40 + only, only=only)
    tokens["audio"] = 3 * tokens["audio"]
    out = tta.on_tokens(tokens)
    source = dasp.adapt(Uneven(), "source").on_tokens(tokens)
    right = [int((o.logits.argmax(dim=1) == only).sum()) for o in (source, out)]
    assert out.diagnosis.biased == {"audio"}
    assert "the source keeps" in out.skipped
    assert right[1] >= right[0]

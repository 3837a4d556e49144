"""Laws of the diagnosis: what it flags, and that the mix of classes is not damage."""

import math

import pytest
import torch

from dasp.core.errors import InputError
from dasp.core.types import Fused
from dasp.methods.diagnosis import (
    CAUTION,
    UNKNOWN,
    Diagnoser,
    Evidence,
    Expectation,
    agreed,
    directions,
    f_quantile,
    outside_of,
    roughness,
    shared_variance,
    summaries,
    sureness,
)

NAMES, CLASSES, WIDTH = ("audio", "video", "depth"), 6, 24


def world(count=64, seed=0, damaged=(), classes=None, names=NAMES, mistaken=(), share=1.0):
    """Samples whose tokens, embeddings and logits depend strongly on their class.

    Classes differ in the length of embeddings and in how sure the model is. Damage moves tokens in
    a direction of their own and makes predictions less sure. What is mistaken takes a share of the
    samples for ones of the first class, and looks as it does then.
    """
    generator = torch.Generator().manual_seed(seed)
    fixed = torch.Generator().manual_seed(77)
    allowed = torch.tensor(range(CLASSES) if classes is None else classes)
    labels = allowed[torch.randint(len(allowed), (count,), generator=generator)]
    tokens, alone = {}, {}
    true = labels
    for name in NAMES:
        labels = true.clone()
        if name in mistaken:
            labels[: int(share * count)] = 0
        patterns = torch.randn(CLASSES, WIDTH, generator=fixed)
        sure = torch.linspace(2, 6, CLASSES)[labels]
        length = torch.linspace(1, 3, CLASSES)[labels]
        noise = torch.randn(count, 5, WIDTH, generator=generator)
        own = patterns[labels][:, None] + noise
        logits = torch.randn(count, CLASSES, generator=generator)
        logits[torch.arange(count), labels] += sure
        if name in damaged:
            own, logits = own + 1.0 * torch.linspace(-1, 1, WIDTH), logits * 0.4
        embedding = torch.randn(count, WIDTH, generator=generator) * length[:, None]
        if name in names:
            tokens[name], alone[name] = own, Fused(embedding, logits)
    return tokens, alone


def fitted(queue=0, count=128, false_alarms=0.01):
    diagnoser = Diagnoser(NAMES, queue, false_alarms)
    tokens, alone = world(count, seed=9)
    diagnoser.fit(summaries(tokens), alone)
    return diagnoser


@pytest.fixture(scope="module")
def known():
    return fitted()


@pytest.mark.parametrize("damaged", [(), ("audio",), ("audio", "depth"), NAMES])
def test_any_number_of_modalities_can_be_flagged(known, damaged):
    found = known(*world(seed=1, damaged=damaged), remember=True)
    assert found.biased == set(damaged)
    assert set(found.scores) == set(found.probability) == set(NAMES)
    for name, sure in found.probability.items():
        assert (sure > sureness(1.0, clean=128)) == (name in damaged)


@pytest.mark.parametrize("classes", [[0], [CLASSES - 1], [0, 1], [4, 5]])
def test_the_mix_of_classes_is_not_damage(known, classes):
    """A comparison with the mean of all clean samples flags every one of these batches."""
    for seed in range(10):
        assert not known(*world(seed=seed, classes=classes), remember=False).biased
    found = known(*world(seed=3, classes=classes, damaged=("video",)), remember=False)
    assert "video" in found.biased


def test_clean_batches_are_seldom_flagged_at_any_size(known):
    for count in (1, 2, 8, 64, 256):
        flags = [known(*world(count, seed), remember=False).biased for seed in range(100, 130)]
        assert not any(flags)


def test_more_samples_give_more_evidence(known):
    few, many = (known(*world(n, 4, ("audio",)), remember=False).scores["audio"] for n in (4, 64))
    assert many > 2 * few


@pytest.mark.parametrize("count", [32, 64])
def test_few_clean_samples_are_enough_for_strong_damage(count):
    diagnoser = fitted(count=count)
    assert diagnoser(*world(seed=1, damaged=("audio",)), remember=False).biased == {"audio"}
    assert not any(diagnoser(*world(seed=s), remember=False).biased for s in range(20, 30))


def test_before_fit_nothing_is_flagged_and_nothing_is_said_of_probability():
    found = Diagnoser(NAMES, 8, 0.01)(*world(damaged=NAMES), remember=True)
    assert (found.biased, found.probability) == (frozenset(), {})


def test_single_samples_are_diagnosed_within_ten_of_a_change():
    diagnoser = fitted(queue=64)
    stream = [(seed, ()) for seed in range(40)] + [(seed, ("video",)) for seed in range(40, 80)]
    flags = [diagnoser(*world(1, seed, damaged), True).biased for seed, damaged in stream]
    assert not any(flags[:40])
    assert all(flag == {"video"} for flag in flags[50:])
    back = [diagnoser(*world(1, seed), True).biased for seed in range(80, 110)]
    assert not any(back[10:])


def test_what_is_not_remembered_or_frozen_does_not_count():
    one, other = fitted(queue=64), fitted(queue=64)
    one(*world(seed=2, damaged=NAMES), remember=False)
    assert one(*world(4, seed=3), True) == other(*world(4, seed=3), True)
    one.frozen = True
    assert one(*world(4, seed=5), False) == fitted()(*world(4, seed=5), False)


def test_a_modality_may_be_missing(known):
    found = known(*world(seed=1, damaged=("audio",), names=("audio", "video")), remember=False)
    assert (found.biased, set(found.scores)) == ({"audio"}, {"audio", "video"})
    assert known(*world(seed=1, damaged=("depth",), names=("depth",)), False).biased == {"depth"}
    queue = fitted(queue=64)
    queue(*world(8, seed=1, names=("audio",)), True)
    assert not queue(*world(8, seed=2), True).biased


def test_what_contradicts_two_others_cannot_speak_for_itself(known):
    """A gyroscope that is cut off looks like that of somebody who sits; the others see walking."""
    tokens, alone = world(seed=1, mistaken=("video",))
    own, given, contradiction = known._evidence(
        "video", NAMES, known._rows(summaries(tokens), alone)
    )
    assert own < 1 < min(given, contradiction)
    assert known(tokens, alone, remember=False).biased == {"video"}


def test_a_contradiction_is_explained_by_what_looks_most_suspicious(known):
    """Mild damage is flagged sooner if the prediction contradicts the other modality."""

    def scores(**changes):
        tokens, alone = world(seed=6, names=("audio", "video"), **changes)
        tokens["video"] = tokens["video"] + 0.5 * torch.linspace(-1, 1, WIDTH)
        return known(tokens, alone, remember=False).scores

    mild, both = scores(), scores(mistaken=("video",), share=0.3)
    assert mild["video"] < 1 < both["video"]
    assert both["audio"] < 1


def test_a_modality_needs_more_evidence_if_the_only_other_one_is_damaged():
    names, diagnoser = ("audio", "video"), Diagnoser(("audio", "video"), 0, 0.01)
    tokens, alone = world(128, seed=9, names=names)
    diagnoser.fit(summaries(tokens), alone)

    def flagged(by, damaged=()):
        tokens, alone = world(seed=6, names=names, damaged=damaged)
        tokens["video"] = tokens["video"] + by * torch.linspace(-1, 1, WIDTH)
        return diagnoser(tokens, alone, remember=False).biased

    assert flagged(0.6) == flagged(1.0) == {"video"}
    assert flagged(0.6, ("audio",)) == {"audio"}
    assert flagged(1.0, ("audio",)) == {"audio", "video"}


@pytest.mark.parametrize(
    ("video", "mixed", "flagged"),
    [
        (Evidence(own=2.5, given=0.2, contradiction=0.0), False, True),  # given what is damaged
        (Evidence(own=1.5, given=0.2, contradiction=0.0), False, False),
        (Evidence(own=1.2, given=1.5, contradiction=0.0), False, False),
        (Evidence(own=2.5, given=0.2, contradiction=0.0), True, False),  # in samples of its own
    ],
)
def test_a_damaged_modality_does_not_vouch_for_the_only_other_one(
    monkeypatch, video, mixed, flagged
):
    diagnoser = Diagnoser(("audio", "video"))
    found = {"audio": Evidence(own=9.0, given=9.0, contradiction=0.0), "video": video}
    monkeypatch.setattr(diagnoser, "_evidence", lambda name, names, seen: found[name])
    monkeypatch.setattr(diagnoser, "_stuck", lambda name, seen: 0.0)
    scores = diagnoser._scores(("audio", "video"), torch.empty(0), mixed)
    assert (scores["audio"], scores["video"] > 1) == (9.0, flagged)


@pytest.mark.parametrize("damaged", [(), ("audio",), ("audio", "d")])
def test_four_modalities(damaged):
    """What is flagged does not count among the others of the rest."""
    names = ("audio", "video", "depth", "d")

    def four(count, seed, damaged=()):
        tokens, alone = world(count, seed, damaged)
        more, seen = world(count, seed, ("audio",) if "d" in damaged else (), names=("audio",))
        return {**tokens, "d": more["audio"].roll(1, 2)}, {**alone, "d": seen["audio"]}

    diagnoser = Diagnoser(names, 0, 0.01)
    tokens, alone = four(128, 9)
    diagnoser.fit(summaries(tokens), alone)
    assert diagnoser(*four(64, 1, damaged), remember=False).biased == set(damaged)


def taken(tokens, alone, rows, names=NAMES):
    """Return these samples of some modalities, and the others as they are."""
    rows = torch.as_tensor(rows)
    tokens, alone = dict(tokens), dict(alone)
    for name in names:
        tokens[name] = tokens[name][rows]
        alone[name] = Fused(alone[name].embedding[rows], alone[name].logits[rows])
    return tokens, alone


@pytest.mark.parametrize(("last", "flagged"), [(12, {"audio"}), (8, set())])
def test_a_modality_that_repeats_itself_is_damaged(known, last, flagged):
    """A clean sample again and again is nothing unusual by any other sign."""
    rows = [*range(40 - last), *[40 - last] * last]
    found = known(*taken(*world(40, seed=1), rows, ["audio"]), remember=False)
    assert found.biased == flagged
    assert not flagged or found.scores["audio"] >= last / 8


def test_a_modality_that_repeats_itself_is_found_one_sample_at_a_time():
    diagnoser, (tokens, alone) = fitted(queue=128), world(60, seed=1)
    stuck = taken(tokens, alone, [*range(30), *[30] * 30], ["audio"])
    flagged = [diagnoser(*taken(*stuck, [place]), remember=True).biased for place in range(60)]
    assert not any("audio" in own for own in flagged[:30])
    assert all("audio" in own for own in flagged[38:])


def test_a_world_that_stands_still_is_no_damage(known):
    tokens, alone = taken(*world(1, seed=1), [0] * 40)
    rows = known._rows(summaries(tokens), alone)
    assert [known._stuck(name, rows) for name in NAMES] == [0, 0, 0]
    for name in ("video", "depth"):  # nobody is there to compare with
        del tokens[name], alone[name]
    assert known._stuck("audio", known._rows(summaries(tokens), alone)) == 0


def test_a_modality_that_repeats_itself_when_clean_may_do_so():
    diagnoser = Diagnoser(NAMES, 0)
    tokens, alone = taken(*world(128, seed=9), [*range(100), *[5] * 28], ["audio"])
    diagnoser.fit(summaries(tokens), alone)
    rows = diagnoser._rows(summaries(tokens), alone)
    assert diagnoser._stuck("audio", rows) == 0


def test_a_state_carries_all(known):
    other = Diagnoser(NAMES, 0, 0.01)
    for name, buffer in known.named_buffers():
        owner, _, last = name.rpartition(".")
        setattr(other.get_submodule(owner), last, buffer.clone())
    batch = world(16, seed=8, damaged=("depth",))
    assert other(*batch, remember=False) == known(*batch, remember=False)


def test_too_few_or_equal_clean_samples_are_refused():
    tokens, alone = world(5)
    with pytest.raises(InputError, match="5 clean samples: give 128, and at least 8"):
        Diagnoser(NAMES, 0, 0.01).fit(summaries(tokens), alone)
    tokens, alone = world(32)
    alone["video"] = Fused(torch.ones(32, WIDTH), alone["video"].logits)
    with pytest.raises(InputError, match="'video' are alike"):
        Diagnoser(NAMES, 0, 0.01).fit(summaries(tokens), alone)


def test_an_expectation_is_a_ridge_regression_with_its_uncertainty():
    """The dual form equals the primal one: (ZᵀZ + D)⁻¹ with Z = (1, mix)."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(40, 4, generator=generator).softmax(dim=1).double()
    rows = torch.randn(40, 4, generator=generator).double() + mix @ torch.ones(4, 4).double()
    own = Expectation(power=0)
    own.fit(rows, mix, mix)
    both = torch.cat([torch.ones(40, 1).double(), mix], dim=1)
    batch = mix[:5]
    shares = torch.cat([torch.ones(1).double(), batch.mean(dim=0)])
    distance, unsure, white = 0.0, [], rows[:5] @ own.whiten
    for place in range(4):
        prior = torch.tensor([1.0, *[1 / float(own.effect[place])] * 4]).double()
        spread = torch.linalg.inv(both.T @ both + prior.diag())
        weights = spread @ both.T @ (rows @ own.whiten)[:, place]
        gap = rows[:5].mean(dim=0) @ own.whiten[:, place] - shares @ weights
        unsure.append(float(shares @ spread @ shares))
        noise = max(float(batch.mean(dim=0) @ own.noise[:, place]), 0.5)
        seen = max(noise, (16 * noise + 4 * float(white[:, place].var())) / 20)
        variance = seen / 5 + noise * unsure[-1] + 0.5 * float(own.untold[place]) + 1 / 40
        distance += float(gap**2) / variance / 4
    limit = f_quantile(4, 4 / (CAUTION * sum(unsure)), 3.09)
    found = own.compare(rows[:5], batch, 0.5)
    assert found.distance(3.09) == pytest.approx(distance / limit, rel=1e-6)
    assert found.vague == pytest.approx(sum(unsure) / 4, rel=1e-6)


def test_ambiguous_predictions_of_others_are_a_kind_of_their_own():
    """A class that is always half of two others has features of its own, between neither's."""
    generator = torch.Generator().manual_seed(2)
    kinds = torch.tensor([[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0]]).double()
    kind = torch.arange(240) % 3
    means = torch.tensor([0.0, 0.0, 3.0]).double()
    rows = torch.randn(240, 4, generator=generator).double() + means[kind][:, None]
    linear, sharp = Expectation(power=0), Expectation(power=4)
    for own in (linear, sharp):
        own.fit(rows[:180], kinds[kind[:180]], kinds[kind[:180]])
    batch, mix = rows[180:][kind[180:] == 2], kinds[kind[180:]][kind[180:] == 2]
    assert linear.compare(batch, mix, 0).distance(2.33) > 2
    assert sharp.compare(batch, mix, 0).distance(2.33) < 1
    unknown = torch.tensor([[0, 0, 1.0]]).double().expand(64, -1)
    assert sharp.compare(batch, unknown[: len(batch)], 0).vague > UNKNOWN


def test_a_batch_whose_samples_differ_much_has_a_vaguer_mean():
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(128, 4, generator=generator).double()
    mix = torch.full((128, 2), 0.5).double()
    own = Expectation(power=0)
    own.fit(rows, mix, mix)
    batch = torch.randn(64, 4, generator=generator).double()
    alike, apart = (batch * by + 0.6 for by in (0.5, 3))
    alike, apart = (b - b.mean(dim=0) + 0.6 for b in (alike, apart))
    near, far = (own.compare(b, mix[:64], 0).distance(2.33) for b in (apart, alike))
    assert near < far / 2


def test_what_samples_of_a_class_have_in_common_is_found():
    """Residuals of variance 1, of which 0.3 are the same for all samples of a class."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(4000) % 400
    common = math.sqrt(0.3) * torch.randn(400, 2, generator=generator)
    common[:, 1] = 0
    noise = torch.randn(4000, 2, generator=generator) * torch.tensor([math.sqrt(0.7), 1.0])
    left = (common[labels] + noise).double()
    found = shared_variance(left, torch.nn.functional.one_hot(labels).double())
    assert found.tolist() == pytest.approx([0.3, 0.0], abs=0.04)


def test_tokens_that_differ_less_from_their_neighbours_are_damage(known):
    """A blur that neither embedding nor prediction nor mean token shows."""
    tokens, alone = world(64, seed=3)
    assert not known(tokens, alone, remember=False).biased
    mean = tokens["video"].mean(dim=1, keepdim=True)
    tokens["video"] = mean + 0.8 * (tokens["video"] - mean)
    assert known(tokens, alone, remember=False).biased == {"video"}


def test_fine_differences_between_neighbours_are_seen_beside_coarse_ones():
    """Blur of details that are a thousandth of what neighbouring tokens differ by."""
    size = torch.cat([torch.full((6,), 30.0), torch.ones(WIDTH - 6)])

    def scaled(by, **changes):
        tokens, alone = world(**changes)
        mean = tokens["video"].mean(dim=1, keepdim=True)
        tokens["video"] = mean + (tokens["video"] - mean) * torch.where(size > 1, 1.0, by)
        tokens["video"] *= size
        return tokens, alone

    diagnoser = Diagnoser(NAMES, 0, 0.01)
    tokens, alone = scaled(1.0, count=128, seed=9)
    diagnoser.fit(summaries(tokens), alone)
    assert not diagnoser(*scaled(1.0, seed=3), remember=False).biased
    assert diagnoser(*scaled(0.8, seed=3), remember=False).biased == {"video"}
    rough, fine = roughness(torch.tensor([[[3.0, 4.0]]]).double(), torch.eye(2, 1).double())
    assert (rough.exp(), fine.exp()) == (pytest.approx([5.0]), pytest.approx([4.0]))


def test_a_summary_has_the_mean_token_and_steps_between_neighbours():
    tokens = torch.arange(12.0).view(1, 6, 2).square()
    found = summaries({"audio": tokens})["audio"]
    assert torch.equal(found[:, 0], tokens.mean(dim=1).double())
    steps = found[:, 1:].unique(dim=1)
    assert torch.equal(steps, tokens.diff(dim=1).double())
    assert not summaries({"audio": tokens[:, :1]})["audio"][:, 1:].any()


def test_a_single_token_has_no_neighbours():
    diagnoser = Diagnoser(NAMES, 0, 0.01)
    tokens, alone = world(128, seed=9)
    diagnoser.fit(summaries(means_of(tokens)), alone)
    assert diagnoser.clean["audio"].given_own.varying.sum() == 3
    for damaged in ((), ("audio",)):
        tokens, alone = world(64, seed=3, damaged=damaged)
        found = diagnoser(means_of(tokens), alone, remember=False)
        assert found.biased == set(damaged)


def means_of(tokens):
    return {name: own.mean(dim=1, keepdim=True) for name, own in tokens.items()}


def test_distance_outside_of_a_plane():
    plane = (
        torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()
        @ torch.eye(3, 12).double()
    )
    centre, axes = directions(plane)
    away = plane[:4] + 2.0 * torch.eye(12).double()[9]
    assert outside_of(away, centre, axes).exp() == pytest.approx([2.0] * 4, abs=1e-6)
    assert outside_of(plane, centre, axes).max() < math.log(1e-5)


@pytest.mark.parametrize(("second", "printed"), [(8, 15.83), (20, 8.10), (120, 5.78)])
def test_the_limit_is_a_quantile_of_f(second, printed):
    """As printed in tables, at 0.999 with three degrees of freedom."""
    assert f_quantile(3, second, 3.0902) == pytest.approx(printed, rel=0.1)


def test_two_that_contradict_each_other_agree_on_nothing():
    one, other = torch.tensor([[0.9, 0.1]]).double(), torch.tensor([[0.1, 0.9]]).double()
    assert agreed([one, other])[0] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("clean", [8, 32, 128, 512])
def test_sureness_rises_with_the_score_and_is_above_half_where_it_is_flagged(clean):
    values = [sureness(score, clean) for score in (0.0, 0.1, 1.0, 10.0, 1e9)]
    assert values == sorted(values)
    assert values[0] >= 0
    assert values[2] > 0.5
    assert values[-1] <= 1


def test_the_same_score_tells_more_with_fewer_clean_samples():
    values = [sureness(1.0, clean) for clean in (512, 128, 32)]
    assert values == sorted(set(values))
    assert sureness(1.0, 32) == sureness(1.0, 8)
    assert sureness(1.0, 512) == sureness(1.0, 1000)

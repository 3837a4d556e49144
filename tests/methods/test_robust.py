"""Our own method: its diagnosis against clean samples, its loss, its guard, and all together."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dasp
from dasp.core.errors import ContractError, InputError, OptionError
from dasp.core.types import Fused, Step
from dasp.methods.dasp import diversity, redundancy
from dasp.methods.robust import CollapseGuard, Robust, divergence_from_mix, healthy_mix
from dasp.methods.robust_diagnosis import (
    CleanProfile,
    ProfileDiagnoser,
    profile,
    without_noise_floor,
)
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld


@pytest.fixture
def clean():
    return [SyntheticWorld().draw(64, seed=5).inputs]


def robust(model=None, **options):
    return dasp.adapt(model or Toy(seed=1), "robust", lr=1e-2, **options)


def test_with_its_own_parts_off_it_is_dasp(batches):
    off = {"score": "cosine", "level": "lowest", "queue": 0, "label_mix": "even",
           "lambda_kl_biased": 0.0, "full_batch": 0, "collapse_guard": False}  # fmt: skip
    ours = robust(delta=1e-6, **off)
    theirs = dasp.adapt(Toy(seed=1), "dasp", lr=1e-2, delta=1e-6)
    for batch in batches * 2:
        one, other = ours(batch), theirs(batch)
        assert torch.equal(one.logits, other.logits)
        assert (one.diagnosis, one.loss) == (other.diagnosis, other.loss)


def test_fit_survives_reset_and_state_and_a_stream_goes_on_from_it(batches, clean):
    tta = robust()
    tta.fit(clean)
    assert tta.method.diagnoser.fitted
    first = [tta(batch).logits for batch in batches]
    tta.reset()
    assert tta.method.diagnoser.fitted
    assert all(torch.equal(a, tta(b).logits) for a, b in zip(first, batches, strict=True))
    other = robust()
    other.load_state(tta.state())
    for batch in batches:
        assert torch.equal(tta(batch).logits, other(batch).logits)


def test_fit_says_why_it_does_nothing(clean):
    with pytest.raises(ContractError, match="does not use source data"):
        dasp.adapt(Toy(), "dasp").fit(clean)
    tta = robust()
    with pytest.raises(ContractError, match="no clean samples of audio, video"):
        tta.fit([])
    assert not tta.method.diagnoser.fitted


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (lambda b: b, "put a single batch into a list"),
        (lambda b: None, "not NoneType"),
        (lambda b: [(b, torch.zeros(64))], "not tuple: leave the labels out"),
        (lambda b: [{"audio": b["audio"]}], "lack video"),
        (lambda b: [b | {"sound": b["audio"]}], "unknown modality 'sound'"),
        (lambda b: [b | {"audio": b["audio"] * torch.nan}], "must be finite: NaN or Inf in audio"),
        (lambda b: [{n: v[:1].expand(64, -1, -1) for n, v in b.items()}], "'audio' are alike"),
        (lambda b: [{n: v[:3] for n, v in b.items()}], "3 clean samples, which is too few"),
    ],
)
def test_clean_samples_that_would_spoil_the_diagnosis_are_refused(source, said, clean, batches):
    tta = robust()
    tta.fit(clean)
    before = [tta(batch).diagnosis for batch in batches]
    tta.reset()
    with pytest.raises(InputError, match=said):
        tta.fit(source(dict(clean[0])))
    assert [tta(batch).diagnosis for batch in batches] == before


def test_the_label_mix_is_that_of_unbiased_modalities_or_of_all():
    sure = {name: torch.eye(3)[[place] * 4] * 50 for place, name in enumerate(("a", "b"))}
    alone = {name: Fused(torch.zeros(4, 2), logits) for name, logits in sure.items()}
    assert healthy_mix(alone, {"b"}).mean(dim=0).tolist() == pytest.approx([1, 0, 0])
    for biased in ((), ("a", "b")):
        assert healthy_mix(alone, biased).mean(dim=0).tolist() == pytest.approx([0.5, 0.5, 0])


def test_diversity_towards_a_target_is_a_divergence():
    logits = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    even = torch.full((4,), 0.25)
    plain = diversity(logits) + torch.tensor(4.0).log()
    torch.testing.assert_close(divergence_from_mix(logits, even), plain)
    own = logits.softmax(dim=1).mean(dim=0)
    wanted = 2 * own - even  # half of it and half even is the batch's own mix
    assert float(divergence_from_mix(logits, wanted)) == pytest.approx(0, abs=1e-6)
    assert float(divergence_from_mix(logits, torch.eye(4)[0])) > 0


def test_a_small_batch_moves_the_weights_less(batches):
    """Adam's first step has the length of the learning rate."""
    sizes = {}
    for count in (4, 16):
        tta = robust(score="cosine", level="lowest", delta=1e-9, full_batch=16, queue=0)
        outcome = tta({name: value[:count] for name, value in batches[1].items()})
        assert outcome.updated
        moved = [
            (value.detach() - tta.source.tensors[f"weight/{name}"]).abs().max()
            for name, value in tta.memory.weights.items()
        ]
        sizes[count] = float(max(moved))
    assert sizes[4] == pytest.approx(sizes[16] / 2, rel=0.01)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("queue", -1), ("queue", 1.5), ("full_batch", True), ("level", "mine"),
        ("label_mix", ""), ("collapse_guard", 1), ("lambda_kl_biased", -0.1),
        ("false_alarms", 0), ("false_alarms", 1), ("score", "mine"),
    ],
)  # fmt: skip
def test_impossible_options_are_named(option, wrong):
    with pytest.raises(OptionError, match=f"^{option} "):
        dasp.adapt(Toy(), "robust", **{option: wrong})


def draw(count, seed=0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, generator=generator) * torch.tensor([0.1, 0.7]) + shift


def profile_of(rows):
    clean = CleanProfile()
    clean.fit(rows)
    return clean


def test_a_profile_belongs_to_its_sample():
    generator = torch.Generator().manual_seed(0)
    embedding, logits = (torch.randn(9, width, generator=generator) for width in (6, 4))
    order = torch.randperm(9, generator=generator)
    own = profile(Fused(embedding, logits))
    assert torch.equal(profile(Fused(embedding[order], logits[order])), own[order])
    doubled = profile(Fused(2 * embedding, logits)) - own
    torch.testing.assert_close(doubled[:, 0], torch.full((9,), 2.0).log())
    assert not doubled[:, 1].any()


@pytest.mark.parametrize("count", [1, 8, 64, 500])
def test_clean_rows_exceed_the_limit_about_as_often_as_said(count):
    clean = profile_of(draw(128, seed=1))
    limit = -2 * torch.tensor(0.05).log()
    far = [bool(clean.distance(draw(count, seed=100 + i)) > limit) for i in range(400)]
    # Rows share one reference, so the share scatters around 5% by more than its own chance.
    assert 0.0 <= sum(far) / 400 < 0.15
    shifted = draw(count, seed=3, shift=torch.tensor([0.4, 2.8]))
    assert clean.distance(shifted) > 13.8


def test_more_clean_samples_than_needed_do_not_sharpen_the_test():
    clean, scores = CleanProfile(), []
    for count in (128, 4096):
        clean.count.fill_(count)
        scores.append(float(clean.distance(torch.tensor([[0.05, 0.1]]).expand(64, 2))))
    assert scores[0] == scores[1]


def test_a_change_drops_what_came_before_and_chance_does_not():
    clean = profile_of(draw(128, seed=1))
    same = draw(40, seed=2)
    assert torch.equal(clean.since_change(same, 8, 13.8), same)
    changed = torch.cat([same, draw(8, seed=3, shift=torch.tensor([0.5, 3.0]))])
    assert torch.equal(clean.since_change(changed, 8, 13.8), changed[-8:])
    assert torch.equal(clean.since_change(changed[-6:], 1, 13.8), changed[-6:])


def test_a_model_equally_sure_of_all_has_a_finite_distance():
    clean = profile_of(torch.ones(32, 2))
    assert clean.distance(torch.ones(8, 2)) == 0
    assert clean.distance(torch.zeros(8, 2)).isfinite()


NAMES = ("audio", "video", "depth")
DELTA = 0.05


def unfitted(**changes):
    usual = {"score": "profile", "level": "own", "queue": 0, "false_alarms": 0.001}
    return ProfileDiagnoser(NAMES, **usual | changes)


def alone(count=64, seed=0, shifted=(), names=NAMES):
    """What a model makes of each modality; a shift adds a common direction and dims the logits."""
    found = {}
    for place, name in enumerate(names):
        generator = torch.Generator().manual_seed(1000 * seed + place)
        embedding = torch.randn(count, 16, generator=generator)
        logits = 3 * torch.randn(count, 5, generator=generator)
        if name in shifted:
            embedding, logits = embedding + 2.0, logits * 0.2
        found[name] = Fused(embedding, logits)
    return found


def fitted(**changes):
    diagnoser = unfitted(**changes)
    diagnoser.fit(alone(128, seed=9))
    return diagnoser


@pytest.mark.parametrize("score", ["profile", "cosine"])
@pytest.mark.parametrize("shifted", [(), ("audio",), ("audio", "depth"), NAMES])
def test_any_number_of_modalities_can_be_flagged(score, shifted):
    found = fitted(score=score)(alone(seed=1, shifted=shifted), DELTA, remember=True)
    assert found.biased == set(shifted)
    assert set(found.scores) == set(NAMES)


def test_the_lowest_level_can_never_flag_all():
    diagnoser = unfitted(score="cosine", level="lowest")
    assert diagnoser(alone(shifted=NAMES), DELTA, True).biased < set(NAMES)
    assert not diagnoser.uses_source


def test_without_clean_samples_the_lowest_so_far_or_of_the_others_is_the_level():
    diagnoser = unfitted()
    assert not diagnoser(alone(seed=1), DELTA, True).biased
    assert diagnoser(alone(seed=2, shifted=NAMES), DELTA, True).biased == set(NAMES)
    assert unfitted()(alone(seed=1, shifted=("video",)), DELTA, True).biased == {"video"}


def test_single_samples_are_diagnosed_with_a_queue_and_a_change_is_seen():
    diagnoser = fitted(queue=32)
    stream = [(seed, ()) for seed in range(40)] + [(seed, ("video",)) for seed in range(40, 80)]
    flags = [diagnoser(alone(1, seed, shifted), DELTA, True).biased for seed, shifted in stream]
    assert not any(flags[:40])
    assert all(flag == {"video"} for flag in flags[52:])
    back = [diagnoser(alone(1, seed), DELTA, True).biased for seed in range(80, 110)]
    assert not any(back[12:])


@given(st.integers(3, 200))
@settings(max_examples=15)
def test_independent_dimensions_have_no_corrected_correlation_at_any_size(rows):
    generator = torch.Generator().manual_seed(rows)
    drawn = {place: torch.randn(rows, 48, generator=generator) for place in range(8)}
    scores = redundancy(drawn, "correlation", "own").values()
    values = [without_noise_floor(float(score), rows) for score in scores]
    assert abs(sum(values) / 8) < (0.03 if rows > 4 else 0.1)
    assert without_noise_floor(1.0, rows) == 1.0


CLASSES = 8


def spread(seed):
    """Logits of 64 samples that see all classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (64,), generator=generator)
    return 4 * nn.functional.one_hot(labels, CLASSES).float()


def one_class():
    logits = torch.zeros(64, CLASSES)
    logits[:, 3] = 9.0
    return logits


@pytest.fixture
def weights():
    return [nn.Parameter(torch.zeros(3))]


@pytest.fixture
def guard(weights):
    """A guard that has seen 17 good batches, and kept the first and the last one's weights."""
    guard = CollapseGuard(CLASSES, weights)
    for seed in range(17):
        weights[0].data.fill_(float(seed))
        assert guard.judge(spread(seed), spread(seed).softmax(1), weights) is None
    return guard


def test_predictions_in_one_class_are_taken_back(guard, weights):
    weights[0].data.fill_(77.0)
    whys = [guard.judge(one_class(), spread(i).softmax(1), weights) for i in range(6)]
    assert "classes" in next(filter(None, whys))
    guard.give_back(weights)
    assert weights[0].tolist() == [16.0] * 3


def test_a_stream_of_one_class_is_no_collapse(guard, weights):
    """The single modalities see one class, too."""
    assert all(guard.judge(one_class(), one_class().softmax(1), weights) is None for _ in range(40))


class Falls(Robust):
    """Its guard speaks at the third batch."""

    def step(self, batch):
        step = super().step(batch)
        if int(self.guard.age) == 3 and step.rollback is None:
            return Step(step.logits, diagnosis=step.diagnosis, rollback="it fell")
        return step


def test_the_loop_returns_to_good_weights_predicts_with_them_and_says_so(batches):
    options = {"score": "cosine", "level": "lowest", "delta": 1e-6, "lr": 1e-2}
    tta = dasp.adapt(Toy(seed=1), Falls, **options)
    source = {name: value.clone() for name, value in tta.memory.weights.items()}
    outcomes = [tta(batch) for batch in batches[1:3] + batches[1:2]]
    assert [outcome.rollback for outcome in outcomes] == [None, None, "it fell"]
    assert not outcomes[-1].updated
    assert tta.counters["rollbacks"] == 1
    # The first batch's weights, those of the source, were the last good ones.
    assert all(torch.equal(value, source[name]) for name, value in tta.memory.weights.items())
    fresh = dasp.adapt(Toy(seed=1), "robust", **options)
    with fresh.frozen():
        assert torch.equal(fresh(batches[1]).logits, outcomes[-1].logits)


def test_a_method_without_good_weights_says_so():
    with pytest.raises(ContractError, match="Source keeps no good weights"):
        dasp.adapt(Toy(), "source").method.roll_back()

"""The diagnosis: own levels, the queue, profiles, and what is remembered when."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.core.types import Fused
from dasp.methods.diagnosis import Diagnoser, Rules, without_noise_floor
from dasp.methods.redundancy import paper_redundancy

NAMES = ("audio", "video", "depth")
DELTA = 0.05


def rules(**changes):
    usual = {
        "score": "profile",
        "dimension_filter": "joint",
        "threshold": "above",
        "level": "own",
        "queue": 0,
        "false_alarms": 0.001,
    }
    return Rules(**usual | changes)


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
    diagnoser = Diagnoser(NAMES, rules(**changes))
    diagnoser.fit(alone(128, seed=9))
    return diagnoser


@pytest.mark.parametrize("score", ["profile", "cosine"])
@pytest.mark.parametrize("shifted", [(), ("audio",), ("audio", "depth"), NAMES])
def test_any_number_of_modalities_can_be_flagged(score, shifted):
    found = fitted(score=score)(alone(seed=1, shifted=shifted), DELTA, remember=True)
    assert found.biased == set(shifted)
    assert set(found.scores) == set(NAMES)


def test_the_lowest_level_can_never_flag_all():
    diagnoser = Diagnoser(NAMES, rules(score="cosine", level="lowest"))
    assert diagnoser(alone(shifted=NAMES), DELTA, True).biased < set(NAMES)
    assert not diagnoser.takes_source


def test_without_clean_samples_the_lowest_so_far_is_the_level():
    diagnoser = Diagnoser(NAMES, rules())
    assert not diagnoser(alone(seed=1), DELTA, True).biased
    assert diagnoser(alone(seed=2, shifted=NAMES), DELTA, True).biased == set(NAMES)


def test_a_stream_damaged_from_the_start_is_seen_against_the_other_modalities():
    diagnoser = Diagnoser(NAMES, rules())
    assert diagnoser(alone(seed=1, shifted=("video",)), DELTA, True).biased == {"video"}


def test_single_samples_are_diagnosed_with_a_queue_and_a_change_is_seen():
    diagnoser = fitted(queue=32)
    stream = [(seed, ()) for seed in range(40)] + [(seed, ("video",)) for seed in range(40, 80)]
    flags = [diagnoser(alone(1, seed, shifted), DELTA, True).biased for seed, shifted in stream]
    assert not any(flags[:40])
    assert all(flag == {"video"} for flag in flags[52:])
    back = [diagnoser(alone(1, seed), DELTA, True).biased for seed in range(80, 110)]
    assert not any(back[12:])


def test_looking_without_remembering_changes_nothing():
    diagnoser = fitted(queue=32)
    diagnoser(alone(8, 1), DELTA, True)
    before = {name: value.clone() for name, value in diagnoser.named_buffers()}
    found = [diagnoser(alone(4, 2, NAMES), DELTA, False) for _ in range(2)]
    assert found[0] == found[1]
    after = dict(diagnoser.named_buffers())
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_missing_modality_has_no_score_and_keeps_its_queue():
    diagnoser = fitted(queue=16)
    diagnoser(alone(8, 1), DELTA, True)
    kept = diagnoser.recent["depth"].rows.clone()
    found = diagnoser(alone(8, 2, names=NAMES[:2]), DELTA, True)
    assert set(found.scores) == set(NAMES[:2])
    assert torch.equal(diagnoser.recent["depth"].rows, kept)


@given(st.integers(3, 200))
@settings(max_examples=15, deadline=None)
def test_independent_dimensions_have_no_corrected_correlation_at_any_size(rows):
    generator = torch.Generator().manual_seed(rows)
    values = [
        without_noise_floor(
            float(paper_redundancy(torch.randn(rows, 48, generator=generator))), rows
        )
        for _ in range(8)
    ]
    assert abs(sum(values) / 8) < 0.03 if rows > 4 else abs(sum(values) / 8) < 0.1


def test_the_label_mix_moves_the_redundancy_and_not_the_profile():
    """Two classes, opposite each other: their mixture has no mean, rows of one class have."""
    generator = torch.Generator().manual_seed(5)

    def of_class(label, count):
        centre = torch.full((16,), 2.0 if label == 0 else -2.0)
        logits = torch.randn(count, 5, generator=generator)
        logits[:, label] += 4
        return Fused(centre + torch.randn(count, 16, generator=generator), logits)

    def both(count):
        parts = [of_class(label, count // 2) for label in (0, 1)]
        order = torch.randperm(count, generator=generator)
        embedding = torch.cat([part.embedding for part in parts])[order]
        return Fused(embedding, torch.cat([part.logits for part in parts])[order])

    diagnoser = Diagnoser(("audio",), rules())
    diagnoser.fit({"audio": both(256)})
    assert not diagnoser({"audio": of_class(0, 64)}, DELTA, True).biased
    shares = [
        float(rows.mean(dim=0).square().sum() / rows.square().sum(dim=1).mean())
        for rows in (both(64).embedding, of_class(0, 64).embedding)
    ]
    assert shares[0] < 0.1
    assert shares[1] > 0.5  # what a statistic of the batch would see

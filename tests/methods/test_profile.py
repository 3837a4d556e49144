"""Profiles of samples: what they do not depend on, and what the distance says of clean rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.core.errors import InputError
from dasp.core.types import Fused
from dasp.methods.profile import CleanProfile, profile


def draw(count, seed=0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, generator=generator) * torch.tensor([0.1, 0.7]) + shift


@given(st.integers(0, 99), st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_a_profile_belongs_to_its_sample(seed, count):
    generator = torch.Generator().manual_seed(seed)
    alone = Fused(
        torch.randn(count, 6, generator=generator), torch.randn(count, 4, generator=generator)
    )
    order = torch.randperm(count, generator=generator)
    shuffled = Fused(alone.embedding[order], alone.logits[order])
    assert torch.equal(profile(shuffled), profile(alone)[order])
    doubled = profile(Fused(2 * alone.embedding, alone.logits)) - profile(alone)
    torch.testing.assert_close(doubled[:, 0], torch.full((count,), 2.0).log())
    assert not doubled[:, 1].any()


def test_an_embedding_of_zeros_has_a_finite_profile():
    assert profile(Fused(torch.zeros(2, 3), torch.zeros(2, 4))).isfinite().all()


@pytest.mark.parametrize("count", [1, 8, 64, 500])
def test_clean_rows_exceed_the_limit_about_as_often_as_said(count):
    clean = CleanProfile()
    clean.fit(draw(128, seed=1))
    limit = -2 * torch.tensor(0.05).log()
    far = [bool(clean.distance(draw(count, seed=100 + i)) > limit) for i in range(400)]
    # Rows share one reference, so the share scatters around 5% by more than its own chance.
    assert 0.0 <= sum(far) / 400 < 0.15
    shifted = draw(count, seed=3, shift=torch.tensor([0.4, 2.8]))
    assert clean.distance(shifted) > 13.8


def test_more_clean_samples_than_needed_do_not_sharpen_the_test():
    rows = torch.tensor([[0.05, 0.1]]).expand(64, 2)
    scores = []
    for count in (128, 4096):
        clean = CleanProfile()
        clean.fit(draw(count, seed=1))
        clean.mean.zero_()
        clean.precision.copy_(torch.eye(2))
        scores.append(float(clean.distance(rows)))
    assert scores[0] == scores[1]


def test_a_change_drops_what_came_before_and_chance_does_not():
    clean = CleanProfile()
    clean.fit(draw(128, seed=1))
    same = draw(40, seed=2)
    assert torch.equal(clean.since_change(same, 8, 13.8), same)
    changed = torch.cat([same, draw(8, seed=3, shift=torch.tensor([0.5, 3.0]))])
    assert torch.equal(clean.since_change(changed, 8, 13.8), changed[-8:])
    assert torch.equal(clean.since_change(changed[-6:], 1, 13.8), changed[-6:])


def test_too_few_samples_are_refused():
    with pytest.raises(InputError, match="4 clean samples are too few"):
        CleanProfile().fit(draw(4))


def test_a_model_equally_sure_of_all_has_a_finite_distance():
    clean = CleanProfile()
    clean.fit(torch.ones(32, 2))
    assert clean.distance(torch.ones(8, 2)) == 0
    assert clean.distance(torch.zeros(8, 2)).isfinite()

"""Each statistic is what it says, whatever the order of the samples."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.types import Fused
from dasp.methods.batch_statistics import (
    disagreement,
    effective_rank,
    mean_distance,
    mean_share,
    nearest_clean,
    profile_distance,
    spread_ratio,
)
from dasp.methods.diagnosis import without_noise_floor
from dasp.methods.redundancy import paper_redundancy


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def average(value, draws=200):
    return float(torch.stack([value(seed) for seed in range(draws)]).mean())


@given(st.integers(1, 20), st.integers(1, 12), st.floats(0, 50), st.integers(0, 99))
def test_the_mean_share_is_a_share(rows, dims, shift, seed):
    assert 0 <= float(mean_share(normal(seed, rows, dims) + shift)) <= 1 + 1e-6


def test_the_mean_share_at_its_ends():
    rows = normal(0, 8, 5)
    assert mean_share(rows - rows.mean(0)) < 1e-10
    assert mean_share(rows[:1].expand(4, 5)) == pytest.approx(1.0)
    assert mean_share(torch.zeros(4, 5)) == 0


@pytest.mark.parametrize("rows", [4, 16, 64])
def test_clean_batches_have_no_distance_whatever_their_size(rows):
    clean = normal(0, 4000, 12) * torch.arange(1, 13)
    draws = torch.Generator().manual_seed(1)
    batches = [clean[torch.randperm(4000, generator=draws)[:rows]] for _ in range(200)]
    for statistic in (mean_distance, spread_ratio):
        assert abs(average(lambda seed, f=statistic: f(batches[seed], clean))) < 0.03


@pytest.mark.parametrize("rows", [4, 16, 64])
def test_a_shift_has_its_own_distance_whatever_the_size(rows):
    clean = normal(0, 4000, 12)
    found = average(lambda seed: mean_distance(normal(seed + 1, rows, 12) + 0.5, clean))
    assert found == pytest.approx(0.25, abs=0.03)
    found = average(lambda seed: spread_ratio(2 * normal(seed + 1, rows, 12), clean))
    assert found == pytest.approx(3.0, abs=0.3)


@pytest.mark.parametrize("rows", [3, 8, 64])
def test_independent_dimensions_are_not_redundant_at_any_size(rows):
    def corrected(seed):
        found = float(paper_redundancy(normal(seed, rows, 24)))
        return torch.tensor(without_noise_floor(found, rows))

    assert abs(average(corrected)) < 0.01


def test_a_single_sample_has_neither_distance_nor_spread():
    one, clean = normal(1, 1, 6), normal(0, 50, 6)
    assert mean_distance(one, clean) == spread_ratio(one, clean) == 0
    assert effective_rank(one) == 1


@given(st.integers(2, 30), st.integers(1, 12), st.integers(0, 99))
def test_the_effective_rank_lies_between_its_ends(rows, dims, seed):
    found = float(effective_rank(normal(seed, rows, dims)))
    assert 1 - 1e-4 <= found <= min(rows - 1, dims) + 1e-3


def test_the_effective_rank_counts_directions():
    basis = torch.eye(6)[:3]
    rows = torch.cat([basis, -basis])
    assert effective_rank(rows) == pytest.approx(3.0, rel=1e-4)
    assert effective_rank(rows.repeat(5, 1)) == pytest.approx(3.0, rel=1e-4)
    assert effective_rank(torch.ones(4, 6)) == 1


def test_a_clean_sample_is_not_its_own_neighbour():
    clean = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])
    alone = nearest_clean(clean[:1], clean)
    assert alone == pytest.approx(float((clean[2] / clean[2].norm() - clean[0]).norm()), rel=1e-4)
    assert nearest_clean(3 * clean[:1], clean) == alone


def test_disagreement_counts_classes():
    logits = torch.eye(4)
    assert disagreement(logits, logits) == 0
    assert disagreement(logits, logits[[0, 1, 3, 2]]) == 0.5


def seen(seed, rows, norm=1.0, sharp=1.0):
    return Fused(norm * normal(seed, rows, 8), sharp * normal(seed + 1000, rows, 5))


@pytest.mark.parametrize("change", [{"norm": 1.6}, {"norm": 0.6}, {"sharp": 3.0}, {"sharp": 0.3}])
def test_the_profile_sees_norm_and_entropy_both_ways(change):
    clean, usual = seen(0, 200), profile_distance(seen(1, 64), seen(0, 200))
    assert profile_distance(seen(1, 64, **change), clean) > 10 * max(float(usual), 1.0)

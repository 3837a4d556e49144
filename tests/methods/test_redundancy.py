"""The redundancy scores against numpy and the paper's theorem."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.methods.dasp import diagnose, redundancy


def paper_redundancy(embedding):
    return redundancy({"it": embedding}, "correlation", "own")["it"]


def released_redundancy(embeddings):
    return redundancy(embeddings, "cosine", "joint")


def paper_in_numpy(z):
    z = z[:, z.var(axis=0) > 1e-8]
    d = z.shape[1]
    if d < 2:
        return 0.0
    squares = np.corrcoef(z, rowvar=False) ** 2
    return (squares.sum() - d) / (d * (d - 1))


def released_in_numpy(parts):
    spread = np.concatenate(parts).std(axis=0, ddof=1)
    keep = spread > 0.05 * spread.max()
    scores = []
    for z in parts:
        z = z[:, keep]
        unit = z / np.linalg.norm(z, axis=0)
        d = z.shape[1]
        cosines = unit.T @ unit
        scores.append(math.sqrt(((cosines**2).sum() - d) / (d * (d - 1))))
    return scores


@pytest.mark.parametrize(("rows", "dims"), [(2, 5), (8, 40), (64, 16), (200, 3)])
def test_scores_agree_with_numpy(rows, dims):
    rng = np.random.default_rng(rows)
    parts = [rng.normal(1.0, 2.0, (rows, dims)) for _ in range(3)]
    tensors = {str(i): torch.from_numpy(z) for i, z in enumerate(parts)}
    for z in parts:
        expected = paper_in_numpy(z)
        assert float(paper_redundancy(torch.from_numpy(z))) == pytest.approx(expected, abs=1e-6)
    found = released_redundancy(tensors)
    for i, expected in enumerate(released_in_numpy(parts)):
        assert float(found[str(i)]) == pytest.approx(expected, abs=1e-6)


def whitened(rows, dims, seed):
    """Features whose sample correlations vanish, and a shift that is uncorrelated with them."""
    noise = torch.randn(rows, dims + 1, generator=torch.Generator().manual_seed(seed)).double()
    columns, _ = torch.linalg.qr(noise - noise.mean(dim=0))
    columns = columns * math.sqrt(rows)
    return columns[:, :-1], columns[:, -1:]


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.floats(-3, 3), min_size=3, max_size=12),
    st.lists(st.floats(0.3, 1.5), min_size=1, max_size=4),
)
def test_a_rank_one_shift_raises_both_scores_with_its_variance(seed, direction, increments):
    """The theorem of the paper's appendix."""
    v = torch.tensor(direction, dtype=torch.float64)
    v[:2] += torch.where(v[:2] >= 0, 0.5, -0.5)  # non-sparse: at least two entries off zero
    z, alpha = whitened(64, len(direction), seed)
    clean = float(paper_redundancy(z))
    assert clean == pytest.approx(0, abs=1e-6)
    last = {"paper": clean, "released": float(released_redundancy({"m": z, "n": z})["m"])}
    sigma = 0.0
    for increment in increments:
        sigma += increment
        shifted = z + sigma * alpha * v
        now = {
            "paper": float(paper_redundancy(shifted)),
            "released": float(released_redundancy({"m": shifted, "n": z})["m"]),
        }
        assert all(now[form] > last[form] for form in now)
        last = now


def test_paper_score_leaves_out_constant_dimensions():
    z = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([z, torch.full((32, 4), 3.0), z[:, :1] * 1e-6], dim=1)
    assert float(paper_redundancy(padded)) == pytest.approx(float(paper_redundancy(z)), abs=1e-6)


def test_released_score_filters_by_the_spread_of_all_modalities_together():
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(16, 5, generator=rng), torch.randn(16, 5, generator=rng)
    quiet = 0.01 * torch.randn(32, 3, generator=rng)  # spread far below 5% of the largest
    wide = {"a": torch.cat([a, quiet[:16]], 1), "b": torch.cat([b, quiet[16:]], 1)}
    plain = released_redundancy({"a": a, "b": b})
    for name, score in released_redundancy(wide).items():
        assert float(score) == pytest.approx(float(plain[name]), abs=1e-6)
    # A dimension constant within each modality but different between them is kept.
    offset = {"a": torch.cat([a, torch.ones(16, 1)], 1), "b": torch.cat([b, -torch.ones(16, 1)], 1)}
    assert float(released_redundancy(offset)["a"]) != pytest.approx(float(plain["a"]), abs=1e-4)


@pytest.mark.parametrize(
    ("draw", "released"),
    [
        (lambda: torch.ones(8, 4), 0.0),
        (lambda: torch.randn(8, 1), 0.0),
        (lambda: torch.randn(1, 8), 1.0),
    ],
)
def test_scores_without_two_dimensions_or_two_samples(draw, released):
    scores = released_redundancy({"a": draw(), "b": draw()})
    assert [round(float(s), 5) for s in scores.values()] == [released, released]
    assert float(paper_redundancy(draw())) == 0.0


@pytest.mark.parametrize("batch", [8, 16, 32, 64, 128])
def test_noise_floor_of_independent_features(batch):
    """Random Gaussians score about 1/sqrt(B) in the released form and 1/(B − 1) in the paper's."""
    z = torch.randn(batch, 512, generator=torch.Generator().manual_seed(batch))
    released = float(released_redundancy({"a": z, "b": z.flip(0)})["a"])
    assert released == pytest.approx(1 / math.sqrt(batch), rel=0.02)
    assert float(paper_redundancy(z)) == pytest.approx(1 / (batch - 1), rel=0.05)


def test_the_threshold_itself_counts_only_in_the_paper():
    scores = {"audio": 0.75, "video": 0.5}
    assert diagnose(scores, 0.25, strict=True).biased == frozenset()
    assert diagnose(scores, 0.25, strict=False).biased == {"audio"}
    assert diagnose(scores, 0.25, strict=False).differences == {"audio": 0.25, "video": 0.0}
    three = {"audio": 0.9, "video": 0.5, "depth": 0.8}
    assert diagnose(three, 0.05, strict=True).biased == {"audio", "depth"}
    assert diagnose({"a": 0.3, "b": 0.3}, 0.0, strict=True).biased == frozenset()


def test_each_score_goes_with_each_filter():
    """Dimension 3 is quiet beside the others, dimension 4 constant in one modality alone."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(1.0, 2.0, (2, 32, 5))
    a[:, 3] *= 1e-3
    b[:, 3] = a[:, 3][::-1]
    a[:, 4], b[:, 4] = 3.0, -3.0
    parts = {"a": torch.from_numpy(a), "b": torch.from_numpy(b)}
    jointly, own = [0, 1, 2, 4], [0, 1, 2, 3]

    def cosines(z):
        unit = z / np.linalg.norm(z, axis=0)
        squares = (unit.T @ unit) ** 2
        return (squares.sum() - len(squares)) / (len(squares) * (len(squares) - 1))

    centred = a - a.mean(axis=0)
    for rules, expected in {
        ("cosine", "own"): math.sqrt(cosines(a[:, own])),
        ("cosine", "joint"): math.sqrt(cosines(a[:, jointly])),
        ("correlation", "own"): cosines(centred[:, own]),
        # Kept jointly though constant here: it counts as a dimension and correlates with none.
        ("correlation", "joint"): cosines(centred[:, :3]) * 3 * 2 / (4 * 3),
    }.items():
        assert float(redundancy(parts, *rules)["a"]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("score", ["cosine", "correlation"])
@pytest.mark.parametrize("dimension_filter", ["joint", "own"])
def test_a_modality_that_does_not_vary_scores_no_rounding_noise(score, dimension_filter):
    dead = torch.full((24, 7), 0.1)
    parts = {"dead": dead, "live": torch.randn(24, 7, generator=torch.Generator().manual_seed(0))}
    scores = redundancy(parts, score, dimension_filter)
    assert all(torch.isfinite(value) for value in scores.values())
    if (score, dimension_filter) != ("cosine", "joint"):
        assert float(scores["dead"]) == 0.0

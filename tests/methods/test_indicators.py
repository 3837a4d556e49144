"""What holds for every indicator, and for the levels they are held against."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.core.errors import InputError
from dasp.core.seeding import numpy_generator
from dasp.core.types import Fused
from dasp.methods.indicators import COMBINATIONS, INDICATORS, Look
from dasp.methods.levels import Level, clean_levels, deviations

CLASSES, WIDTH = 6, 12
MODALITIES = ("audio", "video", "depth")


def look(seed, rows, labels=None, damaged=None):
    """Samples around a centre a class, of equal length and sureness, and one modality damaged."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (rows,), generator=draws) if labels is None else labels
    centres = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(99))
    centres = 4 * centres / centres.norm(dim=1, keepdim=True)
    seen = {}
    for name in MODALITIES:
        embedding = centres[labels] + torch.randn(rows, WIDTH, generator=draws)
        if name == damaged:
            embedding = 0.5 * embedding + 0.5
        logits = -torch.cdist(embedding, centres).square() / 4
        seen[name] = Fused(embedding, logits)
    return Look(seen, seen["depth"].logits + seen["audio"].logits + seen["video"].logits)


CLEAN = look(0, 256)


@pytest.fixture(scope="module")
def levels():
    return clean_levels(CLEAN, 32, numpy_generator(0, "test"), draws=100)


@pytest.mark.parametrize("name", INDICATORS)
@given(seed=st.integers(0, 99))
@settings(max_examples=5)
def test_the_order_of_the_samples_does_not_matter(name, seed):
    batch = look(seed, 16)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(seed))
    there, back = INDICATORS[name](batch, CLEAN), INDICATORS[name](batch[order], CLEAN)
    assert set(there) == set(MODALITIES)
    assert back == pytest.approx(there, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", INDICATORS)
def test_it_says_whether_clean_samples_count(name):
    batch, other = look(1, 16), look(7, 100, damaged="audio")
    same = INDICATORS[name](batch, CLEAN) == INDICATORS[name](batch, other)
    assert same != INDICATORS[name].needs_clean


@pytest.mark.parametrize("rows", [1, 2])
def test_tiny_batches_have_finite_values(rows):
    for indicator in INDICATORS.values():
        values = indicator(look(1, rows), CLEAN)
        assert torch.tensor(list(values.values())).isfinite().all()


def test_clean_batches_deviate_little(levels):
    """Drawn with replacement, clean batches repeat samples: levels lie a little off for some."""
    found = [deviations(look(seed, 32), CLEAN, levels) for seed in range(1, 31)]
    for name, indicator in INDICATORS.items():
        z = torch.tensor([list(batch[name].values()) for batch in found])
        if not indicator.two_sided:
            assert abs(float(z.mean())) < 1, name
        assert float((z < 4).float().mean()) > 0.95, name


def test_levels_of_drawn_batches_are_their_own(levels):
    """A batch drawn as the levels were has deviation 0 in the mean, 1 in the spread."""
    draws = numpy_generator(1, "other")
    rows = [torch.from_numpy(draws.integers(256, size=32)) for _ in range(100)]
    found = [deviations(CLEAN[r], CLEAN, levels) for r in rows]
    for name, indicator in INDICATORS.items():
        z = torch.tensor([batch[name]["video"] for batch in found])
        if not indicator.two_sided:
            assert abs(float(z.mean())) < 0.4, name
            assert float(z.std()) == pytest.approx(1.0, abs=0.35), name


def test_damage_is_seen_where_it_is(levels):
    found = deviations(look(1, 32, damaged="video"), CLEAN, levels)
    for name in ("mean share", "norm", "mean distance", "profile", "profile or disagreement"):
        assert found[name]["video"] > 5, name
        assert found[name]["audio"] < 5, name


def test_a_single_class_moves_whole_batch_statistics_and_hardly_the_profile(levels):
    """Where classes have embeddings of equal length, as here."""
    found = [
        deviations(look(seed, 32, torch.full((32,), seed % CLASSES)), CLEAN, levels)
        for seed in range(1, 13)
    ]
    for name in ("released redundancy", "mean share", "mean distance", "spread"):
        assert min(batch[name]["audio"] for batch in found) > 5, name
    assert sum(batch["profile"]["audio"] > 5 for batch in found) <= 1


def test_a_combination_is_the_largest(levels):
    found = deviations(look(3, 32, damaged="audio"), CLEAN, levels)
    assert set(found) == {*INDICATORS, *COMBINATIONS}
    for name, parts in COMBINATIONS.items():
        for modality in MODALITIES:
            assert found[name][modality] == max(found[part][modality] for part in parts)


def test_levels_follow_from_the_generator():
    one, same, other = (
        clean_levels(CLEAN, 8, numpy_generator(seed, "test"), draws=3) for seed in (0, 0, 1)
    )
    assert one == same != other


def test_what_never_varies_when_clean_has_a_level():
    level = Level(0.0, 0.0)
    assert level.deviation(0.0, two_sided=True) == 0
    assert level.deviation(0.5, two_sided=False) > 1000


def test_too_little_is_refused():
    with pytest.raises(InputError, match="give more"):
        clean_levels(look(0, 1), 8, numpy_generator(0))

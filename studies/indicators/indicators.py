"""Indicators: numbers that tell, from a batch without labels, whether a modality is shifted.

All have one form, `indicator(batch, clean) → {modality: value}`. A value means little by itself:
`deviations` compares it with its *level*, the values of clean batches of the same size.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dasp.core.types import Fused
from dasp.methods.dasp import redundancy
from dasp.methods.losses import entropy

DRAWS = 200  # of clean batches
LEAST = 1e-6  # deviation of an indicator that never varies on clean batches
SAME = 1e-3  # between unit vectors nearer than this lies only rounding
Values = dict[str, float]


@dataclass(frozen=True)
class Look:
    """What a source model makes of n samples: of each modality alone, and of all together."""

    seen: Mapping[str, Fused]
    joint: Tensor  # logits (n, C)

    def __getitem__(self, rows: Tensor) -> "Look":
        """Return some of the samples: rows (k,) → a look at k samples."""
        seen = {n: Fused(v.embedding[rows], v.logits[rows]) for n, v in self.seen.items()}
        return Look(seen, self.joint[rows])


@dataclass(frozen=True)
class Indicator:
    """How to judge the modalities of a batch, and which way a shift moves the value."""

    judge: Callable[[Look, Look], Values]
    two_sided: bool = False  # a shift may also lower it


def mean_share(embedding: Tensor) -> Tensor:
    """Return the share of the embeddings' energy that lies in their mean: (n, D) → ()."""
    energy = embedding.square().sum(dim=1).mean().clamp(min=1e-12)
    return embedding.mean(dim=0).square().sum() / energy


def mean_distance(embedding: Tensor, clean: Tensor) -> Tensor:
    """Return the squared distance of the means (n, D), (R, D) → (), in clean deviations.

    Without the scatter of the mean of n samples: 0 on average for clean batches of any size.
    """
    if len(embedding) < 2:
        return embedding.new_zeros(())
    gap = (embedding.mean(dim=0) - clean.mean(dim=0)).square()
    scatter = embedding.var(dim=0) / len(embedding)
    return ((gap - scatter) / _variance(clean)).mean()


def spread_ratio(embedding: Tensor, clean: Tensor) -> Tensor:
    """Return the variance over the clean one, mean over dimensions, less 1: (n, D), (R, D) → ()."""
    if len(embedding) < 2:
        return embedding.new_zeros(())
    return (embedding.var(dim=0) / _variance(clean)).mean() - 1


def effective_rank(embedding: Tensor) -> Tensor:
    """Return how many directions centred embeddings fill: exp of the spectrum's entropy, → ()."""
    centred = embedding - embedding.mean(dim=0)
    # The smaller of the two products has the same spectrum.
    tall = len(centred) > centred.shape[1]
    power = torch.linalg.eigvalsh(centred.T @ centred if tall else centred @ centred.T).clamp(min=0)
    if power.sum() <= 0:
        return embedding.new_ones(())
    share = power / power.sum()
    return torch.exp(-torch.xlogy(share, share).sum())


def nearest_clean(embedding: Tensor, clean: Tensor) -> Tensor:
    """Return the mean distance of unit embeddings to the nearest other clean one: → ()."""
    normalize = torch.nn.functional.normalize
    gaps = torch.cdist(normalize(embedding, dim=1), normalize(clean, dim=1))
    return gaps.masked_fill(gaps < SAME, 2.0).amin(dim=1).mean()


def profile(alone: Fused) -> Tensor:
    """Return log ‖embedding‖ and the entropy of the prediction of each sample: → (n, 2)."""
    length = alone.embedding.norm(dim=1).clamp(min=1e-12).log()
    return torch.stack([length, entropy(alone.logits)], dim=1)


def profile_distance(seen: Fused, clean: Fused) -> Tensor:
    """Return Hotelling's distance of the mean profile of n samples to that of R clean ones: → ().

    (x̄ − μ)ᵀ Σ⁻¹ (x̄ − μ) / (1/n + 1/R), R at most 128: clean samples of another day differ a little.
    """
    own, known = profile(seen), profile(clean)
    spread = known.T.cov() + 1e-6 * torch.eye(2)
    gap = own.mean(dim=0) - known.mean(dim=0)
    return gap @ torch.linalg.solve(spread, gap) / (1 / len(own) + 1 / min(len(known), 128))


def without_noise_floor(squared: float, rows: int) -> float:
    """Return a mean squared correlation of n samples less what chance adds: r² − (1 − r²)/(n − 2).

    It is 0 on average for independent dimensions at any n.
    """
    return squared - (1 - squared) / (rows - 2) if rows > 2 else 0.0


def _variance(clean: Tensor) -> Tensor:
    """Return the variance per dimension, at least 1% of the mean: (R, D) → (D,)."""
    found = clean.var(dim=0)
    return found.clamp(min=float(0.01 * found.mean()) or 1e-12)


def _redundancy(score: str, dimension_filter: str) -> Callable[[Look, Look], Values]:
    def judge(batch: Look, _: Look) -> Values:
        embeddings = {name: view.embedding for name, view in batch.seen.items()}
        found = redundancy(embeddings, score, dimension_filter)
        return {name: float(value) for name, value in found.items()}

    return judge


def _corrected(batch: Look, clean: Look) -> Values:
    found = _redundancy("correlation", "own")(batch, clean)
    return {n: without_noise_floor(value, len(batch.joint)) for n, value in found.items()}


def _disagreement(batch: Look, _: Look) -> Values:
    """Return the share of samples whose class differs from the joint one."""
    joint = batch.joint.argmax(dim=1)
    return {
        name: float((view.logits.argmax(dim=1) != joint).float().mean())
        for name, view in batch.seen.items()
    }


def _alone(value: Callable[[Fused], Tensor]) -> Callable[[Look, Look], Values]:
    return lambda batch, _: {name: float(value(view)) for name, view in batch.seen.items()}


def _beside_clean(value: Callable[[Fused, Fused], Tensor]) -> Callable[[Look, Look], Values]:
    return lambda batch, clean: {
        name: float(value(view, clean.seen[name])) for name, view in batch.seen.items()
    }


def _on_embeddings(value: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Look, Look], Values]:
    return _beside_clean(lambda seen, clean: value(seen.embedding, clean.embedding))


INDICATORS: dict[str, Indicator] = {
    "released redundancy": Indicator(_redundancy("cosine", "joint")),
    "paper redundancy": Indicator(_redundancy("correlation", "own")),
    "corrected redundancy": Indicator(_corrected, two_sided=True),
    "mean share": Indicator(_alone(lambda seen: mean_share(seen.embedding))),
    "effective rank": Indicator(_alone(lambda seen: effective_rank(seen.embedding)), True),
    "norm": Indicator(_alone(lambda seen: seen.embedding.norm(dim=1).mean()), two_sided=True),
    "entropy": Indicator(_alone(lambda seen: entropy(seen.logits).mean())),
    "log-sum-exp": Indicator(_alone(lambda seen: seen.logits.logsumexp(dim=1).mean()), True),
    "disagreement": Indicator(_disagreement),
    "mean distance": Indicator(_on_embeddings(mean_distance)),
    "spread": Indicator(_on_embeddings(spread_ratio), two_sided=True),
    "nearest clean": Indicator(_on_embeddings(nearest_clean)),
    "profile": Indicator(_beside_clean(profile_distance)),
}
COMBINATIONS: dict[str, tuple[str, ...]] = {
    "mean share or effective rank": ("mean share", "effective rank"),
    "norm or entropy": ("norm", "entropy"),
    "entropy or disagreement": ("entropy", "disagreement"),
    "profile or disagreement": ("profile", "disagreement"),
}
"""Several indicators as one: a modality deviates by the largest of theirs."""

Levels = dict[str, dict[str, tuple[float, float]]]
"""Mean and standard deviation over clean batches, by indicator and modality."""


def clean_levels(clean: Look, size: int, generator: np.random.Generator) -> Levels:
    """Return the level of every indicator, for batches of `size` samples.

    Batches are drawn with replacement from the clean samples, the same ones for all indicators.
    """
    draws = [
        torch.from_numpy(generator.integers(len(clean.joint), size=size)) for _ in range(DRAWS)
    ]
    levels: Levels = {}
    for name, indicator in INDICATORS.items():
        values = [indicator.judge(clean[rows], clean) for rows in draws]
        each = {modality: [value[modality] for value in values] for modality in clean.seen}
        levels[name] = {m: (statistics.fmean(v), statistics.stdev(v)) for m, v in each.items()}
    return levels


def deviations(batch: Look, clean: Look, levels: Levels) -> dict[str, Values]:
    """Return by how many standard deviations each modality of a batch is off its clean level.

    By indicator and combination; `levels` are those of batches of its size.
    """
    found: dict[str, Values] = {}
    for name, indicator in INDICATORS.items():
        found[name] = {}
        for modality, value in indicator.judge(batch, clean).items():
            mean, std = levels[name][modality]
            z = (value - mean) / max(std, LEAST)
            found[name][modality] = abs(z) if indicator.two_sided else z
    for name, parts in COMBINATIONS.items():
        found[name] = {m: max(found[part][m] for part in parts) for m in batch.seen}
    return found

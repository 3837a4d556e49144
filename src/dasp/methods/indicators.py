"""Indicators: numbers that tell, from a batch without labels, whether a modality is shifted.

All have one form, `indicator(batch, clean) → {modality: value}`. A value means little by itself:
`levels.py` compares it with the values of clean batches of the same size.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

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
from dasp.methods.losses import entropy
from dasp.methods.redundancy import DimensionFilter, Score, redundancy

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


Judge = Callable[[Look, Look], Values]


@dataclass(frozen=True)
class Indicator:
    """How to judge the modalities of a batch, and which way a shift moves the value."""

    judge: Judge
    two_sided: bool = False  # a shift may also lower it
    needs_clean: bool = False  # its value depends on the clean samples, not only its level

    def __call__(self, batch: Look, clean: Look) -> Values:
        """Return the value of each modality of a batch, given a look at clean samples."""
        return self.judge(batch, clean)


def _redundancy(score: Score, dimension_filter: DimensionFilter) -> Judge:
    """Judge by one of the forms of redundancy."""

    def judge(batch: Look, clean: Look) -> Values:  # noqa: ARG001
        embeddings = {name: view.embedding for name, view in batch.seen.items()}
        found = redundancy(embeddings, score, dimension_filter)
        return {name: float(value) for name, value in found.items()}

    return judge


def _corrected(batch: Look, clean: Look) -> Values:
    found = _redundancy("correlation", "own")(batch, clean)
    return {n: without_noise_floor(value, len(batch.joint)) for n, value in found.items()}


def _disagreement(batch: Look, clean: Look) -> Values:  # noqa: ARG001
    return {n: float(disagreement(view.logits, batch.joint)) for n, view in batch.seen.items()}


def _alone(value: Callable[[Fused], Tensor]) -> Judge:
    """Judge each modality by itself."""

    def judge(batch: Look, clean: Look) -> Values:  # noqa: ARG001
        return {name: float(value(view)) for name, view in batch.seen.items()}

    return judge


def _beside_clean(value: Callable[[Fused, Fused], Tensor]) -> Judge:
    """Judge each modality by the batch and by clean samples of it."""

    def judge(batch: Look, clean: Look) -> Values:
        return {name: float(value(view, clean.seen[name])) for name, view in batch.seen.items()}

    return judge


INDICATORS: dict[str, Indicator] = {
    "released redundancy": Indicator(_redundancy("cosine", "joint")),
    "paper redundancy": Indicator(_redundancy("correlation", "own")),
    "corrected redundancy": Indicator(_corrected, two_sided=True),
    "mean share": Indicator(_alone(lambda seen: mean_share(seen.embedding))),
    "effective rank": Indicator(
        _alone(lambda seen: effective_rank(seen.embedding)), two_sided=True
    ),
    "norm": Indicator(_alone(lambda seen: seen.embedding.norm(dim=1).mean()), two_sided=True),
    "entropy": Indicator(_alone(lambda seen: entropy(seen.logits).mean())),
    "log-sum-exp": Indicator(
        _alone(lambda seen: seen.logits.logsumexp(dim=1).mean()), two_sided=True
    ),
    "disagreement": Indicator(_disagreement),
    "mean distance": Indicator(
        _beside_clean(lambda seen, clean: mean_distance(seen.embedding, clean.embedding)),
        needs_clean=True,
    ),
    "spread": Indicator(
        _beside_clean(lambda seen, clean: spread_ratio(seen.embedding, clean.embedding)),
        two_sided=True,
        needs_clean=True,
    ),
    "nearest clean": Indicator(
        _beside_clean(lambda seen, clean: nearest_clean(seen.embedding, clean.embedding)),
        needs_clean=True,
    ),
    "profile": Indicator(_beside_clean(profile_distance), needs_clean=True),
}
COMBINATIONS: dict[str, tuple[str, ...]] = {
    "mean share or effective rank": ("mean share", "effective rank"),
    "norm or entropy": ("norm", "entropy"),
    "entropy or disagreement": ("entropy", "disagreement"),
    "profile or disagreement": ("profile", "disagreement"),
}
"""Several indicators as one: a modality deviates by the largest of theirs."""

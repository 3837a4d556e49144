"""How redundant a modality's features are, in the two forms in which DASP exists."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from dasp.core.types import Diagnosis

Embeddings = Mapping[str, Tensor]
Score = Literal["cosine", "correlation"]
DimensionFilter = Literal["joint", "own"]


def redundancy(
    embeddings: Embeddings, score: Score, dimension_filter: DimensionFilter
) -> dict[str, Tensor]:
    """How much the dimensions of each modality repeat each other: {name: (B, D)} → {name: ()}.

    Score "cosine" (released): root mean square over i≠j of the un-centred cosines of the
    dimensions' columns. "correlation" (paper): mean over i≠j of their squared correlations.
    Filter "joint" (released): keep the dimensions whose spread over all modalities' rows together
    exceeds 5% of the largest. "own" (paper): those of variance above 1e-8 in the modality itself.
    With fewer than two kept a score is 0. A dimension that does not vary correlates with none.
    """
    centred = {name: value - value.mean(dim=0) for name, value in embeddings.items()}
    varies = {name: value.square().mean(dim=0) > 1e-8 for name, value in centred.items()}
    keep = varies if dimension_filter == "own" else dict.fromkeys(embeddings, _spread(embeddings))
    if score == "cosine":
        return {n: _mean_squared_cosine(v[:, keep[n]]).sqrt() for n, v in embeddings.items()}
    return {n: _mean_squared_cosine((v * varies[n])[:, keep[n]]) for n, v in centred.items()}


def paper_redundancy(embedding: Tensor) -> Tensor:
    """The paper's score of one modality, by correlation, own filter: (B, D) → (), in [0, 1].

    It is always 0 at B = 1, where no dimension varies.

    >>> x = torch.tensor([[1.0, 2.0], [2.0, 4.0], [4.0, 8.0]])
    >>> round(float(paper_redundancy(x)), 6)
    1.0
    """
    return redundancy({"it": embedding}, "correlation", "own")["it"]


def released_redundancy(embeddings: Embeddings) -> dict[str, Tensor]:
    """The score of the authors' code, by cosine, joint filter: {name: (B, D)} → {name: ()}."""
    return redundancy(embeddings, "cosine", "joint")


def diagnose(scores: Mapping[str, float], delta: float, strict: bool) -> Diagnosis:
    """Name the modalities whose score exceeds the lowest by δ: by more than it if `strict`."""
    lowest = min(scores.values())
    differences = {name: score - lowest for name, score in scores.items()}
    biased = {
        name for name, gap in differences.items() if (gap > delta if strict else gap >= delta)
    }
    return Diagnosis(dict(scores), differences, frozenset(biased))


def _spread(embeddings: Embeddings) -> Tensor:
    """Whether a dimension's spread over all rows together exceeds 5% of the largest: → (D,)."""
    stacked = torch.cat(list(embeddings.values()))
    spread = stacked.std(dim=0) if len(stacked) > 1 else torch.zeros_like(stacked[0])
    return spread > 0.05 * spread.max()


def _mean_squared_cosine(columns: Tensor) -> Tensor:
    """Mean over i≠j of the squared cosine of columns i and j: (B, K) → (); 0 if K < 2."""
    count = columns.shape[1]
    if count < 2:
        return columns.new_zeros(())
    unit = torch.nn.functional.normalize(columns, dim=0)
    # ‖UᵀU‖ = ‖UUᵀ‖: the smaller of the two products gives the same sum.
    gram = unit @ unit.T if len(unit) < count else unit.T @ unit
    diagonal = unit.square().sum(dim=0).square().sum()
    return (gram.square().sum() - diagonal).clamp(min=0) / (count * (count - 1))

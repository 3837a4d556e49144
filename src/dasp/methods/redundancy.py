"""How redundant a modality's features are, in the two forms in which DASP exists."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dasp.core.types import Diagnosis

Embeddings = Mapping[str, Tensor]


def paper_redundancy(embedding: Tensor) -> Tensor:
    """Mean over i≠j of the squared correlations of the dimensions: (B, D) → (), in [0, 1].

    Dimensions of variance ≤ 1e-8 are left out; with fewer than two left the score is 0, as it
    always is at B = 1.

    >>> x = torch.tensor([[1.0, 2.0], [2.0, 4.0], [4.0, 8.0]])
    >>> round(float(paper_redundancy(x)), 6)
    1.0
    """
    centred = embedding - embedding.mean(dim=0)
    centred = centred[:, centred.square().mean(dim=0) > 1e-8]
    return _mean_squared_cosine(centred)


def released_redundancy(embeddings: Embeddings) -> dict[str, Tensor]:
    """Root mean square over i≠j of un-centred cosines of dimensions: {name: (B, D)} → {name: ()}.

    Dimensions are kept if their spread over all modalities' rows together exceeds 5% of the
    largest; with fewer than two kept all scores are 0.
    """
    stacked = torch.cat(list(embeddings.values()))
    spread = stacked.std(dim=0) if len(stacked) > 1 else torch.zeros_like(stacked[0])
    keep = spread > 0.05 * spread.max()
    return {name: _mean_squared_cosine(value[:, keep]).sqrt() for name, value in embeddings.items()}


def diagnose(scores: Mapping[str, float], delta: float, strict: bool) -> Diagnosis:
    """Name the modalities whose score exceeds the lowest by δ: by more than it if `strict`."""
    lowest = min(scores.values())
    differences = {name: score - lowest for name, score in scores.items()}
    biased = {
        name for name, gap in differences.items() if (gap > delta if strict else gap >= delta)
    }
    return Diagnosis(dict(scores), differences, frozenset(biased))


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

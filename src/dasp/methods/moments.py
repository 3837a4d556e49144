"""Redundancy from sums over samples: what many ranks can add up without moving their rows.

The moments of rows x (B, D) are M = Σ (1, x)ᵀ(1, x), a (D + 1)×(D + 1) matrix that holds the
count n = M₀₀, the sums s = M₀ᵢ and the products P = Mᵢⱼ. The moments of joined rows are the sum of
the parts' moments. Both scores of `dasp.methods.redundancy` follow from them:

- the un-centred cosine of columns i and j is Pᵢⱼ / √(Pᵢᵢ Pⱼⱼ);
- the centred products are C = P − ssᵀ/n, a dimension's variance is Cᵢᵢ/n, and the correlation of
  columns i and j is Cᵢⱼ / √(Cᵢᵢ Cⱼⱼ);
- the spread over all modalities' rows together is √((Pᵢᵢ − sᵢ²/n)/(n − 1)) of the modalities'
  moments added up.

The subtraction cancels digits, so all is done in float64: with values of size m around a spread
of size d the error is about 10⁻¹⁶·(m/d)².
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from dasp.methods.redundancy import DimensionFilter, Score


def moments(rows: Tensor) -> Tensor:
    """Return Σ (1, x)ᵀ(1, x) of rows (B, D) → (D + 1, D + 1), float64.

    >>> moments(torch.tensor([[2.0], [3.0]])).tolist()
    [[2.0, 5.0], [5.0, 13.0]]
    """
    wide = torch.nn.functional.pad(rows.double(), (1, 0), value=1.0)
    return wide.T @ wide


def packed(whole: Tensor) -> Tensor:
    """Return the upper triangle of a symmetric matrix (K, K) → (K(K + 1)/2,)."""
    first, second = torch.triu_indices(*whole.shape)
    return whole[first, second]


def unpacked(triangle: Tensor) -> Tensor:
    """Return the symmetric matrix of an upper triangle: (K(K + 1)/2,) → (K, K).

    >>> unpacked(torch.tensor([1.0, 2.0, 3.0])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    size = int((8 * len(triangle) + 1) ** 0.5 - 1) // 2
    first, second = torch.triu_indices(size, size)
    whole = triangle.new_empty(size, size)
    whole[first, second] = triangle
    whole[second, first] = triangle
    return whole


def redundancy_of_moments(
    parts: Mapping[str, Tensor], score: Score, dimension_filter: DimensionFilter
) -> dict[str, Tensor]:
    """Return what `redundancy` does: {name: moments (D + 1, D + 1)} → {name: ()}."""
    products = {name: own[1:, 1:] for name, own in parts.items()}
    centred = {name: _centred(own) for name, own in parts.items()}
    varies = {n: v.diagonal() / parts[n][0, 0] > 1e-8 for n, v in centred.items()}
    spread = dict.fromkeys(parts, _spread(torch.stack(list(parts.values())).sum(dim=0)))
    keep = varies if dimension_filter == "own" else spread
    if score == "cosine":
        return {n: _mean_squared_cosine(v[keep[n]][:, keep[n]]).sqrt() for n, v in products.items()}
    only = {n: v * varies[n] * varies[n][:, None] for n, v in centred.items()}
    return {n: _mean_squared_cosine(v[keep[n]][:, keep[n]]) for n, v in only.items()}


def _centred(whole: Tensor) -> Tensor:
    sums = whole[0, 1:]
    return whole[1:, 1:] - torch.outer(sums, sums) / whole[0, 0]


def _spread(whole: Tensor) -> Tensor:
    """Whether a dimension's spread over all rows exceeds 5% of the largest: → (D,)."""
    degrees = (whole[0, 0] - 1).clamp(min=1)
    spread = (_centred(whole).diagonal().clamp(min=0) / degrees).sqrt()
    return spread > 0.05 * spread.max()


def _mean_squared_cosine(products: Tensor) -> Tensor:
    """Mean over i≠j of the squared cosine of columns with these products: (K, K) → ()."""
    count = len(products)
    if count < 2:
        return products.new_zeros(())
    lengths = products.diagonal().clamp(min=0).sqrt().clamp(min=1e-12)
    squares = (products / lengths / lengths[:, None]).square()
    return (squares.sum() - squares.diagonal().sum()).clamp(min=0) / (count * (count - 1))

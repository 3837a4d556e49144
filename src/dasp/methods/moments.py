"""Redundancy from sums over samples, which many ranks can add up without exchanging their rows.

The moments of rows x (B, D) are M = Σ (1, x)ᵀ(1, x), a (D + 1)×(D + 1) matrix that holds the
count n = M₀₀, the sums s = M₀ᵢ and the products P = Mᵢⱼ. The moments of joined rows are the sum of
the parts' moments. Both scores of `dasp.methods.dasp.redundancy` follow from them:

- the un-centred cosine of columns i and j is Pᵢⱼ / √(Pᵢᵢ Pⱼⱼ);
- the centred products are C = P − ssᵀ/n, the variance of a dimension is Cᵢᵢ/n, and the correlation
  of columns i and j is Cᵢⱼ / √(Cᵢᵢ Cⱼⱼ);
- the spread over all modalities' rows together is √((Pᵢᵢ − sᵢ²/n)/(n − 1)) of the sum of the
  modalities' moments.

The subtraction cancels digits, so everything is computed in float64: for values of size m with a
spread of size d the error is about 10⁻¹⁶·(m/d)².
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from dasp.methods.distributed import Group


def moments(rows: Tensor) -> Tensor:
    """Return Σ (1, x)ᵀ(1, x) of rows (B, D) → (D + 1, D + 1), float64.

    >>> moments(torch.tensor([[2.0], [3.0]])).tolist()
    [[2.0, 5.0], [5.0, 13.0]]
    """
    wide = torch.nn.functional.pad(rows.double(), (1, 0), value=1.0)
    return wide.T @ wide


def moments_of_all(embeddings: Mapping[str, Tensor], group: Group) -> dict[str, Tensor]:
    """Return the moments over all ranks' rows: {name: (b, D)} → {name: (D + 1, D + 1)}.

    Only the upper triangles are sent: the matrices are symmetric.
    """
    size = next(iter(embeddings.values())).shape[1] + 1
    first, second = torch.triu_indices(size, size)
    triangles = [moments(rows)[first, second] for rows in embeddings.values()]
    group.add_up(triangles)
    found = {}
    for name, triangle in zip(embeddings, triangles, strict=True):
        whole = triangle.new_empty(size, size)
        whole[first, second] = triangle
        whole[second, first] = triangle
        found[name] = whole
    return found


def redundancy_of_moments(
    parts: Mapping[str, Tensor], score: str, dimension_filter: str
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
    """Tell whether a dimension's spread over all rows exceeds 5% of the largest: → (D,)."""
    degrees = (whole[0, 0] - 1).clamp(min=1)
    spread = (_centred(whole).diagonal().clamp(min=0) / degrees).sqrt()
    return spread > 0.05 * spread.max()


def _mean_squared_cosine(products: Tensor) -> Tensor:
    """Return the mean over i≠j of the squared cosine, from products of columns: (K, K) → ()."""
    count = len(products)
    if count < 2:
        return products.new_zeros(())
    lengths = products.diagonal().clamp(min=0).sqrt().clamp(min=1e-12)
    squares = (products / lengths / lengths[:, None]).square()
    return (squares.sum() - squares.diagonal().sum()).clamp(min=0) / (count * (count - 1))

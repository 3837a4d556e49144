"""Numbers that a shift moves, each of one modality of one batch; small pure functions."""

import torch
from torch import Tensor

from dasp.core.types import Fused
from dasp.methods.profile import CleanProfile, profile

SAME = 1e-3  # between unit vectors nearer than this lies rounding only


def mean_share(embedding: Tensor) -> Tensor:
    """Share of the embeddings' energy that lies in their mean: (n, D) → (), in [0, 1].

    >>> round(float(mean_share(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))), 3)
    0.5
    """
    energy = embedding.square().sum(dim=1).mean().clamp(min=1e-12)
    return embedding.mean(dim=0).square().sum() / energy


def mean_distance(embedding: Tensor, clean: Tensor) -> Tensor:
    """Squared distance of the means (n, D), (R, D) → (), in clean deviations, mean over dimensions.

    What the mean of n samples scatters by itself is taken off, so that a clean batch has 0 in the
    mean whatever its size. 0 for one sample, whose scatter is unknown.
    """
    if len(embedding) < 2:
        return embedding.new_zeros(())
    gap = (embedding.mean(dim=0) - clean.mean(dim=0)).square()
    scatter = embedding.var(dim=0) / len(embedding)
    return ((gap - scatter) / _variance(clean)).mean()


def spread_ratio(embedding: Tensor, clean: Tensor) -> Tensor:
    """Variance over the clean variance, mean over dimensions, less 1: (n, D), (R, D) → ().

    0 in the mean for clean batches of any size, and 0 for one sample, which has no variance.
    """
    if len(embedding) < 2:
        return embedding.new_zeros(())
    return (embedding.var(dim=0) / _variance(clean)).mean() - 1


def effective_rank(embedding: Tensor) -> Tensor:
    """Number of directions that the centred embeddings fill: (n, D) → (), from 1 to min(n − 1, D).

    The exponential of the entropy of the spectrum's shares. 1 where nothing varies.
    """
    centred = embedding - embedding.mean(dim=0)
    # The smaller of the two products has the same spectrum.
    tall = len(centred) > centred.shape[1]
    power = torch.linalg.eigvalsh(centred.T @ centred if tall else centred @ centred.T).clamp(min=0)
    if power.sum() <= 0:
        return embedding.new_ones(())
    share = power / power.sum()
    return torch.exp(-torch.xlogy(share, share).sum())


def nearest_clean(embedding: Tensor, clean: Tensor) -> Tensor:
    """Mean distance of the unit embeddings to the nearest clean one: (n, D), (R, D) → ().

    A clean sample itself is no neighbour of its own, so that clean batches can be drawn from them.
    """
    normalize = torch.nn.functional.normalize
    gaps = torch.cdist(normalize(embedding, dim=1), normalize(clean, dim=1))
    return gaps.masked_fill(gaps < SAME, 2.0).amin(dim=1).mean()


def disagreement(logits: Tensor, joint: Tensor) -> Tensor:
    """Share of samples whose class differs from the joint one: (n, C), (n, C) → ()."""
    return (logits.argmax(dim=1) != joint.argmax(dim=1)).float().mean()


def profile_distance(seen: Fused, clean: Fused) -> Tensor:
    """Distance of the mean profile of n samples to that of R clean ones: → ()."""
    known = CleanProfile()
    known.fit(profile(clean))
    return known.distance(profile(seen))


def _variance(clean: Tensor) -> Tensor:
    """Variance of each dimension, those that hardly vary held at 1% of the mean: (R, D) → (D,)."""
    found = clean.var(dim=0)
    return found.clamp(min=float(0.01 * found.mean()) or 1e-12)

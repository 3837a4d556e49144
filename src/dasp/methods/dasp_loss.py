"""The terms of DASP's loss. All take logits (B, C) and return nats."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from dasp.core.types import Fused
from dasp.methods.losses import entropy

EVEN_SHARE = 0.5  # of all classes alike, in the mix that healthy modalities see


def diversity(logits: Tensor, target: Tensor | None = None) -> Tensor:
    """Σ p̄ log p̄, each sample's p clamped to [1e-7, 1 − 1e-7] before the mean: (B, C) → ().

    With a target (C,), shares of the classes: KL(p̄ ‖ half target, half even).
    """
    mean = logits.softmax(dim=1).clamp(1e-7, 1 - 1e-7).mean(dim=0)
    if target is None:
        return (mean * mean.log()).sum()
    wanted = (1 - EVEN_SHARE) * target + EVEN_SHARE / len(target)
    return (mean * (mean.log() - wanted.log())).sum()


def dasp_loss(logits: Tensor, ent: float, target: Tensor | None = None) -> Tensor:
    """Diversity + λ_ent·mean H: the loss but for its KL terms, which are of other passes."""
    return diversity(logits, target) + ent * entropy(logits).mean()


@torch.no_grad()
def label_mix(alone: Mapping[str, Fused], biased: Collection[str]) -> Tensor:
    """Return what the unbiased modalities see, or all if none is: mean probabilities (B, C)."""
    names = [name for name in alone if name not in biased] or list(alone)
    return torch.stack([alone[name].logits.softmax(dim=1) for name in names]).mean(dim=0)

"""PTA: split the batch by how over-predicted a class is, and treat the halves differently."""

import torch
from torch import Tensor, nn

from dasp.core.contract import HasAttentionMaps, HasFusionQkv
from dasp.core.types import Step, Tokens
from dasp.methods.base import METHODS, Method, not_negative
from dasp.methods.losses import entropy


def prediction_bias(labels: Tensor) -> Tensor:
    """Return z = tanh(1/U − frequency of the own predicted class), U distinct classes: (B,)."""
    _, inverse, counts = labels.unique(  # type: ignore[no-untyped-call]
        return_inverse=True, return_counts=True
    )
    # Counted in integers so that a class exactly at its fair share gives exactly zero.
    excess = len(labels) - counts[inverse] * len(counts)
    return torch.tanh(excess.float() / (len(labels) * len(counts)))


def average_ranks(values: Tensor) -> Tensor:
    """Return ascending ranks 1…n, ties sharing their average: (n,) → (n,)."""
    below = (values[None] < values[:, None]).sum(dim=1)
    equal = (values[None] == values[:, None]).sum(dim=1)
    return below + (equal + 1) / 2


def mmd(first: Tensor, second: Tensor) -> Tensor:
    """Return the biased squared maximum mean discrepancy of rows: (n, F), (m, F) → ().

    Kernel exp(−d²/σ²), σ² half the lower median of all pairwise squared distances, a constant.
    """
    rows = torch.cat([first, second])
    squares = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    upper = squares.triu(diagonal=1)[torch.ones_like(squares).triu(diagonal=1).bool()]
    kernel = (-squares / (upper.median() / 2).detach()).exp()
    n = len(first)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()


@METHODS.register("pta")
class Pta(Method):
    """L = mean over X⁺ of w·H − .5·mean over X⁻ of H + MMD of both halves' attention.

    Paper: Wang et al., "Partition-Then-Adapt: Combating Prediction Bias for Reliable Multi-Modal
    Test-Time Adaptation", NeurIPS 2025. Trains the fusion's query, key and value maps.
    """

    version = 1
    published = "2025-12"
    sharded = "it compares attention maps of all samples, which stay on the rank that computed them"
    needs = (HasFusionQkv, HasAttentionMaps)
    trainable = Method.fusion_qkv

    def __init__(self, model: nn.Module, *, negative_weight: float = 0.5, seed: int = 0) -> None:
        super().__init__(model, seed=seed)
        not_negative(negative_weight=negative_weight)
        self.negative_weight = negative_weight

    def step(self, batch: Tokens) -> Step:
        """Predict and split; the loss has three terms. No update if a half is empty."""
        logits, attention = self.fuse_with_attention(batch)
        bias = prediction_bias(logits.argmax(dim=1))
        rare, common = bias > 0, bias < 0
        if not (rare.any() and common.any()):
            return Step(logits, skipped="all predicted classes are equally frequent in the batch")
        value = entropy(logits)
        sure = average_ranks(logits.detach()[rare].softmax(dim=1).amax(dim=1))
        rarity = average_ranks(-bias[rare])  # rank 1 is the largest z
        weight = sure * rarity / rare.sum() ** 2
        loss = (weight * value[rare]).mean() - self.negative_weight * value[common].mean()
        maps = attention.weights.flatten(1)
        return Step(logits, loss + mmd(maps[rare], maps[common]))

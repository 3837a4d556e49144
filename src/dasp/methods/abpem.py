"""ABPEM: align attention between modalities with that within, and minimise top-k entropy."""

import torch
from torch import Tensor, nn

from dasp.core.contract import HasAttentionMaps, HasFusionQkv
from dasp.core.types import Attention, Step, Tokens
from dasp.methods.base import METHODS, Method, whole
from dasp.methods.losses import entropy_of_mean


def principal_entropy(logits: Tensor, top: int) -> Tensor:
    """Return the mean over samples of Σ −p·log(p + 1e-6) over the `top` most probable classes."""
    p = logits.softmax(dim=1).topk(min(top, logits.shape[1]), dim=1).values
    return -(p * (p + 1e-6).log()).sum(dim=1).mean()


def gaussian_kl(mean_p: Tensor, std_p: Tensor, mean_q: Tensor, std_q: Tensor) -> Tensor:
    """Return KL(N(mean_p, std_p²) ‖ N(mean_q, std_q²)), elementwise."""
    spread = (std_p.square() + (mean_p - mean_q).square()) / (2 * std_q.square())
    return (std_q / std_p).log() + spread - 0.5


def attention_gap(attention: Attention) -> Tensor:
    """Return Σ over ordered pairs of modalities of KL(N_query→key ‖ N_key→key), batch mean.

    N is the Gaussian of all entries of a block of the attention averaged over heads; blocks
    within a modality are constants. With audio and video: KL(va ‖ aa) + KL(av ‖ vv).
    """
    weights = attention.weights.mean(dim=1)  # (B, heads, N, N) → (B, N, N)
    gaps = []
    for key, columns in attention.spans.items():
        within = _moments(weights[:, columns, columns].detach())
        for query, rows in attention.spans.items():
            if query != key:
                gaps.append(gaussian_kl(*_moments(weights[:, rows, columns]), *within).mean())
    return torch.stack(gaps).sum()


def _moments(block: Tensor) -> tuple[Tensor, Tensor]:
    entries = block.flatten(1)  # (B, n, m) → (B, n·m)
    return entries.mean(dim=1), entries.std(dim=1)


@METHODS.register("abpem")
class Abpem(Method):
    """L = principal entropy − H(p̄) + attention gap, on the fusion's query, key and value maps.

    Paper: Zhao et al., "Attention Bootstrapping for Multi-Modal Test-Time Adaptation", AAAI 2025.
    Follows the port without the paper's cache of recent batches. Published `top`: 8 (Kinetics50),
    28 (VGGSound).
    """

    version = 1
    auto_change = 0.02
    published = "2025-02"
    sharded = "its loss uses attention maps, which stay on the rank that computed them"
    needs = (HasFusionQkv, HasAttentionMaps)
    trainable = Method.fusion_qkv

    def __init__(self, model: nn.Module, *, top: int = 8, seed: int = 0) -> None:
        super().__init__(model, seed=seed)
        whole(top=top)
        self.top = top

    def step(self, batch: Tokens) -> Step:
        """Predict; the loss has three terms."""
        logits, attention = self.fuse_with_attention(batch)
        loss = principal_entropy(logits, self.top) - entropy_of_mean(logits)
        return Step(logits, loss + attention_gap(attention))

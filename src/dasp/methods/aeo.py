"""AEO: lower the entropy of known samples and raise that of unknown ones, in open-set streams."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import torch
from torch import Tensor, nn

from dasp.core.contract import HasLayers
from dasp.core.types import Inputs, Step
from dasp.methods.base import METHODS, Method, not_negative, positive
from dasp.methods.losses import read_balance


def relative_entropy(p: Tensor) -> Tensor:
    """Return the entropy of probabilities (B, C) as a share of the largest, ln C: (B,)."""
    return -(p * (p + 1e-9).log()).sum(dim=1) / math.log(p.shape[1])


def aeo_loss(
    joint: Tensor,
    alone: Sequence[Tensor],
    *,
    k: float = 4.0,
    alpha: float = 0.8,
    lambda1: float = 0.1,
    lambda2: float = 0.1,
) -> Tensor:
    """Return the loss of joint logits (B, C) and those of each modality alone.

    −mean(w·Ĥ) + λ₁·[−mean(w·‖p_m − p_n‖₁) − mean(w·Ĥ_m)] − λ₂·balance, with pairs and modalities
    averaged and w = tanh(k(Ĥ − α)) of the joint prediction. The gradient flows through w.
    """
    p = joint.softmax(dim=1)
    value = relative_entropy(p)
    weight = torch.tanh(k * (value - alpha))
    single = [logits.softmax(dim=1) for logits in alone]
    apart = [(weight * (p - q).abs().sum(dim=1)).mean() for p, q in combinations(single, 2)]
    unsure = [(weight * relative_entropy(p)).mean() for p in single]
    between = sum(apart, joint.new_zeros(())) / max(len(apart), 1)
    within = sum(unsure, joint.new_zeros(())) / len(unsure)
    return -(weight * value).mean() - lambda1 * (between + within) - lambda2 * read_balance(joint)


@METHODS.register("aeo")
class Aeo(Method):
    """Train the last block of each encoder, the fusion and the head by `aeo_loss`.

    Paper: Dong, Chatzi and Fink, "Towards Robust Multimodal Open-set Test-time Adaptation via
    Adaptive Entropy-aware Optimization", ICLR 2025.

    The entropy of a sample falls if it is below α of the largest, and rises above it; reject
    samples by max p. The original has SlowFast and ResNet encoders with heads of their own; here
    a modality alone goes through the fusion and the shared head. Adam with weight decay.
    """

    version = 1
    published = "2025-04"
    sharded = "it compares modalities alone, whose logits stay on their rank"
    tunes_encoder = True
    needs = (HasLayers,)
    default_lr = 2e-5

    def __init__(
        self,
        model: nn.Module,
        *,
        k: float = 4.0,
        alpha: float = 0.8,
        lambda1: float = 0.1,
        lambda2: float = 0.1,
        weight_decay: float = 1e-4,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        positive(k=k)
        not_negative(alpha=alpha, lambda1=lambda1, lambda2=lambda2, weight_decay=weight_decay)
        self.k, self.alpha, self.lambda1, self.lambda2 = k, alpha, lambda1, lambda2
        self.weight_decay = weight_decay

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train the last block of each encoder, the fusion's blocks, and what follows."""
        layers = self.model.layers()
        last = [block for blocks in layers.encoders.values() for block in blocks[-1:]]
        modules = [*last, *layers.fusion, *layers.output]
        return [parameter for module in modules for parameter in module.parameters()]

    def optimizer(self, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        """Return Adam with weight decay in the gradient."""
        return torch.optim.Adam(parameters, lr=lr, weight_decay=self.weight_decay)

    def step(self, batch: Inputs) -> Step:
        """Predict from all modalities and from each alone."""
        tokens = self.encode(batch)
        joint = self.fuse(tokens).logits
        alone = [self.fuse({name: own}).logits for name, own in tokens.items()]
        options = {name: getattr(self, name) for name in ("k", "alpha", "lambda1", "lambda2")}
        return Step(joint, aeo_loss(joint, alone, **options))

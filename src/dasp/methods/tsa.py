"""TSA: a router chooses which of two modalities to adapt; the other passes unchanged."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.contract import token_width
from dasp.core.types import Prediction, Step, Tokens
from dasp.methods.base import METHODS, Method, not_negative, positive
from dasp.methods.losses import read_balance


def tsa_loss(logits: Tensor, weight: float, threshold: float) -> Tensor:
    """Return weight·mean CE with own labels · share of samples with max p ≥ threshold − balance.

    The mean is taken before the mask, as in the released port.
    """
    top = logits.softmax(dim=1).amax(dim=1)
    labels = F.cross_entropy(logits, logits.argmax(dim=1))
    return weight * labels * (top >= threshold).float().mean() - read_balance(logits)


class RowAdapter(nn.Module):
    """ẑ = z(Φ + I), rows times a matrix that starts at zero: (B, N, D) → (B, N, D)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(dim, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """Add the change that Φ makes."""
        return tokens + tokens @ self.matrix


@METHODS.register("tsa")
class Tsa(Method):
    """Train one D×D map per modality and a router of two weights.

    Paper: Chen et al., "Test-Time Selective Adaptation for Uni-Modal Distribution Shift in
    Multi-Modal Data", ICML 2025. The prediction is logits(a, v̂) + logits(â, v).
    Published settings: confidence_weight/threshold .5/.9 (Kinetics50), 1.0/.8 (VGGSound).
    """

    version = 1
    published = "2025-07"
    sharded = "it draws numbers for its samples in order, which starts anew on each rank"
    exactly_two_modalities = True

    def __init__(
        self,
        model: nn.Module,
        *,
        confidence_weight: float = 0.5,
        threshold: float = 0.95,
        temperature: float = 1e-3,
        seed: int = 0,
    ) -> None:
        super().__init__(model, seed=seed)
        positive(temperature=temperature)
        not_negative(confidence_weight=confidence_weight, threshold=threshold)
        self.confidence_weight, self.threshold = confidence_weight, threshold
        self.temperature = temperature
        for name in self.model.modalities:
            width = token_width(self.model, name)
            self.adapters[name] = self.module_like_model(RowAdapter(width))
        like: Tensor = self.adapters[name].matrix  # type: ignore[assignment]
        self.router = nn.Parameter(like.new_zeros(2))

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train both maps and the router."""
        return (*self.adapters.parameters(), self.router)

    def step(self, batch: Tokens) -> Step:
        """Predict without gradient; the loss is that of the routed path."""
        prediction, adapted = self.predict(batch), self.adapted_tokens(batch)
        first, second = self.model.modalities
        share = self._route(len(batch[first]))
        routed = {
            first: share * batch[first] + (1 - share) * adapted[first],
            second: (1 - share) * batch[second] + share * adapted[second],
        }
        logits = self.fuse(routed).logits
        return Step(prediction.logits, tsa_loss(logits, self.confidence_weight, self.threshold))

    @torch.no_grad()
    def predict(self, batch: Tokens) -> Prediction:
        """Sum the logits of the two views in which one modality is adapted."""
        adapted, (first, second) = self.adapted_tokens(batch), self.model.modalities
        one = self.fuse({first: batch[first], second: adapted[second]}).logits
        other = self.fuse({first: adapted[first], second: batch[second]}).logits
        return Prediction(one + other)

    def adapted_tokens(self, batch: Tokens) -> dict[str, Tensor]:
        """Return both modalities through their maps."""
        return {name: self.adapters[name](tokens) for name, tokens in batch.items()}

    def _route(self, samples: int) -> Tensor:
        """Draw how much of each sample leaves the first modality unchanged: (B, 1, 1)."""
        noise = -torch.empty(samples, 2).exponential_(generator=self.generator).log()
        scores = self.router + noise.to(self.router)
        return (scores / self.temperature).softmax(dim=1)[:, 0, None, None]

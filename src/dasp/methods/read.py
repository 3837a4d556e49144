"""READ: sharpen confident predictions through the fusion's attention, keep classes balanced."""

from collections.abc import Iterable

from torch import Tensor, nn

from dasp.core.contract import HasFusionQkv
from dasp.core.types import Step, Tokens
from dasp.methods.base import METHODS, Method
from dasp.methods.losses import read_balance


def read_loss(logits: Tensor) -> Tensor:
    """Mean of m(1 − log m + log γ) with m = max p and γ = e⁻¹, minus the balance term."""
    top = logits.softmax(dim=1).amax(dim=1)
    confidence = -(top * top.log()).mean()  # 1 + log γ cancel
    return confidence - read_balance(logits)


@METHODS.register("read")
class Read(Method):
    """Trains the query, key and value maps of the fusion.

    Paper: Yang et al., "Test-time Adaptation against Multi-modal Reliability Bias", ICLR 2024.
    """

    needs = (HasFusionQkv,)

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train the fusion's query, key and value maps."""
        return self.model.fusion_qkv()  # type: ignore[attr-defined, no-any-return]

    def step(self, batch: Tokens) -> Step:
        """Predict, and take READ's loss."""
        logits = self.forward(batch).logits
        return Step(logits, read_loss(logits))

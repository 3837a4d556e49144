"""READ: sharpen confident predictions through the fusion's attention, keep classes balanced."""

from torch import Tensor

from dasp.core.contract import HasFusionQkv
from dasp.core.types import Step, Tokens
from dasp.methods.base import METHODS, Method
from dasp.methods.losses import read_balance


def read_loss(logits: Tensor) -> Tensor:
    """Return mean m(1 − log m + log γ), m = max p and γ = e⁻¹, minus the balance term."""
    top = logits.softmax(dim=1).amax(dim=1)
    confidence = -(top * top.log()).mean()  # 1 + log γ cancel
    return confidence - read_balance(logits)


@METHODS.register("read")
class Read(Method):
    """Train the query, key and value maps of the fusion.

    Paper: Yang et al., "Test-time Adaptation against Multi-modal Reliability Bias", ICLR 2024.
    """

    version = 1
    published = "2024-05"
    sharded = True
    needs = (HasFusionQkv,)
    trainable = Method.fusion_qkv

    def step(self, batch: Tokens) -> Step:
        """Predict; the loss is `read_loss`."""
        logits = self.forward(batch).logits
        return Step(logits, read_loss(logits))

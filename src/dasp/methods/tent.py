"""Tent: minimise the entropy of the predictions with the affine parameters of the norms."""

from collections.abc import Iterable

from torch import nn

from dasp.core.types import Inputs, Step
from dasp.methods.base import METHODS, Method
from dasp.methods.losses import entropy


@METHODS.register("tent")
class Tent(Method):
    """L = mean H(p), on every LayerNorm.

    Paper: Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021.
    """

    version = 1
    published = "2021-05"
    sharded = True
    tunes_encoder = True

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train the affine parameters of all LayerNorms."""
        return self.layer_norms()

    def step(self, batch: Inputs) -> Step:
        """Predict; the loss is the mean entropy."""
        logits = self.forward(batch).logits
        return Step(logits, entropy(logits).mean())

"""Tent: minimise the entropy of the predictions with the affine parameters of the norms."""

from dasp.core.types import Inputs, Step
from dasp.methods.base import METHODS, Method
from dasp.methods.losses import entropy


@METHODS.register("tent")
class Tent(Method):
    """L = mean H(p), on every norm.

    Paper: Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021.
    """

    version = 1
    published = "2021-05"
    sharded = True
    tunes_encoder = True
    trainable = Method.norms

    def step(self, batch: Inputs) -> Step:
        """Predict; the loss is the mean entropy."""
        logits = self.forward(batch).logits
        return Step(logits, entropy(logits).mean())

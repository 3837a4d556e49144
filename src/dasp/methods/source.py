"""Source: the model as trained, never updated. The line every other method is measured from."""

from collections.abc import Iterable

from torch import nn

from dasp.core.types import Step, Tokens
from dasp.methods.base import METHODS, Method


@METHODS.register("source")
class Source(Method):
    """No adaptation.

    Paper: the baseline row of every test-time adaptation paper, such as Wang et al.,
    "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021.
    """

    def trainable(self) -> Iterable[nn.Parameter]:
        """Train nothing."""
        return ()

    def step(self, batch: Tokens) -> Step:
        """Predict."""
        return Step(self.forward(batch).logits)

"""Source: the model as trained, never updated; the baseline of every comparison."""

from dasp.core.types import Step, Tokens
from dasp.methods.base import METHODS, Method


@METHODS.register("source")
class Source(Method):
    """No adaptation.

    Paper: the baseline row of every test-time adaptation paper, such as Wang et al.,
    "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021.
    """

    version = 1
    published = "2021-05"
    sharded = True

    def step(self, batch: Tokens) -> Step:
        """Predict."""
        return Step(self.forward(batch).logits, skipped="Source never learns")

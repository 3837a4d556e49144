"""A small model and a small method, as a user would write them, for runs in the tests."""

import torch

import dasp
from dasp.core.types import Step
from dasp.methods.losses import entropy
from dasp.models import CavMae, CavMaeDepth


def build():
    """An untrained CAV-MAE of the built-in set's shape."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return CavMae(
            embed_dim=16, num_heads=2, depth=1, mlp_ratio=1.0,
            audio_length=64, image_size=64, num_classes=36,
        )  # fmt: skip


def build_three():
    """The same with a third sensor."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return CavMaeDepth(
            embed_dim=16, num_heads=2, depth=1, mlp_ratio=1.0,
            audio_length=64, image_size=64, num_classes=36, range_blocks=1,
        )  # fmt: skip


class Mine(dasp.Method):
    """Entropy on the fusion.

    Paper: Nobody, "Nothing", Nowhere 2026.
    """

    def __init__(self, model, *, weight: float = 1.0, seed: int = 0):
        super().__init__(model, seed=seed)
        self.weight = weight

    def trainable(self):
        return self.model.fusion_qkv()

    def step(self, batch):
        logits = self.forward(batch).logits
        return Step(logits, self.weight * entropy(logits).mean())

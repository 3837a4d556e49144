"""Benchmark your own method and model without changing the package.

    dasp bench --add examples/own_method.py:LastBlockTent --methods source dasp \
        --models examples/own_method.py:build --samples 128

`build` returns any model that fulfils the contract; here it is one that comes with the package.
"""

from collections.abc import Iterable

import torch
from torch import nn

import dasp
from dasp.core.types import Step
from dasp.methods.losses import entropy, entropy_of_mean
from dasp.models.weights import pretrained_path


class LastBlockTent(dasp.Method):
    """L = mean H − weight·H(mean p), on the fusion's query, key and value maps.

    Paper: an example, after Wang et al., "Tent: Fully Test-Time Adaptation by Entropy
    Minimization", ICLR 2021.
    """

    version = 1

    def __init__(self, model: nn.Module, *, diversity: float = 1.0, seed: int = 0) -> None:
        super().__init__(model, seed=seed)
        self.diversity = diversity

    def trainable(self) -> Iterable[nn.Parameter]:
        return self.model.fusion_qkv()

    def step(self, batch: dict[str, torch.Tensor]) -> Step:
        logits = self.forward(batch).logits
        return Step(logits, entropy(logits).mean() - self.diversity * entropy_of_mean(logits))


def build() -> nn.Module:
    return dasp.load_model("cav_mae", weights=pretrained_path("sounding_shapes_0"))


if __name__ == "__main__":
    dasp.check_method(LastBlockTent)
    print("LastBlockTent fulfils the contract")

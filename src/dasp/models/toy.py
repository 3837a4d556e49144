"""A small model with any number of modalities, for tests and examples."""

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Inputs
from dasp.models.layers import Block, TokenModel, own_norms


class Toy(TokenModel):
    """One linear encoder per modality (B, steps, features), and one shared attention block.

    `depth` adds transformer blocks to each encoder; prompts need at least one.

    >>> model = Toy(modalities=("audio", "video", "depth"), num_classes=5)
    >>> inputs = {name: torch.zeros(2, 4, 12) for name in model.modalities}
    >>> tuple(model.fuse(model.encode(inputs)).logits.shape)
    (2, 5)
    """

    def __init__(
        self,
        *,
        modalities: tuple[str, ...] = ("audio", "video"),
        features: int = 12,
        embed_dim: int = 32,
        num_heads: int = 2,
        num_classes: int = 8,
        depth: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.modalities = tuple(modalities)
        self.features, self.embed_dim, self.num_classes = features, embed_dim, num_classes
        self.config = {
            "modalities": list(modalities), "features": features, "embed_dim": embed_dim,
            "num_heads": num_heads, "num_classes": num_classes, "depth": depth, "seed": seed,
        }  # fmt: skip
        size = (embed_dim, num_heads, 2.0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoders = nn.ModuleDict()
            for name in modalities:
                first = nn.Linear(features, embed_dim)
                self.encoders[name] = nn.Sequential(first, nn.GELU(), nn.LayerNorm(embed_dim))
            self.block = Block(*size)
            self.norm = nn.LayerNorm(embed_dim)
            self.own_norm = own_norms(embed_dim, modalities)
            self.head = nn.Linear(embed_dim, num_classes)
            self.blocks = nn.ModuleDict(
                {name: nn.Sequential(*(Block(*size) for _ in range(depth))) for name in modalities}
            )

    @property
    def shared_blocks(self) -> list[Block]:  # type: ignore[override]
        """Return the only block of the fusion."""
        return [self.block]

    def embed(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tokens that enter the first block: (B, steps, features) → (B, steps, D)."""
        for name, value in inputs.items():
            if value.ndim != 3 or value.shape[2] != self.features:
                wanted = f"this model takes (B, steps, {self.features})"
                raise InputError(f"'{name}' has shape {tuple(value.shape)}, {wanted}.")
        return {name: self.encoders[name](value) for name, value in inputs.items()}

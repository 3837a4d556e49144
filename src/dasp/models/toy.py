"""A small model with any number of modalities, for tests and examples."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Attention, Fused, Inputs, Layered, Tokens
from dasp.models.layers import Block, run_prompted


class Toy(nn.Module):
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
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoders = nn.ModuleDict(
                {
                    name: nn.Sequential(
                        nn.Linear(features, embed_dim), nn.GELU(), nn.LayerNorm(embed_dim)
                    )
                    for name in modalities
                }
            )
            self.block = Block(embed_dim, num_heads, mlp_ratio=2.0)
            self.norm = nn.LayerNorm(embed_dim)
            self.own_norm = nn.ModuleDict({name: nn.LayerNorm(embed_dim) for name in modalities})
            self.head = nn.Linear(embed_dim, num_classes)
            self.blocks = nn.ModuleDict(
                {
                    name: nn.Sequential(*(Block(embed_dim, num_heads, 2.0) for _ in range(depth)))
                    for name in modalities
                }
            )

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode any subset: (B, steps, features) → (B, steps, D)."""
        return {name: self.blocks[name](x) for name, x in self.embed(inputs).items()}

    def encoder_depth(self) -> dict[str, int]:
        """Return the number of blocks of each encoder."""
        return {name: len(self.blocks[name]) for name in self.modalities}  # type: ignore[arg-type]

    def embed(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tokens that enter the first block: (B, steps, features) → (B, steps, D)."""
        for name, value in inputs.items():
            if value.ndim != 3 or value.shape[2] != self.features:
                raise InputError(
                    f"'{name}' has shape {tuple(value.shape)}, this model takes "
                    f"(B, steps, {self.features})."
                )
        return {name: self.encoders[name](value) for name, value in inputs.items()}

    def encode_prompted(
        self, embedded: Tokens, prompts: Mapping[str, Tensor]
    ) -> dict[str, Layered]:
        """Run the blocks with prompts (L, P, D) before each, removed after it."""
        return {
            name: run_prompted(self.blocks[name], self.block.norm1, x, prompts.get(name))  # type: ignore[arg-type]
            for name, x in embedded.items()
        }

    def fuse(self, tokens: Tokens) -> Fused:
        """Fuse any non-empty subset with the shared block."""
        return self._classify(self.block(torch.cat(self._ordered(tokens), dim=1)))

    def fuse_with_attention(self, tokens: Tokens) -> Fused:
        """Fuse, with the shared block's attention weights."""
        parts = self._ordered(tokens)
        x, weights = self.block.with_weights(torch.cat(parts, dim=1))
        ends = torch.tensor([part.shape[1] for part in parts]).cumsum(0).tolist()
        present = [name for name in self.modalities if name in tokens]
        spans = {
            name: slice(end - part.shape[1], end)
            for name, part, end in zip(present, parts, ends, strict=True)
        }
        return self._classify(x, Attention(weights, spans))

    def fuse_own_norm(self, tokens: Tokens) -> Fused:
        """Fuse one modality, with its own norm at the end."""
        ((name, x),) = tokens.items()
        embedding = self.own_norm[name](self.block(x)).mean(dim=1)
        return Fused(embedding, self.head(embedding))

    def fusion_qkv(self) -> list[nn.Parameter]:
        """Return weight and bias of the shared block's query-key-value layer."""
        return list(self.block.attn.qkv.parameters())

    def forward(self, inputs: Inputs) -> Tensor:
        """Predict: {name: raw} → logits (B, C)."""
        return self.fuse(self.encode(inputs)).logits

    def _ordered(self, tokens: Tokens) -> list[Tensor]:
        return [tokens[name] for name in self.modalities if name in tokens]

    def _classify(self, x: Tensor, attention: Attention | None = None) -> Fused:
        embedding = self.norm(x).mean(dim=1)
        return Fused(embedding, self.head(embedding), attention)

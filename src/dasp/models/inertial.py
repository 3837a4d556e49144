"""A model for body-worn sensors: one CNN with BatchNorm per sensor, a transformer as fusion."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Inputs, Layers
from dasp.models.layers import Block, TokenModel, own_norms, sincos_positions

KERNEL = 5
LAYER = ("convolution", "norm", "activation", "dropout")  # parts of a layer of a CNN


class InertialNet(TokenModel):
    """Signals (B, channels, steps) per sensor → logits (B, C).

    Each encoder halves the number of steps with every layer of `widths`, and once more with the
    layer that makes tokens. Its BatchNorms use the statistics of training while it is evaluated
    and adapted. There are no prompts: a CNN has no layers of tokens to put them before.

    >>> model = InertialNet(channels={"accelerometer": 15, "gyroscope": 15}, num_classes=19)
    >>> tokens = model.encode({"gyroscope": torch.zeros(2, 15, 125)})
    >>> tuple(tokens["gyroscope"].shape), tuple(model.fuse(tokens).logits.shape)
    ((2, 16, 64), (2, 19))
    """

    encoder_depth = encode_prompted = encode_carrying = None  # type: ignore[assignment]

    def __init__(
        self,
        *,
        channels: dict[str, int],
        steps: int = 125,
        widths: Sequence[int] = (32, 48),
        embed_dim: int = 64,
        num_heads: int = 4,
        fusion_depth: int = 1,
        mlp_ratio: float = 2.0,
        dropout: float = 0.0,
        num_classes: int = 19,
    ) -> None:
        super().__init__()
        self.modalities = tuple(channels)
        self.embed_dim, self.num_classes = embed_dim, num_classes
        self.config: dict[str, Any] = {
            "channels": dict(channels), "steps": steps, "widths": list(widths),
            "embed_dim": embed_dim, "num_heads": num_heads, "fusion_depth": fusion_depth,
            "mlp_ratio": mlp_ratio, "dropout": dropout, "num_classes": num_classes,
        }  # fmt: skip
        sizes = [*widths, embed_dim]
        self.encoders = nn.ModuleDict(
            {name: _cnn([count, *sizes], dropout) for name, count in channels.items()}
        )
        tokens = steps
        for _ in sizes:
            tokens = -(-tokens // 2)
        self.position = nn.Parameter(sincos_positions(1, tokens, embed_dim))
        self.modality_vectors = nn.ParameterDict(
            {name: torch.randn(1, 1, embed_dim) * 0.02 for name in channels}
        )
        size = (embed_dim, num_heads, mlp_ratio)
        self.shared_blocks = nn.ModuleList(  # type: ignore[assignment]
            Block(*size) for _ in range(fusion_depth)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.own_norm = own_norms(embed_dim, channels)
        self.head = nn.Linear(embed_dim, num_classes)

    def layers(self) -> Layers:
        """Return the layers of each CNN, the blocks of the fusion, and norm and head."""
        parts = len(LAYER)
        encoders = {
            name: [cnn[start : start + parts] for start in range(0, len(cnn), parts)]  # type: ignore[arg-type,index]
            for name, cnn in self.encoders.items()
        }
        return Layers(encoders, list(self.shared_blocks), [self.norm, self.head])

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode any subset: {name: (B, channels, steps)} → {name: (B, N, D)}."""
        return {name: self._encode_one(name, value) for name, value in inputs.items()}

    def _encode_one(self, name: str, value: Tensor) -> Tensor:
        expected = (self.config["channels"][name], self.config["steps"])
        if tuple(value.shape[1:]) != expected:
            raise InputError(
                f"'{name}' has shape {tuple(value.shape)}, expected (B, {expected[0]}, "
                f"{expected[1]})."
            )
        x = self.encoders[name](value).transpose(1, 2)  # (B, D, N) → (B, N, D)
        return x + self.position + self.modality_vectors[name]  # type: ignore[no-any-return]


def _cnn(sizes: Sequence[int], dropout: float) -> nn.Sequential:
    """Return (B, sizes[0], steps) → (B, sizes[-1], steps / 2 ** layers)."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [
            nn.Conv1d(before, after, KERNEL, stride=2, padding=KERNEL // 2, bias=False),
            nn.BatchNorm1d(after),
            nn.ReLU(),
            nn.Dropout(dropout),
        ]
    return nn.Sequential(*layers)

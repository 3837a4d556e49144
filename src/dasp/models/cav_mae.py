"""CAV-MAE, fine-tuned for classification: one ViT per modality and one shared block.

Gong et al., "Contrastive Audio-Visual Masked Autoencoder", ICLR 2023. Sizes default to the
published ViT-B; any other size works. Shapes are noted where they change. `CavMaeDepth` adds a
third sensor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError, OptionError
from dasp.core.types import Fused, Inputs, Tokens
from dasp.models.layers import Block, Prepared, TokenModel, own_norms, sincos_positions

MODALITIES = ("audio", "video")
DEPTH_CHANNELS = 3  # inverse distance and two slopes, see `dasp.data.shapes.depth_input`


class OwnNormBlock(Block):
    """A block with an additional pair of norms per modality, as published."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float) -> None:
        super().__init__(dim, num_heads, mlp_ratio)
        self.own_norm1 = own_norms(dim, MODALITIES)
        self.own_norm2 = own_norms(dim, MODALITIES)

    def in_order(self) -> list[nn.Module]:
        """Return its parts in the published order."""
        return [self.norm1, self.own_norm1, self.attn, self.norm2, self.own_norm2, self.mlp]

    def alone(self, x: Tensor, name: str) -> Tensor:
        """(B, N, D) → (B, N, D), with the norms of one modality."""
        x = x + self.attn(self.own_norm1[name](x))
        return x + self.mlp(self.own_norm2[name](x))  # type: ignore[no-any-return]


class CavMae(TokenModel):
    """Audio (B, audio_length, mel_bins) and video (B, 3, image_size, image_size) → logits (B, C).

    >>> model = CavMae(embed_dim=32, num_heads=2, depth=2, audio_length=32, image_size=32,
    ...                num_classes=10)
    >>> tokens = model.encode({"audio": torch.zeros(4, 32, 128),
    ...                        "video": torch.zeros(4, 3, 32, 32)})
    >>> tuple(tokens["audio"].shape), tuple(tokens["video"].shape)
    ((4, 16, 32), (4, 4, 32))
    >>> tuple(model.fuse({"audio": tokens["audio"]}).logits.shape)
    (4, 10)
    """

    modalities: tuple[str, ...] = MODALITIES
    shared_blocks: Sequence[OwnNormBlock]

    def __init__(
        self,
        *,
        embed_dim: int = 768,
        num_heads: int = 12,
        depth: int = 11,
        fusion_depth: int = 1,
        mlp_ratio: float = 4.0,
        audio_length: int = 1024,
        mel_bins: int = 128,
        image_size: int = 224,
        patch: int = 16,
        num_classes: int = 309,
    ) -> None:
        sizes = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        for name in ("audio_length", "mel_bins", "image_size"):
            _check_multiple(sizes, name, "patch")
        _check_multiple(sizes, "embed_dim", "num_heads")
        super().__init__()
        self.config = sizes
        self.embed_dim, self.num_classes = embed_dim, num_classes
        pictures = (3, image_size, image_size)
        self.input_shapes = {"audio": (audio_length, mel_bins), "video": pictures}
        side = image_size // patch
        grids = {"audio": (mel_bins // patch, audio_length // patch), "video": (side, side)}
        channels = {"audio": 1, "video": 3}
        self.patch_embed = nn.ModuleDict(
            {n: nn.Conv2d(count, embed_dim, patch, stride=patch) for n, count in channels.items()}
        )
        self.positions = nn.ParameterDict(
            {name: sincos_positions(*grids[name], embed_dim) for name in MODALITIES}
        )
        self.modality_vectors = nn.ParameterDict(
            {name: torch.randn(1, 1, embed_dim) * 0.02 for name in MODALITIES}
        )
        size = (embed_dim, num_heads, mlp_ratio)
        self.blocks = nn.ModuleDict({name: _stack(depth, size) for name in MODALITIES})
        self.shared_blocks = _stack(fusion_depth, size)  # type: ignore[assignment]
        self.norm = nn.LayerNorm(embed_dim)
        self.own_norm = own_norms(embed_dim, MODALITIES)
        self.head = nn.Sequential(nn.LayerNorm(embed_dim), nn.Linear(embed_dim, num_classes))

    def weight_order(self) -> list[nn.Parameter]:
        """Return all weights and biases in the order of the published model's definition."""
        parts: list[nn.Module] = [*self.patch_embed.values()]
        blocks = [*(block for stack in self.layers().encoders.values() for block in stack)]
        parts += [part for block in [*blocks, *self.shared_blocks] for part in block.in_order()]  # type: ignore[operator]
        parts += [self.own_norm, self.norm, self.head]
        return [weight for part in parts for weight in part.parameters()]

    def embed(self, inputs: Inputs) -> dict[str, Tensor]:
        """Turn any subset of the modalities into patch tokens (B, N, D) with positions."""
        return {name: self._embed_one(name, value) for name, value in inputs.items()}

    def _embed_one(self, name: str, value: Tensor) -> Tensor:
        expected = self.input_shapes[name]
        if tuple(value.shape[1:]) != expected:
            wanted = ", ".join(map(str, ("B", *expected)))
            raise InputError(f"'{name}' has shape {tuple(value.shape)}, expected ({wanted}).")
        if name == "audio":
            value = value.unsqueeze(1).transpose(2, 3)  # (B, T, mel) → (B, 1, mel, T)
        x = self.patch_embed[name](value).flatten(2).transpose(1, 2)  # (B, D, h, w) → (B, N, D)
        return x + self.positions[name] + self.modality_vectors[name]  # type: ignore[no-any-return]

    def prepare_fusion(self, tokens: Tokens) -> Prepared:
        """Concatenate the tokens and compute their queries, keys and values."""
        x, spans = self._join(tokens)
        return Prepared(x, self.shared_blocks[0].start(x), spans)

    def fuse_prepared(self, prepared: Prepared, modalities: Sequence[str]) -> Fused:
        """Fuse some of the prepared modalities, as `fuse` does."""
        x = self.shared_blocks[0].finish(*prepared.of(modalities))
        for block in self.shared_blocks[1:]:
            x = block(x)
        return self._classify(x)


class CavMaeDepth(CavMae):
    """`CavMae` with a third sensor: depth (B, 3, range_size, range_size), with its own ViT.

    Further sizes are those of `CavMae`; `range_blocks` are the blocks of the third encoder.

    >>> model = CavMaeDepth(embed_dim=32, num_heads=2, depth=1, audio_length=32, image_size=32,
    ...                     num_classes=10)
    >>> tokens = model.encode({"depth": torch.zeros(4, 3, 32, 32)})
    >>> tuple(tokens["depth"].shape), tuple(model.fuse(tokens).logits.shape)
    ((4, 16, 32), (4, 10))
    """

    modalities = (*MODALITIES, "depth")

    def __init__(
        self, *, range_size: int = 32, range_patch: int = 8, range_blocks: int = 2, **sizes: Any
    ) -> None:
        super().__init__(**sizes)
        self.config |= {
            "range_size": range_size, "range_patch": range_patch, "range_blocks": range_blocks,
        }  # fmt: skip
        _check_multiple(self.config, "range_size", "range_patch")
        width, side = self.embed_dim, range_size // range_patch
        size = (width, self.config["num_heads"], self.config["mlp_ratio"])
        self.input_shapes["depth"] = (DEPTH_CHANNELS, range_size, range_size)
        self.patch_embed["depth"] = nn.Conv2d(DEPTH_CHANNELS, width, range_patch, range_patch)
        self.positions["depth"] = sincos_positions(side, side, width)
        self.modality_vectors["depth"] = torch.randn(1, 1, width) * 0.02
        self.blocks["depth"] = nn.ModuleList(Block(*size) for _ in range(range_blocks))
        own = [
            norms for block in self.shared_blocks for norms in (block.own_norm1, block.own_norm2)
        ]
        for norms in (*own, self.own_norm):
            norms["depth"] = nn.LayerNorm(width)


def _check_multiple(sizes: Mapping[str, Any], name: str, of: str) -> None:
    if sizes[name] % sizes[of]:
        raise OptionError(f"{name}={sizes[name]} is not a multiple of {of}={sizes[of]}.")


def _stack(count: int, size: tuple[int, int, float]) -> nn.ModuleList:
    return nn.ModuleList(OwnNormBlock(*size) for _ in range(count))

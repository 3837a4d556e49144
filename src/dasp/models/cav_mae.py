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
from dasp.core.types import Attention, Fused, Inputs, Layered, Tokens
from dasp.models.layers import Block, Prepared, run_prompted, sincos_positions

MODALITIES = ("audio", "video")
DEPTH_CHANNELS = 3  # inverse distance and two slopes, see `dasp.data.shapes.depth_input`


class OwnNormBlock(Block):
    """A block with an additional pair of norms per modality, as published."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float) -> None:
        super().__init__(dim, num_heads, mlp_ratio)
        self.own_norm1 = nn.ModuleDict({name: nn.LayerNorm(dim) for name in MODALITIES})
        self.own_norm2 = nn.ModuleDict({name: nn.LayerNorm(dim) for name in MODALITIES})

    def alone(self, x: Tensor, name: str) -> Tensor:
        """(B, N, D) → (B, N, D), with the norms of one modality."""
        x = x + self.attn(self.own_norm1[name](x))
        out: Tensor = x + self.mlp(self.own_norm2[name](x))
        return out


class CavMae(nn.Module):
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
        super().__init__()
        self.config = {key: value for key, value in locals().items() if _is_size(key)}
        _check_sizes(self.config)
        self.embed_dim, self.num_classes = embed_dim, num_classes
        self.input_shapes = {
            "audio": (audio_length, mel_bins),
            "video": (3, image_size, image_size),
        }
        grids = {
            "audio": (mel_bins // patch, audio_length // patch),
            "video": (image_size // patch, image_size // patch),
        }
        self.patch_embed = nn.ModuleDict(
            {
                "audio": nn.Conv2d(1, embed_dim, patch, stride=patch),
                "video": nn.Conv2d(3, embed_dim, patch, stride=patch),
            }
        )
        self.positions = nn.ParameterDict(
            {name: sincos_positions(*grids[name], embed_dim) for name in MODALITIES}
        )
        self.modality_vectors = nn.ParameterDict(
            {name: torch.randn(1, 1, embed_dim) * 0.02 for name in MODALITIES}
        )
        size = (embed_dim, num_heads, mlp_ratio)
        self.blocks = nn.ModuleDict(
            {name: _stack(depth, size) for name in MODALITIES},
        )
        self.shared_blocks = _stack(fusion_depth, size)
        self.norm = nn.LayerNorm(embed_dim)
        self.own_norm = nn.ModuleDict({name: nn.LayerNorm(embed_dim) for name in MODALITIES})
        self.head = nn.Sequential(nn.LayerNorm(embed_dim), nn.Linear(embed_dim, num_classes))

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode any subset of the modalities to tokens (B, N, D)."""
        return {name: self._encode_one(name, value) for name, value in inputs.items()}

    def fuse(self, tokens: Tokens) -> Fused:
        """Fuse any non-empty subset, audio tokens first, with the shared blocks and norms."""
        x, _ = self._join(tokens)
        return self._fuse_joined(x, self.shared_blocks[0].start(x))  # type: ignore[operator]

    def prepare_fusion(self, tokens: Tokens) -> Prepared:
        """Concatenate the tokens and compute their queries, keys and values."""
        x, spans = self._join(tokens)
        return Prepared(x, self.shared_blocks[0].start(x), spans)  # type: ignore[operator]

    def fuse_prepared(self, prepared: Prepared, modalities: Sequence[str]) -> Fused:
        """Fuse some of the prepared modalities, as `fuse` does."""
        return self._fuse_joined(*prepared.of(modalities))

    def fuse_with_attention(self, tokens: Tokens) -> Fused:
        """Fuse, and return the attention weights of the last shared block, differentiable."""
        x, spans = self._join(tokens)
        for block in self.shared_blocks[:-1]:
            x = block(x)
        x, weights = self.shared_blocks[-1].with_weights(x)  # type: ignore[operator]
        return self._classify(x, Attention(weights, spans))

    def fuse_own_norm(self, tokens: Tokens) -> Fused:
        """Fuse one modality with its own norms, as in CAV-MAE's pre-training."""
        ((name, x),) = tokens.items()
        for block in self.shared_blocks:
            x = block.alone(x, name)  # type: ignore[operator]
        embedding = self.own_norm[name](x).mean(dim=1)  # (B, N, D) → (B, D)
        return Fused(embedding, self.head(embedding))

    def encoder_depth(self) -> dict[str, int]:
        """Return the number of blocks of each encoder."""
        return {name: len(self.blocks[name]) for name in self.modalities}  # type: ignore[arg-type]

    def embed(self, inputs: Inputs) -> dict[str, Tensor]:
        """Turn any subset of the modalities into patch tokens (B, N, D) with positions."""
        return {name: self._embed_one(name, value) for name, value in inputs.items()}

    def encode_prompted(
        self, embedded: Tokens, prompts: Mapping[str, Tensor]
    ) -> dict[str, Layered]:
        """Encode embedded tokens with prompts (L, P, D) before each block, removed after it."""
        norm = self.shared_blocks[0].norm1
        return {
            name: run_prompted(self.blocks[name], norm, x, prompts.get(name))  # type: ignore[arg-type]
            for name, x in embedded.items()
        }

    def fusion_qkv(self) -> list[nn.Parameter]:
        """Return weight and bias of the fused query-key-value map of each shared block."""
        return [part for block in self.shared_blocks for part in block.attn.qkv.parameters()]  # type: ignore[union-attr]

    def forward(self, inputs: Inputs) -> Tensor:
        """Predict: {name: raw} → logits (B, C)."""
        return self.fuse(self.encode(inputs)).logits

    def _encode_one(self, name: str, value: Tensor) -> Tensor:
        x = self._embed_one(name, value)
        for block in self.blocks[name]:  # type: ignore[attr-defined]
            x = block(x)
        return x

    def _embed_one(self, name: str, value: Tensor) -> Tensor:
        expected = self.input_shapes[name]
        if tuple(value.shape[1:]) != expected:
            raise InputError(
                f"'{name}' has shape {tuple(value.shape)}, expected (B, "
                f"{', '.join(map(str, expected))})."
            )
        if name == "audio":
            value = value.unsqueeze(1).transpose(2, 3)  # (B, T, mel) → (B, 1, mel, T)
        x = self.patch_embed[name](value).flatten(2).transpose(1, 2)  # (B, D, h, w) → (B, N, D)
        return x + self.positions[name] + self.modality_vectors[name]  # type: ignore[no-any-return]

    def _join(self, tokens: Tokens) -> tuple[Tensor, dict[str, slice]]:
        present = [name for name in self.modalities if name in tokens]
        if not present:
            raise InputError(f"fuse() needs tokens of at least one of {self.modalities}.")
        spans, start = {}, 0
        for name in present:
            spans[name] = slice(start, start + tokens[name].shape[1])
            start = spans[name].stop
        if len(present) == 1:
            return tokens[present[0]], spans
        return torch.cat([tokens[name] for name in present], dim=1), spans

    def _fuse_joined(self, x: Tensor, qkv: Tensor) -> Fused:
        """Run the shared blocks on (B, N, D), given the (B, N, 3D) of the first one."""
        first, *others = self.shared_blocks
        x = first.finish(x, qkv)  # type: ignore[operator]
        for block in others:
            x = block(x)
        return self._classify(x)

    def _classify(self, x: Tensor, attention: Attention | None = None) -> Fused:
        embedding = self.norm(x).mean(dim=1)  # (B, N, D) → (B, D)
        return Fused(embedding, self.head(embedding), attention)


class CavMaeDepth(CavMae):
    """`CavMae` with a third sensor: depth (B, 3, range_size, range_size), with its own ViT.

    Prompts, own norms and attention maps work for depth too. Further sizes are those of `CavMae`;
    `range_blocks` is the number of blocks of the third encoder.

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
        own = {"range_size": range_size, "range_patch": range_patch, "range_blocks": range_blocks}
        if range_size % range_patch:
            raise OptionError(f"range_size={range_size} is not a multiple of {range_patch=}.")
        width, heads = self.embed_dim, self.config["num_heads"]
        ratio, side = self.config["mlp_ratio"], range_size // range_patch
        self.config |= own
        self.input_shapes["depth"] = (DEPTH_CHANNELS, range_size, range_size)
        self.patch_embed["depth"] = nn.Conv2d(
            DEPTH_CHANNELS, width, range_patch, stride=range_patch
        )
        self.positions["depth"] = nn.Parameter(sincos_positions(side, side, width))
        self.modality_vectors["depth"] = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.blocks["depth"] = nn.ModuleList(
            Block(width, heads, ratio) for _ in range(range_blocks)
        )
        for block in self.shared_blocks:
            block.own_norm1.update({"depth": nn.LayerNorm(width)})  # type: ignore[operator, union-attr]
            block.own_norm2.update({"depth": nn.LayerNorm(width)})  # type: ignore[operator, union-attr]
        self.own_norm["depth"] = nn.LayerNorm(width)


def _stack(depth: int, size: tuple[int, int, float]) -> nn.ModuleList:
    return nn.ModuleList(OwnNormBlock(*size) for _ in range(depth))


def _is_size(key: str) -> bool:
    return key not in ("self", "__class__")


def _check_sizes(config: dict[str, Any]) -> None:
    patch = config["patch"]
    for name in ("audio_length", "mel_bins", "image_size"):
        if config[name] % patch:
            raise OptionError(f"{name}={config[name]} is not a multiple of patch={patch}.")
    if config["embed_dim"] % config["num_heads"]:
        raise OptionError(
            f"embed_dim={config['embed_dim']} is not a multiple of num_heads={config['num_heads']}."
        )

"""CAV-MAE with a third sensor: one more ViT, for range pictures, before the same shared block."""

from typing import Any

import torch
from torch import nn

from dasp.core.errors import OptionError
from dasp.models.cav_mae import MODALITIES, CavMae
from dasp.models.layers import Block, sincos_positions

CHANNELS = 3  # inverse distance and two slopes, see `dasp.data.shapes.depth_input`


class CavMaeDepth(CavMae):
    """Audio and video as `CavMae` takes them, depth (B, 3, range_size, range_size) → logits.

    All that `CavMae` offers (prompts, own norms, attention maps) holds for depth too. Further
    sizes are those of `CavMae`; `range_blocks` is the number of blocks of the third encoder.

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
        self.input_shapes["depth"] = (CHANNELS, range_size, range_size)
        self.patch_embed["depth"] = nn.Conv2d(CHANNELS, width, range_patch, stride=range_patch)
        self.positions["depth"] = nn.Parameter(sincos_positions(side, side, width))
        self.modality_vectors["depth"] = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.blocks["depth"] = nn.ModuleList(
            Block(width, heads, ratio) for _ in range(range_blocks)
        )
        for block in self.shared_blocks:
            block.own_norm1.update({"depth": nn.LayerNorm(width)})  # type: ignore[operator, union-attr]
            block.own_norm2.update({"depth": nn.LayerNorm(width)})  # type: ignore[operator, union-attr]
        self.own_norm["depth"] = nn.LayerNorm(width)

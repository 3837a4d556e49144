"""CAV-MAE for clips whose video is a sequence of frames, cut into space-time tokens."""

from typing import Any

from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.models.cav_mae import CavMae, _check_multiple
from dasp.models.layers import sincos_positions


class CavMaeClips(CavMae):
    """Audio (B, audio_length, mel_bins) and grey video (B, frames, image_size, image_size).

    A video token is a tube: `tube` successive frames of one patch. Further sizes are those of
    `CavMae`, whose blocks, fusion and head are used as they are.

    >>> import torch
    >>> model = CavMaeClips(embed_dim=32, num_heads=2, depth=1, audio_length=32, image_size=32,
    ...                     frames=6, tube=3, num_classes=10)
    >>> tokens = model.encode({"video": torch.zeros(4, 6, 32, 32)})
    >>> tuple(tokens["video"].shape), tuple(model.fuse(tokens).logits.shape)
    ((4, 8, 32), (4, 10))
    """

    def __init__(self, *, frames: int = 15, tube: int = 3, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.config |= {"frames": frames, "tube": tube}
        _check_multiple(self.config, "frames", "tube")
        side, patch = self.config["image_size"], self.config["patch"]
        self.input_shapes["video"] = (frames, side, side)
        # The frames of a tube are the channels of a patch.
        self.patch_embed["video"] = nn.Conv2d(tube, self.embed_dim, patch, stride=patch)
        rows = frames // tube * (side // patch)
        self.positions["video"] = sincos_positions(rows, side // patch, self.embed_dim)

    def _embed_one(self, name: str, value: Tensor) -> Tensor:
        if name != "video":
            return super()._embed_one(name, value)
        if tuple(value.shape[1:]) != self.input_shapes[name]:
            raise InputError(
                f"'video' has shape {tuple(value.shape)}, expected (B, "
                f"{', '.join(map(str, self.input_shapes[name]))})."
            )
        tubes = value.reshape(-1, self.config["tube"], *value.shape[2:])  # (B·F/t, t, H, W)
        x = self.patch_embed[name](tubes)  # (B·F/t, D, h, w)
        x = x.flatten(2).transpose(1, 2)  # (B·F/t, h·w, D)
        x = x.reshape(len(value), -1, self.embed_dim)  # (B, F/t·h·w, D)
        return x + self.positions[name] + self.modality_vectors[name]  # type: ignore[no-any-return]

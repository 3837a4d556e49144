"""Adapt a dual encoder of CLIP's kind: two towers in one space, and a prompt per class.

    .venv/bin/python examples/dual_encoder.py

There is no head to name: the logits are similarities to the prompts, so they serve as embedding.
The weights are random: this shows the calls, not a gain.
"""

import torch
import torch.nn.functional as F
from torch import nn

import dasp


class Dual(nn.Module):
    """Compare the mean of sound and image, in a common space, with the prompt of each class."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(48, 4, 96, 0.0, batch_first=True)
        self.image_patches, self.image_tower = (
            nn.Conv2d(3, 48, 8, 8),
            nn.TransformerEncoder(layer, 2),
        )
        self.audio_tower = nn.GRU(32, 40, batch_first=True)
        self.image_map, self.audio_map = nn.Linear(48, 64), nn.Linear(40, 64)
        self.prompts, self.scale = (
            nn.Parameter(torch.randn(10, 64)),
            nn.Parameter(torch.tensor(9.0)),
        )

    def forward(self, pixels, waves):
        patches = self.image_patches(pixels).flatten(2).transpose(1, 2)
        image = self.image_map(self.image_tower(patches).mean(dim=1))
        sound = self.audio_map(self.audio_tower(waves)[0].mean(dim=1))
        both = F.normalize(image, dim=1) + F.normalize(sound, dim=1)
        return self.scale * F.normalize(both, dim=1) @ F.normalize(self.prompts, dim=1).T


def main() -> None:
    torch.manual_seed(0)
    model = Dual().eval()
    inputs = {"image": torch.randn(64, 3, 32, 32), "audio": torch.randn(64, 20, 32)}
    found = dasp.inspect(model, inputs)
    wrapped = dasp.wrap(model, **found, inputs=inputs)
    for method in ("tent", "dasp"):
        tta = dasp.adapt(wrapped, method, lr=1e-3)
        dark = {**inputs, "image": 0.05 * inputs["image"]}
        outs = {name: tta(batch) for name, batch in {"clean": inputs, "dark": dark}.items()}
        print(method, {name: f"updated {out.updated}" for name, out in outs.items()})


if __name__ == "__main__":
    main()

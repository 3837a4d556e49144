"""Adapt a model of your own: three sensors, thirty lines, no base class.

    .venv/bin/python examples/own_model.py

The model is untrained and the data random: the point is what a model must have, and what a call
gives back.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

import dasp


class ThreeSensors(nn.Module):
    """Encoders of your choice, one fusion that takes any non-empty subset of their tokens."""

    modalities, embed_dim, num_classes = ("audio", "video", "depth"), 64, 10

    def __init__(self) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict(
            {
                "audio": nn.Linear(40, 64),  # (B, frames, 40)
                "video": nn.Linear(48, 64),  # (B, patches, 48)
                "depth": nn.Linear(16, 64),  # (B, points, 16)
            }
        )
        self.mix = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
        self.head = nn.Linear(64, 10)

    def encode(self, inputs):
        return {name: self.encoders[name](value) for name, value in inputs.items()}

    def fuse(self, tokens):
        embedding = self.mix(torch.cat(list(tokens.values()), dim=1)).mean(dim=1)
        return dasp.Fused(embedding, self.head(embedding))


def batch(shift: float = 0.0) -> dict[str, torch.Tensor]:
    return {
        "audio": torch.randn(32, 20, 40) + shift,
        "video": torch.randn(32, 16, 48),
        "depth": torch.randn(32, 8, 16),
    }


def main() -> None:
    torch.manual_seed(0)
    model = ThreeSensors().eval()
    dasp.check_model(model, batch())
    tta = dasp.adapt(model, "dasp")
    print(tta.trainable)
    for name, inputs in {"clean": batch(), "audio shifted": batch(shift=2.0)}.items():
        out = tta(inputs)
        scores = {sensor: round(score, 3) for sensor, score in out.diagnosis.scores.items()}
        print(
            f"{name}: redundancy {scores}, biased {set(out.diagnosis.biased)}, learnt {out.updated}"
        )
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state.safetensors"
        tta.save(state)
        tta(batch(shift=2.0))
        tta.load(state)  # roll back
        print(f"state: {state.stat().st_size / 1024:.0f} KiB")
    spoilt = batch()
    spoilt["video"][3] = torch.nan
    print("a broken frame:", tta(spoilt).rejected)
    tta.reset()


if __name__ == "__main__":
    main()

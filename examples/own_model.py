"""Adapt a model of your own: three sensors, no base class.

    .venv/bin/python examples/own_model.py

A small model is trained for a few seconds on synthetic sensors, then one of them is shifted.
"""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import dasp

CLASSES, STEPS, FEATURES = 10, 4, 16


class ThreeSensors(nn.Module):
    """Encoders of your choice, and a fusion that accepts any non-empty subset of their tokens."""

    modalities, embed_dim, num_classes = ("audio", "video", "depth"), 64, CLASSES

    def __init__(self) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({name: nn.Linear(FEATURES, 64) for name in self.modalities})
        self.mix = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(64, CLASSES)

    def encode(self, inputs):
        return {name: self.encoders[name](value) for name, value in inputs.items()}

    def fuse(self, tokens):
        embedding = self.mix(torch.cat(list(tokens.values()), dim=1)).mean(dim=1)
        return dasp.Fused(embedding, self.head(embedding))


def batch(patterns: torch.Tensor, audio_offset: float = 0.0) -> tuple[dict, torch.Tensor]:
    """Return 64 samples: the pattern of the class plus noise, for each sensor."""
    labels = torch.randint(CLASSES, (64,))
    names = ThreeSensors.modalities
    noisy = {
        n: p[labels] + 2 * torch.randn(64, STEPS, FEATURES)
        for n, p in zip(names, patterns, strict=True)
    }
    noisy["audio"] = noisy["audio"] + audio_offset
    return noisy, labels


def train(model: nn.Module, patterns: torch.Tensor) -> None:
    """Train on all sensors and on each alone, so that the fusion learns each of them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(150):
        inputs, labels = batch(patterns)
        tokens = model.encode(inputs)
        views = [tokens, *({name: value} for name, value in tokens.items())]
        loss = sum(F.cross_entropy(model.fuse(view).logits, labels) for view in views)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    patterns, model = torch.randn(3, CLASSES, STEPS, FEATURES), ThreeSensors()
    train(model, patterns)
    dasp.check_model(model, batch(patterns)[0])
    source, tta = dasp.adapt(model, "source"), dasp.adapt(model, "dasp", lr=1e-3)
    print(str(tta.trainable).splitlines()[0])
    for name, offset in {"clean": 0.0, "audio shifted": 2.0}.items():
        right = {"source": 0, "dasp": 0}
        for _ in range(40):
            inputs, labels = batch(patterns, offset)
            out = tta(inputs)
            right["dasp"] += int((out.logits.argmax(1) == labels).sum())
            right["source"] += int((source(inputs).logits.argmax(1) == labels).sum())
        scores = {sensor: round(score, 2) for sensor, score in out.diagnosis.scores.items()}
        accuracy = {method: f"{100 * count / (40 * 64):.1f}%" for method, count in right.items()}
        print(
            f"{name}: redundancy {scores}, biased {set(out.diagnosis.biased) or 'none'}, {accuracy}"
        )
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state.safetensors"
        tta.save(state)
        tta(batch(patterns, 2.0)[0])
        tta.load(state)  # roll back
        print(f"state: {state.stat().st_size / 1024:.0f} KiB")
    spoilt, _ = batch(patterns)
    spoilt["video"][3] = torch.nan
    print("a broken frame:", tta(spoilt).rejected)
    tta.reset()


if __name__ == "__main__":
    main()

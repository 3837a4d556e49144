"""Adapt an existing model(audio, video) -> logits by the names of its modules.

    .venv/bin/python examples/existing_model.py

The model is trained for a few seconds on synthetic sensors. Then its sound fades, and DASP adapts
it. No line of the model is written for this library.
"""

import torch
import torch.nn.functional as F
from torch import nn

import dasp

CLASSES = 10


class LateFusion(nn.Module):
    """Two convolutional encoders of different widths, joined by concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.audio_net = nn.Sequential(nn.Conv1d(1, 24, 9, 4), nn.ReLU(), nn.Conv1d(24, 32, 5))
        self.vision = nn.ModuleDict(
            {"trunk": nn.Sequential(nn.Conv2d(1, 24, 3), nn.ReLU(), nn.Conv2d(24, 48, 3, 2))}
        )
        self.mix = nn.Sequential(nn.Linear(80, 64), nn.ReLU())
        self.classifier = nn.Linear(64, CLASSES)

    def forward(self, audio, video):
        sound, sight = self.audio_net(audio).relu(), self.vision["trunk"](video).relu()
        both = torch.cat([sound.mean(dim=2), sight.mean(dim=(2, 3))], dim=1)
        return self.classifier(self.mix(both))


def draw(patterns: dict, faded: bool = False) -> tuple[dict, torch.Tensor]:
    """Return 64 samples of both sensors: the pattern of the class plus noise."""
    labels = torch.randint(CLASSES, (64,))
    inputs = {name: p[labels] + 0.7 * torch.randn_like(p[labels]) for name, p in patterns.items()}
    if faded:
        inputs["audio"] = 0.3 * inputs["audio"] + 1
    return inputs, labels


def main() -> None:
    torch.manual_seed(0)
    patterns = {"audio": torch.randn(CLASSES, 1, 16).repeat_interleave(4, dim=2)}
    patterns["video"] = torch.randn(CLASSES, 1, 8, 8)
    model = LateFusion()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(200):
        inputs, labels = draw(patterns)
        loss = F.cross_entropy(model(**inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    dasp.inspect(model, draw(patterns)[0])  # prints the next line
    wrapped = dasp.wrap(
        model,
        encoders={"audio": "audio_net", "video": "vision.trunk"},
        head="classifier",
        inputs=draw(patterns)[0],
    )
    source, tta = dasp.adapt(wrapped, "source"), dasp.adapt(wrapped, "dasp", lr=1e-3)
    for faded in (False, True):
        right = {"source": 0, "dasp": 0}
        for _ in range(30):
            inputs, labels = draw(patterns, faded)
            right["dasp"] += int((tta(inputs).logits.argmax(1) == labels).sum())
            right["source"] += int((source(inputs).logits.argmax(1) == labels).sum())
        shown = {name: f"{100 * count / (30 * 64):.1f}%" for name, count in right.items()}
        print("sound faded:" if faded else "clean:", shown)


if __name__ == "__main__":
    main()

"""Adapt a pair of CNNs with BatchNorm and late fusion, by the names of their modules.

    .venv/bin/python examples/cnn_batchnorm.py

Trained for a few seconds on synthetic sensors, then the picture loses contrast. Tent and EATA train
the BatchNorms and normalise by the statistics of each batch, which undoes most of such a damage.
"""

import torch
import torch.nn.functional as F
from torch import nn

import dasp

CLASSES = 10


def encoder(channels: int) -> nn.Sequential:
    """Return two convolutions with BatchNorm: (B, C, H, W) → (B, 32, H', W')."""
    first = (nn.Conv2d(channels, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU())
    return nn.Sequential(*first, nn.Conv2d(24, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU())


class TwoCnns(nn.Module):
    """An ordinary model(spectrogram, picture) -> logits."""

    def __init__(self) -> None:
        super().__init__()
        self.hears, self.sees = encoder(1), encoder(3)
        self.classifier = nn.Linear(64, CLASSES)

    def forward(self, spectrogram, picture):
        maps = self.hears(spectrogram), self.sees(picture)
        return self.classifier(torch.cat([own.mean(dim=(2, 3)) for own in maps], dim=1))


def draw(patterns: dict, pale: bool = False) -> tuple[dict, torch.Tensor]:
    """Return 64 samples of both sensors: the pattern of the class plus noise."""
    labels = torch.randint(CLASSES, (64,))
    inputs = {name: p[labels] + torch.randn_like(p[labels]) for name, p in patterns.items()}
    if pale:
        inputs["picture"] = 0.3 * inputs["picture"] + 1
    return inputs, labels


def main() -> None:
    torch.manual_seed(0)
    patterns = {
        "spectrogram": torch.randn(CLASSES, 1, 8, 12),
        "picture": torch.randn(CLASSES, 3, 8, 8),
    }
    model = TwoCnns()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        inputs, labels = draw(patterns)
        loss = F.cross_entropy(model(**inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

    for method in ("source", "tent", "eata"):
        torch.manual_seed(1)
        encoders = {"spectrogram": "hears", "picture": "sees"}
        wrapped = dasp.wrap(model, encoders=encoders, head="classifier", inputs=draw(patterns)[0])
        tta = dasp.adapt(wrapped, method)
        right = 0
        for _ in range(20):
            inputs, labels = draw(patterns, pale=True)
            right += int((tta(inputs).logits.argmax(1) == labels).sum())
        print(f"{method}: {right / (20 * 64):.1%} with pale pictures, {tta}")
        tta.reset()
        wrapped.close()


if __name__ == "__main__":
    main()

"""Adapt a PyTorch Lightning module in its predict loop.

    .venv/bin/pip install -c constraints.txt -e '.[lightning]'
    .venv/bin/python examples/lightning_module.py

The module is trained for a moment on synthetic sensors. Its sound fades, and the callback
`AdaptInPredict` lets `Trainer.predict` adapt it. No line of the module is written for this library.
"""

import logging
import warnings

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

import dasp
from dasp.lightning import AdaptInPredict

CLASSES = 5


class LitPair(pl.LightningModule):
    """An ordinary LightningModule of sounds (B, 1, 8, 16) and pictures (B, 3, 12, 12)."""

    def __init__(self) -> None:
        super().__init__()
        self.audio_net = nn.Sequential(nn.Conv2d(1, 24, 3, 2), nn.ReLU(), nn.Conv2d(24, 32, 3))
        self.video_net = nn.Sequential(nn.Conv2d(3, 24, 3, 2), nn.ReLU(), nn.Conv2d(24, 32, 3))
        self.mix = nn.Sequential(nn.Linear(64, 48), nn.LayerNorm(48), nn.ReLU())
        self.head = nn.Linear(48, CLASSES)

    def forward(self, audio, video):
        maps = self.audio_net(audio).relu(), self.video_net(video).relu()
        return self.head(self.mix(torch.cat([own.mean(dim=(2, 3)) for own in maps], dim=1)))

    def training_step(self, batch, _):
        inputs, labels = batch
        return F.cross_entropy(self(**inputs), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Sensors(Dataset):
    """Samples of both sensors: the pattern of the class plus noise; the sound may fade."""

    def __init__(self, size: int, seed: int, faded: bool = False) -> None:
        draw, classes = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(0)
        shapes = {"audio": (1, 8, 16), "video": (3, 12, 12)}
        self.labels = torch.randint(CLASSES, (size,), generator=draw)
        self.inputs = {}
        for name, shape in shapes.items():
            pattern = torch.randn(CLASSES, *shape, generator=classes)[self.labels]
            self.inputs[name] = pattern + 1.5 * torch.randn(size, *shape, generator=draw)
        if faded:
            self.inputs["audio"] = 0.3 * self.inputs["audio"] + 1

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return {name: value[index] for name, value in self.inputs.items()}, self.labels[index]


def main() -> None:
    warnings.filterwarnings("ignore", module="pytorch_lightning")  # few workers, no logger
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(0, verbose=False)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "accelerator": "cpu"}
    training, model = Sensors(1920, seed=1), LitPair()
    pl.Trainer(max_epochs=2, **quiet).fit(model, DataLoader(training, 64, shuffle=True))
    clean, faded = Sensors(640, seed=2), Sensors(1280, seed=3, faded=True)
    inputs = next(iter(DataLoader(clean, 64)))[0]
    names = {"audio": "audio_net", "video": "video_net"}

    def wrapped(module):
        return dasp.wrap(module, encoders=names, head="head", inputs=inputs)

    for method in ("source", "tent"):
        trainer = pl.Trainer(callbacks=[AdaptInPredict(method, model=wrapped)], **quiet)
        outcomes = trainer.predict(model, DataLoader(ConcatDataset([clean, faded]), 64))
        predicted = torch.cat([out["logits"].argmax(dim=1) for out in outcomes])
        right = (predicted == torch.cat([clean.labels, faded.labels])).float()
        first, then = right[: len(clean)].mean(), right[len(clean) :].mean()
        print(f"{method}: clean {first:.1%}, faded {then:.1%}, updated {outcomes[-1]['updated']}")


if __name__ == "__main__":
    main()

"""Small models, methods and a data set, as a user would write them, for runs in the tests."""

import os
import sys
import time
from pathlib import Path

import torch

import dasp
from dasp.core.errors import DataError
from dasp.core.types import Step
from dasp.data import Sample
from dasp.methods.losses import entropy
from dasp.models import CavMae, CavMaeDepth
from dasp.streams.domains import DomainDamage

SIZES = {"embed_dim": 16, "num_heads": 2, "depth": 1, "mlp_ratio": 1.0, "num_classes": 36}
PATIENCE = 120.0  # seconds, after which a wait is an error instead of a hang


def build():
    """An untrained CAV-MAE of the built-in set's shape."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return CavMae(**SIZES, audio_length=64, image_size=64)


def build_three():
    """The same with a third sensor."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return CavMaeDepth(**SIZES, audio_length=64, image_size=64, range_blocks=1)


class Mine(dasp.Method):
    """Entropy on the fusion.

    Paper: Nobody, "Nothing", Nowhere 2026.
    """

    version = 1

    def __init__(self, model, *, weight: float = 1.0, seed: int = 0):
        super().__init__(model, seed=seed)
        self.weight = weight

    def trainable(self):
        return self.model.fusion_qkv()

    def step(self, batch):
        logits = self.forward(batch).logits
        return Step(logits, self.weight * entropy(logits).mean())


class Watched(Mine):
    """The same; notes each time that it begins, and waits for what the tests put in a folder.

    Paper: Nobody, "Nothing", Nowhere 2026.
    """

    version = 1

    def __init__(self, model, *, folder: str = "", fails: bool = False, seed: int = 0):
        super().__init__(model, seed=seed)
        self.folder, self.fails, self.begun = Path(folder), fails, False

    def step(self, batch):
        if not self.begun:
            self.begun = True
            (self.folder / f"begun-{time.time_ns()}-{self.seed}-{os.getpid()}-{_node()}").touch()
        if self.fails:
            raise DataError("this run cannot be done: mend it")
        if (self.folder / "hold").exists():
            _wait_for(self.folder / "go", self.folder / f"go-{self.seed}")
        return super().step(batch)


def _node() -> str:
    ray = sys.modules.get("ray")
    return ray.get_runtime_context().get_node_id() if ray and ray.is_initialized() else ""


def _wait_for(*paths: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not any(path.exists() for path in paths):
        if time.monotonic() > end:
            raise DataError(f"none of {paths} ever came")
        time.sleep(0.02)


class Levels:
    """A data set: sample i is full of the number i, of 5; damage adds 0.5."""

    def __init__(self, options):
        self.options = options
        self.identity = {"name": "levels", "samples": options.samples or 5, "version": 1}

    def labels(self):
        return [i % 36 for i in range(self.identity["samples"])]

    def samples(self, modality, domain):
        shape = {"audio": (64, 128), "video": (3, 64, 64), "depth": (3, 32, 32)}[modality]
        extra = 0.0 if domain is None else 0.5
        return [
            Sample({modality: torch.full(shape, i + extra)}, label, str(i))
            for i, label in enumerate(self.labels())
        ]

    def damage(self, domain):
        return DomainDamage(domain, self.options.seed)

    def source(self, count):
        raise NotImplementedError

"""A method that tells of itself in a folder, and waits for what the tests put there."""

import os
import time
from pathlib import Path

import ray

import dasp
from dasp.core.errors import DataError
from dasp.core.types import Step
from dasp.methods.losses import entropy

PATIENCE = 120.0  # seconds, after which a wait is an error instead of a hang


def wait_for(*paths: Path) -> None:
    """Return when one of these files is there."""
    end = time.monotonic() + PATIENCE
    while not any(path.exists() for path in paths):
        if time.monotonic() > end:
            raise DataError(f"none of {paths} ever came")
        time.sleep(0.02)


class Watched(dasp.Method):
    """Entropy on the fusion; notes each time that it begins, in which process and node.

    Paper: Nobody, "Nothing", Nowhere 2026.
    """

    def __init__(self, model, *, folder: str = "", fails: bool = False, seed: int = 0):
        super().__init__(model, seed=seed)
        self.folder, self.fails, self.begun = Path(folder), fails, False

    def trainable(self):
        return self.model.fusion_qkv()

    def step(self, batch):
        if not self.begun:
            self.begun = True
            node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
            (self.folder / f"begun-{time.time_ns()}-{self.seed}-{os.getpid()}-{node}").touch()
        if self.fails:
            raise DataError("this cell cannot be done: mend it")
        if (self.folder / "hold").exists():
            wait_for(self.folder / "go", self.folder / f"go-{self.seed}")
        logits = self.forward(batch).logits
        return Step(logits, entropy(logits).mean())

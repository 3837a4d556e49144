"""Full batches in order, the same for any number of workers, with bad samples accounted for."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from dasp.core.errors import DataError, InputError, OptionError
from dasp.data.dataset import ClipDataset, Sample
from dasp.data.parallel import run_jobs


class Batch(NamedTuple):
    """Clips stacked: each input (B, …), labels (B,), ids of length B."""

    inputs: dict[str, Tensor]
    labels: Tensor
    ids: list[str]


class Skipped(NamedTuple):
    """A clip that was left out, and why."""

    id: str
    reason: str


class Loader:
    """Batches of a data set; `workers` processes read and damage, 0 does it here.

    A clip that cannot be used is an error (`on_bad="error"`), or with `on_bad="skip"` it is
    left out and listed in `skipped`; the next clip takes its place, so batches stay full.
    """

    def __init__(
        self,
        dataset: ClipDataset,
        batch_size: int = 64,
        workers: int = 0,
        on_bad: str = "error",
    ) -> None:
        if on_bad not in ("error", "skip"):
            raise OptionError(f"on_bad is 'error' or 'skip', not '{on_bad}'.")
        if batch_size < 1 or workers < 0:
            raise OptionError(f"batch_size {batch_size} and workers {workers}: at least 1 and 0.")
        self.dataset, self.batch_size, self.workers, self.on_bad = (
            dataset,
            batch_size,
            workers,
            on_bad,
        )
        self.skipped: list[Skipped] = []

    def __iter__(self) -> Iterator[Batch]:
        self.skipped = []
        waiting: list[Sample] = []
        for sample in run_jobs(self._load, range(len(self.dataset)), self.workers):
            if isinstance(sample, Skipped):
                if self.on_bad == "error":
                    raise DataError(f"clip '{sample.id}': {sample.reason}")
                self.skipped.append(sample)
                continue
            waiting.append(sample)
            if len(waiting) == self.batch_size:
                yield _stack(waiting)
                waiting = []
        if waiting:
            yield _stack(waiting)

    def _load(self, index: int) -> Sample | Skipped:
        try:
            return self.dataset[index]
        except (DataError, InputError) as error:
            return Skipped(self.dataset.manifest.clips[index].id, str(error))


def _stack(samples: list[Sample]) -> Batch:
    inputs = {name: torch.stack([s.inputs[name] for s in samples]) for name in samples[0].inputs}
    return Batch(inputs, torch.tensor([s.label for s in samples]), [s.id for s in samples])

"""Full batches in order, the same for any number of workers, with bad samples accounted for."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dasp.core.clock import Clock, Seconds, timed
from dasp.core.errors import DataError, InputError, OptionError
from dasp.core.types import Batch
from dasp.data.dataset import ClipDataset
from dasp.data.parallel import run_jobs
from dasp.data.timing import TimedSamples

AHEAD = 2  # batches


class Skipped(NamedTuple):
    """A clip that was left out, and why."""

    id: str
    reason: str


class Loader:
    """Batches of a data set; `workers` processes read and damage, 0 does it here.

    A clip that cannot be used is an error (`on_bad="error"`), or with `on_bad="skip"` it is
    left out and listed in `skipped`; the next clip takes its place, so batches stay full.

    While a batch is used, workers make the next two. `clock` counts the seconds that batches were
    waited for ("load"), and whatever its owner counts beside them; `work` those that samples took
    to make ("decode", "corrupt"), of all workers together.

        for batch in loader:
            with loader.clock.on("adapt"):
                tta(batch.inputs)
        print(shares(loader.clock.seconds))  # load 3% · adapt 97%
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
        self.clock, self.work = Clock(), Clock()
        self._samples = TimedSamples(dataset)

    def __iter__(self) -> Iterator[Batch]:
        self.skipped = []
        self.clock, self.work = Clock(), Clock()
        return timed(self._batches(), self.clock)

    def _batches(self) -> Iterator[Batch]:
        waiting: list[_Arrays] = []
        numbers = range(len(self.dataset))
        ahead = AHEAD * self.batch_size
        for sample, seconds in run_jobs(self._load, numbers, self.workers, ahead):
            self.work.add(seconds)
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

    def _load(self, index: int) -> "tuple[_Arrays | Skipped, Seconds]":
        try:
            sample = self._samples[index]
            arrays = {name: value.numpy() for name, value in sample.inputs.items()}
            return _Arrays(arrays, sample.label, sample.id), self._samples.clock.news()
        except (DataError, InputError) as error:
            skipped = Skipped(self.dataset.manifest.clips[index].id, str(error))
            return skipped, self._samples.clock.news()


class _Arrays(NamedTuple):
    """A sample on its way from a worker: shared tensors would take a file handle each."""

    inputs: dict[str, NDArray[np.float32]]
    label: int
    id: str


def _stack(samples: list[_Arrays]) -> Batch:
    inputs = {
        name: torch.from_numpy(np.stack([s.inputs[name] for s in samples]))
        for name in samples[0].inputs
    }
    return Batch(inputs, torch.tensor([s.label for s in samples]), [s.id for s in samples])

"""Clips as tensors, in batches made by worker processes; jobs on several processes in general."""

import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from dasp.core.errors import DataError, InputError, OptionError
from dasp.core.extras import Pillow
from dasp.core.types import Batch
from dasp.data.clips import Manifest
from dasp.data.features import corruption_image, frame_tensor, log_mel
from dasp.data.media import SAMPLE_RATE, read_frame, read_wave

MODALITIES = ("audio", "video")
BATCHES_AHEAD = 2
RESULTS_AHEAD = 8  # waiting results per worker: enough to keep it busy, few enough to hold

Item = TypeVar("Item")
Result = TypeVar("Result")


class Damage(Protocol):
    """The corruption of the samples of one domain; see `dasp.streams.DomainDamage`."""

    @property
    def modality(self) -> str:
        """Return the corrupted modality: "audio", "video" or "depth"."""

    def __call__(self, sample: NDArray[Any], sample_id: str, /) -> NDArray[Any]:
        """Corrupt a (samples,) wave, an (H, W, 3) image or an (H, W) depth map in millimetres."""


def damaged(
    damage: Damage | None, modality: str, sample: NDArray[Any], sample_id: str
) -> NDArray[Any]:
    """Return the sample, corrupted if `damage` is one of its modality."""
    if damage is None or damage.modality != modality:
        return sample
    return damage(sample, sample_id)


class Sample(NamedTuple):
    """The inputs of one sample by modality, its label and its id."""

    inputs: dict[str, Tensor]
    label: int
    id: str


class ClipDataset(Dataset[Sample]):
    """The clips of a manifest in order: audio (1024, 128) log-mel, video (3, 224, 224) frame.

    `damage` corrupts while loading; `modalities` selects what is read. A file that
    cannot be used raises a DataError.
    """

    def __init__(
        self,
        manifest: Manifest,
        damage: Damage | None = None,
        modalities: tuple[str, ...] = MODALITIES,
    ) -> None:
        if not modalities or not set(modalities) <= set(MODALITIES):
            raise OptionError(f"modalities must be some of {MODALITIES}, not {modalities!r}.")
        if damage is not None and damage.modality not in MODALITIES:
            raise OptionError(f"clips have no {damage.modality} to corrupt: use {MODALITIES}.")
        self.manifest, self.damage, self.modalities = manifest, damage, modalities

    def __len__(self) -> int:
        return len(self.manifest.clips)

    def __getitem__(self, index: int) -> Sample:
        clip = self.manifest.clips[index]
        inputs = {}
        if "audio" in self.modalities:
            inputs["audio"] = log_mel(self.wave(index), SAMPLE_RATE)
        if "video" in self.modalities:
            inputs["video"] = frame_tensor(self.picture(index))
        return Sample(inputs, clip.label, clip.id)

    def wave(self, index: int) -> NDArray[np.float32]:
        """Return the sound of a clip, (samples,), corrupted if this domain corrupts audio."""
        clip = self.manifest.clips[index]
        return damaged(self.damage, "audio", read_wave(clip.wav), clip.id)

    def picture(self, index: int) -> "Pillow.Image":
        """Return the middle frame of a clip, corrupted if this domain corrupts video."""
        clip = self.manifest.clips[index]
        picture = read_frame(clip.frame)
        if self.damage is None or self.damage.modality != "video":
            return picture
        return Pillow.fromarray(self.damage(corruption_image(picture), clip.frame_id))


class Skipped(NamedTuple):
    """A clip that was left out, and why."""

    id: str
    reason: str


class Loader:
    """Batches of a data set in order, the same for any number of worker processes.

    A clip that cannot be used raises an error (`on_bad="error"`) or is left out and listed in
    `skipped` (`on_bad="skip"`); the next clip takes its place, so batches stay full.

    `workers` processes read and corrupt clips and keep two batches ready; 0 does it in this
    process.
    """

    def __init__(
        self, dataset: ClipDataset, batch_size: int = 64, workers: int = 0, on_bad: str = "error"
    ) -> None:
        if on_bad not in ("error", "skip"):
            raise OptionError(f"on_bad must be 'error' or 'skip', not '{on_bad}'.")
        if batch_size < 1 or workers < 0:
            raise OptionError(f"batch_size={batch_size}, workers={workers}: at least 1 and 0.")
        self.dataset, self.batch_size, self.workers = dataset, batch_size, workers
        self.on_bad = on_bad
        self.skipped: list[Skipped] = []

    def __iter__(self) -> Iterator[Batch]:
        self.skipped = []
        samples = self._samples()
        while some := list(islice(samples, self.batch_size)):
            inputs = {
                name: torch.from_numpy(np.stack([sample.inputs[name] for sample in some]))
                for name in some[0].inputs
            }
            yield Batch(inputs, torch.tensor([s.label for s in some]), [s.id for s in some])

    def _samples(self) -> Iterator[Sample]:
        attempt = partial(_attempt, self.dataset)
        ahead = BATCHES_AHEAD * self.batch_size
        for sample in run_jobs(attempt, range(len(self.dataset)), self.workers, ahead):
            if isinstance(sample, Sample):
                yield sample
            elif self.on_bad == "error":
                raise DataError(f"clip '{sample.id}': {sample.reason}")
            else:
                self.skipped.append(sample)


def _attempt(dataset: ClipDataset, index: int) -> Sample | Skipped:
    """Return a sample, or why it cannot be used.

    Its inputs travel as arrays: each shared tensor would take a file handle.
    """
    try:
        inputs, label, name = dataset[index]
    except (DataError, InputError) as error:
        return Skipped(dataset.manifest.clips[index].id, str(error))
    arrays: Any = {modality: value.numpy() for modality, value in inputs.items()}
    return Sample(arrays, label, name)


_job: tuple[Callable[[Any], Any], Sequence[Any]]  # in a worker: the function and its items


def run_jobs(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int | None = None,
    ahead: int = 0,
) -> Iterator[Result]:
    """Yield `function(item)` in order, computed by `workers` processes (by default one per core).

    With workers 0 everything runs in this process, with the same bits. The function is sent to
    each worker once; results should be small or arrays. Workers end when this process is killed.
    They continue while the caller is busy, until `ahead` results wait (at least 8 per worker).
    """
    if workers is not None and workers < 0:
        raise OptionError(f"workers must be 0 (no other process) or more, not {workers}.")
    count = min(len(items), cores() if workers is None else workers)
    return _in_workers(function, items, count, ahead) if count else _here(function, items)


def _here(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    for item in items:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as in a worker: with several, sums may round differently
        try:
            result = function(item)
        finally:
            torch.set_num_threads(threads)
        yield result


def _in_workers(
    function: Callable[[Item], Result], items: Sequence[Item], count: int, ahead: int
) -> Iterator[Result]:
    # On Linux by fork, which keeps a user's own corruptions.
    context = get_context("fork" if sys.platform == "linux" else None)
    pool = ProcessPoolExecutor(count, context, _start_worker, (function, items))
    waiting: deque[Future[Result]] = deque()
    try:
        for index in range(len(items)):
            with warnings.catch_warnings():  # forking with threads: the workers use none of them
                warnings.simplefilter("ignore", DeprecationWarning)
                waiting.append(pool.submit(_do, index))
            if len(waiting) >= max(RESULTS_AHEAD * count, ahead):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except (KeyboardInterrupt, GeneratorExit):  # nobody waits for what is under way
        # Results that are made ahead are large: a kill could leave half of one in the pipe, and
        # the pool would wait for the rest of it for ever.
        for worker in [] if ahead else list((pool._processes or {}).values()):
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    """Keep the job; leave Ctrl-C to the parent, and end when the parent is killed."""
    global _job
    _job = (function, items)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(index: int) -> Any:
    function, items = _job
    return function(items[index])


def cores() -> int:
    """Return the number of cores this process may use, fewer than the machine's in a container."""
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1

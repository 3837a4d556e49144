"""Clips as tensors, in batches made by worker processes; jobs on several processes in general."""

import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial, wraps
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dasp.core.errors import DataError, InputError, OptionError
from dasp.core.extras import Pillow
from dasp.core.types import Batch
from dasp.data.clips import Manifest
from dasp.data.features import corruption_image, frame_tensor, log_mel
from dasp.data.media import SAMPLE_RATE, read_frame, read_wave

MODALITIES = ("audio", "video")
BATCHES_AHEAD = 2
RESULTS_AHEAD = 8  # waiting results per worker: enough to keep it busy

Item = TypeVar("Item")
Result = TypeVar("Result")
# Forking with threads warns; the workers use none of them.
_quiet_fork = partial(warnings.catch_warnings, action="ignore", category=DeprecationWarning)


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

    `damage` corrupts while loading. A file that cannot be used raises a DataError.
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


def one_thread(function: Callable[..., Result]) -> Callable[..., Result]:
    """Make a function use one thread, as workers do: with several, sums may round differently."""

    @wraps(function)
    def run(*given: Any) -> Result:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return function(*given)
        finally:
            torch.set_num_threads(threads)

    return run


class _Attempts(Dataset[Sample | Skipped]):
    """Each sample of a data set, or why it cannot be used."""

    def __init__(self, dataset: ClipDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    @one_thread
    def __getitem__(self, index: int) -> Sample | Skipped:
        try:
            return self.dataset[index]
        except (DataError, InputError) as error:
            return Skipped(self.dataset.manifest.clips[index].id, str(error))


def _as_arrays(sample: Any) -> Any:
    """Return what a worker sends: a tensor would take a file handle of its own."""
    if isinstance(sample, Skipped):
        return sample
    arrays: Any = {name: value.numpy() for name, value in sample.inputs.items()}
    return sample._replace(inputs=arrays)


class Loader:
    """Batches of a data set in order, the same for any number of worker processes.

    A clip that cannot be used raises an error (`on_bad="error"`) or is left out and listed in
    `skipped` (`on_bad="skip"`); the next clip takes its place, so batches stay full.
    `workers` processes read and corrupt clips and keep two batches ready; 0 does it in this one.
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
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        samples = self._samples()
        while some := list(islice(samples, self.batch_size)):
            inputs = {
                name: torch.from_numpy(np.stack([sample.inputs[name] for sample in some]))
                for name in some[0].inputs
            }
            yield Batch(inputs, torch.tensor([s.label for s in some]), [s.id for s in some])

    def _samples(self) -> Iterator[Sample]:
        workers = min(self.workers, len(self.dataset))
        loader = DataLoader(
            _Attempts(self.dataset),
            batch_size=None,  # one sample at a time: which of them make a batch is not known yet
            collate_fn=_as_arrays,
            num_workers=workers,
            prefetch_factor=-(-BATCHES_AHEAD * self.batch_size // workers) if workers else None,
            multiprocessing_context=_context() if workers else None,
            worker_init_fn=_start_reader,
            generator=torch.Generator(),  # otherwise it draws from the global one
        )
        with _quiet_fork():
            samples = iter(loader)
        try:
            for sample in samples:
                if isinstance(sample, Sample):
                    yield sample
                elif self.on_bad == "error":
                    raise DataError(f"clip '{sample.id}': {sample.reason}")
                else:
                    self.skipped.append(sample)
        finally:
            del samples  # ends the workers


_job: tuple[Callable[[Any], Any], Sequence[Any]]  # in a worker: the function and its items


def run_jobs(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None
) -> Iterator[Result]:
    """Yield `function(item)` in order, computed by `workers` processes (by default one per core).

    With workers 0 everything runs in this process, with the same bits. Results must be small.
    Workers end at once when the caller is interrupted or killed, or wants no more results.
    """
    if workers is not None and workers < 0:
        raise OptionError(f"workers must be 0 (no other process) or more, not {workers}.")
    count = min(len(items), cores() if workers is None else workers)
    if count:
        return _in_workers(function, items, count)
    return (one_thread(function)(item) for item in items)


def _in_workers(
    function: Callable[[Item], Result], items: Sequence[Item], count: int
) -> Iterator[Result]:
    context = _context()
    stopped, stop = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, context, _start_worker, (function, items, stopped))
    waiting: deque[Future[Result]] = deque()
    try:
        for index in range(len(items)):
            with _quiet_fork():
                waiting.append(pool.submit(_do, index))
            if len(waiting) >= RESULTS_AHEAD * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except (KeyboardInterrupt, GeneratorExit):  # nobody waits for what is under way
        stop.send_bytes(b"stop")
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        stop.close()
        stopped.close()


def _context() -> BaseContext:
    """Return how workers start: on Linux by fork, which keeps a user's own corruptions."""
    return get_context("fork" if sys.platform == "linux" else None)


def _start_worker(
    function: Callable[[Any], Any], items: Sequence[Any], stopped: Connection
) -> None:
    global _job
    _job = (function, items)
    torch.set_num_threads(1)
    _end_with(stopped)


def _start_reader(_: int) -> None:
    _end_with()


def _end_with(*stopped: Connection) -> None:
    """Leave Ctrl-C to the parent; end when the parent is killed, or sends something."""

    def watch() -> None:
        wait([parent_process().sentinel, *stopped])  # type: ignore[union-attr]
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def _do(index: int) -> Any:
    function, items = _job
    return function(items[index])


def cores() -> int:
    """Return the number of cores this process may use, fewer than the machine's in a container."""
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1

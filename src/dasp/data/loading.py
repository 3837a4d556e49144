"""Clips as tensors, in batches made by worker processes; jobs on several processes in general."""

import copy
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dasp.core.clock import Clock, Seconds, timed
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
    """The corruption of the clips of one domain while they are loaded; see `dasp.streams`."""

    @property
    def modality(self) -> str:
        """Return the corrupted modality: "audio", "video" or "depth"."""

    def frame(self, image: NDArray[np.uint8], sample_id: str) -> NDArray[np.uint8]:
        """Corrupt a (224, 224, 3) image."""

    def sound(self, wave: NDArray[np.float32], sample_id: str) -> NDArray[np.float32]:
        """Corrupt a (samples,) wave."""

    def depth(self, depth: NDArray[np.uint16], sample_id: str) -> NDArray[np.uint16]:
        """Corrupt an (H, W) depth map in millimetres."""


class Sample(NamedTuple):
    """The inputs of one sample by modality, its label and its id."""

    inputs: dict[str, Tensor]
    label: int
    id: str


class ClipDataset(Dataset[Sample]):
    """The clips of a manifest in order: audio (1024, 128) log-mel, video (3, 224, 224) frame.

    `frame` chooses the frame (by default the middle one); `damage` corrupts while loading;
    `modalities` selects what is read. For corrupted files made in advance, pass
    `premade(manifest, ...)`. A file that cannot be used raises a DataError.
    """

    def __init__(
        self,
        manifest: Manifest,
        frame: int | None = None,
        damage: Damage | None = None,
        modalities: tuple[str, ...] = MODALITIES,
    ) -> None:
        if not modalities or not set(modalities) <= set(MODALITIES):
            raise OptionError(f"modalities must be some of {MODALITIES}, not {modalities!r}.")
        if damage is not None and damage.modality not in MODALITIES:
            raise OptionError(f"clips have no {damage.modality} to corrupt: use {MODALITIES}.")
        manifest.clips[0].frame_index(frame)
        self.manifest, self.frame, self.damage = manifest, frame, damage
        self.modalities = modalities

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
        wave = read_wave(clip.wav)
        if self.damage is not None and self.damage.modality == "audio":
            return self.damage.sound(wave, clip.id)
        return wave

    def picture(self, index: int) -> "Pillow.Image":
        """Return the chosen frame of a clip, corrupted if this domain corrupts video."""
        clip = self.manifest.clips[index]
        number = clip.frame_index(self.frame)
        picture = read_frame(clip.frames[number])
        if self.damage is not None and self.damage.modality == "video":
            damaged = self.damage.frame(corruption_image(picture), clip.frame_id(number))
            return Pillow.fromarray(damaged)
        return picture


class Skipped(NamedTuple):
    """A clip that was left out, and why."""

    id: str
    reason: str


class Loader:
    """Batches of a data set in order, the same for any number of worker processes.

    A clip that cannot be used raises an error (`on_bad="error"`) or is left out and listed in
    `skipped` (`on_bad="skip"`); the next clip takes its place, so batches stay full.

    `workers` processes read and corrupt clips and keep two batches ready; 0 does it in this
    process. `clock` counts the seconds spent waiting for batches ("load") and whatever its owner
    adds; `work` the seconds spent on samples ("decode", "corrupt"), summed over the workers.

        for batch in loader:
            with loader.clock.on("adapt"):
                tta(batch.inputs)
        print(shares(loader.clock.seconds))  # load 3% · adapt 97%
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
        self.clock, self.work = Clock(), Clock()

    def __iter__(self) -> Iterator[Batch]:
        self.skipped = []
        self.clock, self.work = Clock(), Clock()
        return timed(self._batches(), self.clock)

    def _batches(self) -> Iterator[Batch]:
        waiting: list[_Arrays] = []
        for sample, seconds in self._samples():
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

    def _samples(self) -> "Iterator[tuple[_Arrays | Skipped, Seconds]]":
        ahead = max(1, -(-BATCHES_AHEAD * self.batch_size // max(self.workers, 1)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork: workers use no threads
            warnings.simplefilter("ignore", UserWarning)  # more workers than cores: user's choice
            samples = DataLoader(
                _Attempts(self.dataset),
                batch_size=None,
                num_workers=self.workers,
                collate_fn=_unchanged,
                prefetch_factor=ahead if self.workers else None,
                generator=torch.Generator(),  # the default draws from the global generator
                multiprocessing_context=_context() if self.workers else None,
                worker_init_fn=_follow_parent,
            )
            return iter(samples)


class _Arrays(NamedTuple):
    """A sample on its way from a worker: each shared tensor would take a file handle."""

    inputs: dict[str, NDArray[np.float32]]
    label: int
    id: str


class _Attempts(Dataset[tuple[_Arrays | Skipped, Seconds]]):
    """The samples of a data set, or why they cannot be used, and the seconds they took."""

    def __init__(self, dataset: ClipDataset) -> None:
        self._dataset, self._samples = dataset, TimedSamples(dataset)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[_Arrays | Skipped, Seconds]:
        try:
            with _one_thread():
                sample = self._samples[index]
        except (DataError, InputError) as error:
            skipped = Skipped(self._dataset.manifest.clips[index].id, str(error))
            return skipped, self._samples.clock.news()
        arrays = {name: value.numpy() for name, value in sample.inputs.items()}
        return _Arrays(arrays, sample.label, sample.id), self._samples.clock.news()


def _stack(samples: list[_Arrays]) -> Batch:
    inputs = {
        name: torch.from_numpy(np.stack([s.inputs[name] for s in samples]))
        for name in samples[0].inputs
    }
    return Batch(inputs, torch.tensor([s.label for s in samples]), [s.id for s in samples])


def _unchanged(sample: Item) -> Item:
    return sample


class SampleSource(Protocol):
    """A data set of samples by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...


class TimedSamples:
    """The samples of a data set; `clock` counts the stages "decode" and "corrupt"."""

    def __init__(self, dataset: SampleSource) -> None:
        self.clock = Clock()
        self._dataset = copy.copy(dataset)
        damage: Damage | None = getattr(dataset, "damage", None)
        if damage is not None:
            self._dataset.damage = _TimedDamage(damage, self.clock)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Sample:
        with self.clock.on("decode"):
            return self._dataset[index]


class _TimedDamage:
    """The damage of a domain; its time counts towards "corrupt"."""

    def __init__(self, damage: Damage, clock: Clock) -> None:
        self._damage, self._clock = damage, clock

    @property
    def modality(self) -> str:
        """Return the corrupted modality."""
        return self._damage.modality

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ("frame", "sound", "depth"):
            raise AttributeError(name)
        apply = getattr(self._damage, name)

        def counted(*args: Any) -> Any:
            with self._clock.on("corrupt"):
                return apply(*args)

        return counted


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
    return _results(function, items, workers, ahead)


def _results(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None, ahead: int
) -> Iterator[Result]:
    count = min(len(items), cores() if workers is None else workers)
    if count == 0:
        for item in items:
            with _one_thread():
                result = function(item)
            yield result
        return
    pool = ProcessPoolExecutor(count, _context(), _start_worker, (function, items))
    waiting: deque[Future[Result]] = deque()
    try:
        with warnings.catch_warnings():  # forking with threads: the workers use none of them
            warnings.simplefilter("ignore", DeprecationWarning)
            waiting.append(pool.submit(_do, 0))
        for index in range(1, len(items)):
            waiting.append(pool.submit(_do, index))
            if len(waiting) >= max(RESULTS_AHEAD * count, ahead):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _context() -> BaseContext:
    """Return how to start workers: on Linux by fork, which keeps a user's own corruptions."""
    return get_context("fork" if sys.platform == "linux" else None)


def _start_worker(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    global _job
    _job = (function, items)
    torch.set_num_threads(1)
    _follow_parent()


def _follow_parent(_worker: int = 0) -> None:
    """Leave Ctrl-C to the parent, and end when the parent is killed."""
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
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread, as workers do: with several, sums may round differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

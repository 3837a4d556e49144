"""Where a run keeps its arrays, and what is made there before anything is measured."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from dasp.bench.features import Features, Part
from dasp.bench.material import DataOptions
from dasp.bench.progress import Bars
from dasp.bench.references import find_model
from dasp.bench.store import Store
from dasp.core.clock import Seconds
from dasp.data.parallel import run_jobs


@dataclass(frozen=True)
class Place:
    """Where a run keeps its arrays and its results, and how many processes it uses."""

    results: Path
    store: Path
    store_gib: float = 50.0
    workers: int | None = None

    def open_store(self) -> Store:
        """Return the feature store; `~` and `$NAME` in its path are those of this machine."""
        folder = Path(os.path.expandvars(self.store)).expanduser()
        return Store(folder, self.store_gib * 2**30)


@lru_cache(maxsize=4)
def open_features(model: str, data: DataOptions, place: Place) -> Features:
    """Return the inputs and tokens of these data under a model; a process opens them once."""
    return Features(data.open(), find_model(model), place.open_store())


class Maker:
    """Makes one array of the store; it goes to each worker once, data are opened there."""

    def __init__(self, data: DataOptions, place: Place) -> None:
        self.data, self.place = data, place

    def __call__(self, item: tuple[str, Part]) -> Seconds:
        """Make the array of a (model, part); return what that took, by kind of work."""
        torch.set_num_threads(1)
        model, part = item
        features = open_features(model, self.data, self.place)
        features.get(part)
        return {} if features.store is None else features.store.clock.news()

    def missing(self, wanted: list[tuple[str, Part]]) -> list[tuple[str, Part]]:
        """Keep what the store does not have yet."""
        store = self.place.open_store()
        return [
            (model, part)
            for model, part in wanted
            if not store.has(open_features(model, self.data, self.place).key(part))
        ]


def fill_store(
    needed: Mapping[str, set[Part]], data: DataOptions, place: Place, bars: Bars
) -> None:
    """Make what is missing of the parts that each model needs: raw inputs, then tokens."""
    make = Maker(data, place)
    raw = {Part(p.modality, p.domain, encoded=False) for parts in needed.values() for p in parts}
    any_model = next(iter(needed))
    tokens = [(m, p) for m, parts in needed.items() for p in _sorted(parts) if p.encoded]
    for title, wanted in (
        ("corrupt", [(any_model, part) for part in _sorted(raw)]),
        ("encode", tokens),
    ):
        parts = make.missing(wanted)
        bars.phase(title, run_jobs(make, parts, place.workers), len(parts))


def _sorted(parts: set[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: (part.modality, str(part.domain)))


@contextmanager
def claim(results: Path, key: str, wait: bool = False) -> Iterator[bool]:
    """Take what has this key for this process; the system gives it back if the process dies."""
    locks = results / ".locks"
    locks.mkdir(exist_ok=True)
    with (locks / key).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True

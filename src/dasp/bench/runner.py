"""Run a plan on this machine: encode once, then every cell, over processes of one thread each."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from dasp.bench.cell import batches_of, run_cell
from dasp.bench.features import Features, Part, parts_of
from dasp.bench.plan import Plan
from dasp.bench.progress import Bars
from dasp.bench.references import find_method, find_model, model_name
from dasp.bench.results import Cell, is_done, write_result
from dasp.bench.store import Store
from dasp.data.parallel import run_jobs
from dasp.streams.protocols import visits


@dataclass(frozen=True)
class Place:
    """Where a run keeps its arrays and its results, and how many processes it uses."""

    results: Path
    store: Path
    store_gib: float = 50.0
    workers: int | None = None

    def open_store(self) -> Store:
        """Return the feature store."""
        return Store(self.store, self.store_gib * 2**30)


class Job:
    """What a worker does; it goes to each worker once, models and data are opened there."""

    def __init__(self, plan: Plan, place: Place, news: Any) -> None:
        self.plan, self.place, self.news = plan, place, news

    def prepare(self, item: tuple[str, Part]) -> None:
        """Make one array of the store."""
        torch.set_num_threads(1)
        model, part = item
        _features(self.plan, self.place, model).get(part)

    def run(self, item: tuple[str, Cell]) -> bool:
        """Run one cell unless it is done or another process has it; tell whether it is done."""
        torch.set_num_threads(1)
        model, cell = item
        if is_done(self.place.results, cell):
            return True
        with _claim(self.place.results, cell) as mine:
            if not mine:
                return False
            if not is_done(self.place.results, cell):
                features = _features(self.plan, self.place, model)
                outcome = run_cell(cell, find_method(cell.method), features, self._teller(cell))
                write_result(self.place.results, cell, *outcome)
        return True

    def _teller(self, cell: Cell) -> Callable[[int], None]:
        def tell(batches: int) -> None:
            if self.news is not None:
                self.news.put((f"{cell.protocol} {cell.label} {cell.model['name']}", batches))

        return tell


def run_plan(plan: Plan, place: Place, show: bool = True) -> list[Path]:
    """Run what is not done yet; return the result files of all cells of the plan.

    Safe to interrupt and to run twice at once on one folder: a cell is run by one process.
    """
    cells = plan.cells()
    place.results.mkdir(parents=True, exist_ok=True)
    open_cells = [cell for cell in cells if not is_done(place.results, cell)]
    if open_cells:
        references = {model_name(model): model for model in plan.models}
        items = [(references[cell.model["name"]], cell) for cell in open_cells]
        samples = open_cells[0].data["samples"]
        total = sum(batches_of(cell, samples) for cell in open_cells)
        news = get_context("fork").SimpleQueue() if show else None
        job = Job(plan, place, news)
        with Bars(show) as bars:
            for title, parts in _parts(plan, place, items):
                bars.phase(title, run_jobs(job.prepare, parts, place.workers), len(parts))
            with bars.listening(news, total, len(cells) - len(open_cells), len(cells)):
                _run_all(job, items, place)
    return [place.results / cell.filename for cell in cells]


def _run_all(job: Job, items: list[tuple[str, Cell]], place: Place) -> None:
    finished = list(run_jobs(job.run, items, place.workers))
    elsewhere = [item for item, done in zip(items, finished, strict=True) if not done]
    for item in elsewhere:  # another runner has them: wait, and take over if it died
        while not job.run(item):
            with _claim(place.results, item[1], wait=True):
                pass


def _parts(
    plan: Plan, place: Place, items: list[tuple[str, Cell]]
) -> Iterator[tuple[str, list[tuple[str, Part]]]]:
    """Give what is missing in the store: first raw inputs, then each model's tokens."""
    needed: dict[str, set[Part]] = {}
    for model, cell in items:
        encoded = not find_method(cell.method).tunes_encoder
        domains = [v.domain for v in visits(cell.protocol, cell.severity, cell.corruptions)]
        domains += [None] if cell.clean_after else []
        names = find_model(model).modalities
        needed.setdefault(model, set()).update(parts_of(domains, names, encoded))  # type: ignore[arg-type]
    raw = {Part(p.modality, p.domain, encoded=False) for parts in needed.values() for p in parts}
    any_model = next(iter(needed))
    yield "corrupt", _missing(plan, place, [(any_model, part) for part in _sorted(raw)])
    tokens = [(m, p) for m, parts in needed.items() for p in _sorted(parts) if p.encoded]
    yield "encode", _missing(plan, place, tokens)


def _missing(plan: Plan, place: Place, wanted: list[tuple[str, Part]]) -> list[tuple[str, Part]]:
    store = place.open_store()
    return [
        (model, part)
        for model, part in wanted
        if not store.has(_features(plan, place, model).key(part))
    ]


def _sorted(parts: set[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: (part.modality, str(part.domain)))


@lru_cache(maxsize=4)
def _opened(model: str, data: object, place: Place) -> Features:
    return Features(data.open(), find_model(model), place.open_store())  # type: ignore[attr-defined]


def _features(plan: Plan, place: Place, model: str) -> Features:
    return _opened(model, plan.data, place)


@contextmanager
def _claim(results: Path, cell: Cell, wait: bool = False) -> Iterator[bool]:
    """Take a cell for this process; the system gives it back if the process dies."""
    locks = results / ".locks"
    locks.mkdir(exist_ok=True)
    with (locks / cell.key).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True

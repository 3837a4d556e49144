"""Run a plan on this machine: encode once, then every cell, over processes of one thread each."""

from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from dasp.bench.cell import Tick, batches_of, run_cell
from dasp.bench.features import Part, parts_of
from dasp.bench.plan import Plan
from dasp.bench.prepare import Place, claim, fill_store, open_features
from dasp.bench.progress import Bars
from dasp.bench.references import find_method, find_model, model_name
from dasp.bench.results import Cell, is_done, write_result
from dasp.core.clock import Seconds
from dasp.data.parallel import run_jobs
from dasp.streams.visits import CLEAN


class Job:
    """What a worker does; it goes to each worker once, models and data are opened there."""

    def __init__(self, plan: Plan, place: Place, news: Any) -> None:
        self.plan, self.place, self.news = plan, place, news

    def run(self, item: tuple[str, Cell]) -> bool:
        """Run one cell unless it is done or another process has it; tell whether it is done."""
        torch.set_num_threads(1)
        model, cell = item
        if is_done(self.place.results, cell):
            return True
        with claim(self.place.results, cell.key) as mine:
            if not mine:
                return False
            if not is_done(self.place.results, cell):
                features = open_features(model, self.plan.data, self.place)
                outcome = run_cell(cell, find_method(cell.method), features, self._teller(cell))
                write_result(self.place.results, cell, *outcome)
        return True

    def _teller(self, cell: Cell) -> Tick:
        name = f"{cell.protocol} {cell.label} {cell.model['name']}"

        def tell(batches: int, seconds: Seconds) -> None:
            if self.news is not None:
                self.news.put((name, batches, seconds))

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
            fill_store(_needed(items), plan.data, place, bars)
            with bars.listening(news, total, len(cells) - len(open_cells), len(cells)):
                _run_all(job, items, place)
    return [place.results / cell.filename for cell in cells]


def _run_all(job: Job, items: list[tuple[str, Cell]], place: Place) -> None:
    finished = list(run_jobs(job.run, items, place.workers))
    elsewhere = [item for item, done in zip(items, finished, strict=True) if not done]
    for item in elsewhere:  # another runner has them: wait, and take over if it died
        while not job.run(item):
            with claim(place.results, item[1].key, wait=True):
                pass


def _needed(items: list[tuple[str, Cell]]) -> dict[str, set[Part]]:
    """Return the arrays that the cells of each model use."""
    needed: dict[str, set[Part]] = {}
    for model, cell in items:
        encoded = not find_method(cell.method).tunes_encoder
        conditions = {condition for visit in cell.visits() for condition in visit.conditions}
        conditions |= {CLEAN} if cell.clean_after else set()
        names = find_model(model).modalities
        needed.setdefault(model, set()).update(
            parts_of(conditions, names, encoded, cell.tokens)  # type: ignore[arg-type]
        )
    return needed

"""Run a plan of kind "efficiency": what each method costs, one after another, each alone."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from dasp.bench.features import Part, parts_of
from dasp.bench.material import DataOptions
from dasp.bench.measure import measure
from dasp.bench.plan import Plan
from dasp.bench.prepare import Place, claim, fill_store, open_features
from dasp.bench.progress import Bars
from dasp.bench.references import find_model, model_name
from dasp.bench.results import Cell, is_done, write_result
from dasp.core.errors import DataError

Outcome = tuple[dict[str, Any], dict[str, Any]]
"""What was counted, and what was measured."""
FORMAT = "dasp-efficiency-1"
ROUNDS = 5
THREADS = 1  # as in every run; several wait for each other, the more the busier the machine
STREAMS = 1 + 2 * ROUNDS  # of a measurement: one to warm up and count, then two a round


@dataclass(frozen=True)
class Measurement(Cell):
    """One file: a method on a model, measured in some rounds on some threads."""

    rounds: int = ROUNDS
    threads: int = THREADS

    @property
    def filename(self) -> str:
        """Return a name that a reader understands and that no other measurement has."""
        return f"efficiency-{super().filename}"


@dataclass(frozen=True)
class Job:
    """What a fresh process is told: plain data, models and inputs are opened there."""

    model: str
    data: DataOptions
    place: Place
    wanted: Measurement


def run_efficiency(plan: Plan, place: Place, show: bool = True) -> list[Path]:
    """Measure what is not measured yet; return the files of all measurements of the plan.

    Every method runs in a process of its own and nothing runs beside it: not even a second
    runner of this folder. Safe to interrupt: what is written is not measured again.
    """
    wanted = measurements(plan)
    place.results.mkdir(parents=True, exist_ok=True)
    references = {model_name(model): model for model in plan.models}
    todo = [
        Job(references[item.model["name"]], plan.data, place, item)
        for item in wanted
        if not is_done(place.results, item, FORMAT)
    ]
    if todo:
        with Bars(show) as bars:
            fill_store(_needed(todo), plan.data, place, bars)
            streams = (stream for job in todo for stream in _measured_streams(job))
            bars.phase("measure", streams, STREAMS * len(todo))
    return [place.results / item.filename for item in wanted]


def efficiency_files(plan: Plan) -> list[str]:
    """Return the names of the files that a plan makes, before any is made."""
    return [item.filename for item in measurements(plan)]


def measurements(plan: Plan) -> list[Measurement]:
    """Return what a plan measures; a wrong name or option is refused before any starts."""
    shared = {"rounds": ROUNDS, "threads": THREADS, "clean_after": 0}
    return [Measurement(**(vars(cell) | shared)) for cell in plan.cells()]


def _needed(todo: list[Job]) -> dict[str, set[Part]]:
    """Return the raw inputs of every stream."""
    needed: dict[str, set[Part]] = {}
    for job in todo:
        cell = job.wanted
        conditions = {condition for visit in cell.visits() for condition in visit.conditions}
        names: tuple[str, ...] = find_model(job.model).modalities  # type: ignore[assignment]
        needed.setdefault(job.model, set()).update(parts_of(conditions, names, encoded=False))
    return needed


def _measured_streams(job: Job) -> Iterator[None]:
    """Measure in a fresh process and write the file; yield after each stream."""
    with claim(job.place.results, FORMAT, wait=True):
        if is_done(job.place.results, job.wanted, FORMAT):
            return
        for news in _news(job):
            if news is not None:
                write_result(job.place.results, job.wanted, *news, FORMAT)
            else:
                yield


def _news(job: Job) -> Iterator[Outcome | None]:
    """Start the process and give what it tells: None after each stream, then the outcome."""
    context = get_context("spawn")  # a fork would begin with all that this process holds
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, there), daemon=True)
    process.start()
    there.close()
    outcome = None
    try:
        while outcome is None:
            outcome = here.recv()
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome
    except EOFError:
        process.join()
        raise DataError(
            f"measuring {job.wanted.label} on {job.wanted.model['name']} ended early, with exit "
            f"code {process.exitcode}: free some memory or lower --batch-size, and run it again."
        ) from None
    finally:
        process.terminate()
        process.join()
        here.close()


def _work(job: Job, there: Connection) -> None:
    """Measure, in the fresh process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    torch.set_num_threads(job.wanted.threads)
    try:
        features = open_features(job.model, job.data, job.place)
        there.send(measure(job.wanted, features, job.wanted.rounds, lambda: there.send(None)))
    except Exception as error:
        there.send(error)

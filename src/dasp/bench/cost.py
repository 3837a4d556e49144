"""Measure what each method costs: time, memory and passes, one method after another, each alone."""

import copy
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from dasp.bench.cells import batches_of, provenance, start
from dasp.bench.engines import Workspace, fill_store, open_features
from dasp.bench.features import Features
from dasp.bench.passes import counted_passes
from dasp.bench.plan import Job
from dasp.bench.results import Result, claimed, is_done, write_result
from dasp.core.errors import DataError
from dasp.core.progress import bars
from dasp.core.types import Inputs
from dasp.methods import Adaptation, adapt

LOADING = "raw inputs read from the feature store, where they lie decoded and corrupted"
STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measure_costs(jobs: Sequence[Job], workspace: Workspace, show: bool = True) -> None:
    """Measure every job in a process of its own, with nothing beside it, and write the results.

    Not even a second runner of this folder runs beside it. Safe to interrupt: what is written is
    not measured again.
    """
    with bars(show) as progress:
        fill_store(jobs, workspace, progress)
        streams = sum(1 + 2 * job.run.cost["rounds"] for job in jobs)
        bar = progress.add_task("measure", total=streams)
        for job in jobs:
            with claimed(workspace.results, "cost", wait=True):
                if is_done(workspace.results, job.run):
                    continue
                for news in _measured_in_new_process(job, workspace):
                    if news is None:
                        progress.advance(bar)
                    else:
                        write_result(workspace.results, Result(job.run, None, news))


def _measured_in_new_process(job: Job, workspace: Workspace) -> Iterator[dict[str, Any] | None]:
    """Yield None after each stream, then the figures."""
    context = get_context("spawn")  # a fork would begin with all that this process holds
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, workspace, there), daemon=True)
    process.start()
    there.close()
    news = None
    try:
        while news is None:
            news = here.recv()
            if isinstance(news, Exception):
                raise news
            yield news
    except EOFError:
        process.join()
        raise DataError(
            f"measuring {job.name} ended early with exit code {process.exitcode}: free some memory "
            "or lower --batch-sizes, and run it again."
        ) from None
    finally:
        process.terminate()
        process.join()
        here.close()


def _work(job: Job, workspace: Workspace, there: Connection) -> None:
    """Measure, in the new process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    torch.set_num_threads(job.run.cost["threads"])
    try:
        features = open_features(job, workspace)
        there.send(measure(job, features, lambda: there.send(None)))
    except Exception as error:
        there.send(error)


def measure(job: Job, features: Features, tick: Callable[[], None]) -> dict[str, Any]:
    """Return what a method's stream takes: passes, trained parameters, memory and seconds.

    First the method alone goes through the stream: that warms up, counts its passes and shows its
    memory. Then Source and the method take turns, a whole stream each from the source state, so
    that whatever disturbs the machine disturbs both. `tick` is called after each stream.
    """
    tta = start(job, features)
    _touch(features, job)
    before = _memory("VmRSS")
    with suppress(OSError):
        REFERENCES.write_text("5")  # begins the peak anew, if the system allows it
    with counted_passes(features.model) as passes:
        counts, _ = _walk(tta, job, features)
    peak = _peak_mib()
    tick()
    source = adapt(copy.deepcopy(features.model), "source")
    _walk(source, job, features)
    times: dict[str, list[dict[str, float]]] = {"source": [], "rounds": []}
    for _ in range(job.run.cost["rounds"]):
        for name, adaptation in (("source", source), ("rounds", tta)):
            times[name].append(_walk(adaptation, job, features)[1])
            tick()
    trained = tta.trainable
    return {
        **counts,
        "trainable": trained.count,
        "total": trained.total,
        "passes": passes.rows(),
        **times,
        "memory": {
            "before_mib": before and round(before, 1),
            "peak_mib": round(peak, 1),
            "over_mib": before and round(peak - before, 1),
        },
        "loading": LOADING,
        **provenance(),
    }


@torch.no_grad()
def _touch(features: Features, job: Job) -> None:
    """Send one sample through the model, so that the code it needs is in memory."""
    _, inputs = next(_batches(features, job))
    tokens = features.model.encode({name: value[:1] for name, value in inputs.items()})  # type: ignore[operator]
    features.model.fuse(tokens)  # type: ignore[operator]


def _walk(tta: Adaptation, job: Job, features: Features) -> tuple[dict[str, Any], dict[str, float]]:
    """Go once through the stream from the source state; return counts and seconds."""
    tta.reset()
    counts = {"samples": 0, "batches": 0, "updates": 0}
    seconds = {"load": 0.0, "adapt": 0.0, "processor": 0.0}
    stream = _batches(features, job)
    while True:
        asked = time.perf_counter()
        reset, inputs = next(stream, (False, None))
        loaded, worked = time.perf_counter(), time.process_time()
        seconds["load"] += loaded - asked
        if inputs is None:
            return counts, {name: round(value, 4) for name, value in seconds.items()}
        if reset:
            tta.reset()
        outcome = tta(inputs)
        seconds["adapt"] += time.perf_counter() - loaded
        seconds["processor"] += time.process_time() - worked
        counts["samples"] += len(outcome.logits)
        counts["batches"] += 1
        counts["updates"] += outcome.updated


def _batches(features: Features, job: Job) -> Iterator[tuple[bool, Inputs]]:
    """Yield raw batches in the order of the stream, and whether a reset comes before each."""
    for visit in job.visits():
        reset = visit.reset
        for _, batch in batches_of(features, visit, job, encoded=False):
            yield reset, batch.inputs
            reset = False


def _peak_mib() -> float:
    """Return the most memory that this process held since the peak was reset."""
    peak = _memory("VmHWM")
    if peak is None:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (2**20 if sys.platform == "darwin" else 2**10)
    return peak


def _memory(name: str) -> float | None:
    # Not ru_maxrss: that of a new process begins with what its parent held.
    if not STATUS.exists():
        return None
    lines = STATUS.read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), None)

"""Measure one method on one model: meant for a process that has done nothing else."""

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dasp.bench.cell import batches, provenance
from dasp.bench.features import Features
from dasp.bench.memory import forget_peak, peak_mib, resident_mib
from dasp.bench.passes import counted_passes
from dasp.bench.references import find_method
from dasp.bench.results import Cell
from dasp.bench.start import start
from dasp.core.types import Inputs
from dasp.methods import Adaptation, adapt

LOADING = "raw inputs read from the feature store, where they lie decoded and corrupted"


def measure(
    cell: Cell, features: Features, rounds: int, tick: Callable[[], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a method's stream takes: (exact counts, measured figures).

    First the method alone goes through the stream: that warms up, counts its passes and shows
    its memory. Then Source and the method take turns, a whole stream each from the source state,
    so that whatever disturbs the machine disturbs both. `tick` is told of each stream that ends.
    """
    tta = start(cell, find_method(cell.method), features)
    _touch(features, cell)
    before = resident_mib()
    forget_peak()
    with counted_passes(features.model) as passes:
        counts, _ = _walk(tta, cell, features)
    peak = peak_mib()
    tick()
    source = adapt(copy.deepcopy(features.model), "source")
    _walk(source, cell, features)
    times: dict[str, list[dict[str, float]]] = {"source": [], "rounds": []}
    for _ in range(rounds):
        for name, adaptation in (("source", source), ("rounds", tta)):
            times[name].append(_walk(adaptation, cell, features)[1])
            tick()
    trained = tta.trainable
    counts |= {"trainable": trained.count, "total": trained.total, "passes": passes.rows()}
    memory = {
        "before_mib": before and round(before, 1),
        "peak_mib": round(peak, 1),
        "over_mib": before and round(peak - before, 1),
    }
    return counts, {**times, "memory": memory, "loading": LOADING, **provenance()}


@torch.no_grad()
def _touch(features: Features, cell: Cell) -> None:
    """Send one sample through the model, so that code it needs is in memory already."""
    _, inputs = next(_batches(features, cell))
    tokens = features.model.encode({name: value[:1] for name, value in inputs.items()})  # type: ignore[operator]
    features.model.fuse(tokens)  # type: ignore[operator]


def _walk(
    tta: Adaptation, cell: Cell, features: Features
) -> tuple[dict[str, Any], dict[str, float]]:
    """Go once through the stream from the source state: (what was counted, seconds)."""
    tta.reset()
    counts = {"samples": 0, "batches": 0, "updates": 0}
    seconds = {"load": 0.0, "adapt": 0.0, "processor": 0.0}
    stream = _batches(features, cell)
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


def _batches(features: Features, cell: Cell) -> Iterator[tuple[bool, Inputs]]:
    """Give raw batches in the order of the cell's stream, and whether a reset comes before."""
    for visit in cell.visits():
        reset = visit.reset
        for _, batch in batches(features, visit, cell, encoded=False):
            yield reset, batch.inputs
            reset = False

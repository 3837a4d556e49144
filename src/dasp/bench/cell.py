"""Run one cell: a method through a protocol on one model, counting."""

import platform
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dasp.bench.count import Count
from dasp.bench.features import Features
from dasp.bench.passes import timed_encoders
from dasp.bench.results import Cell
from dasp.bench.start import start
from dasp.core.ahead import drawn_ahead
from dasp.core.clock import Clock, Seconds, timed
from dasp.core.seeding import numpy_generator
from dasp.core.types import Batch, Outcome
from dasp.core.version import __version__
from dasp.methods import Adaptation, Method
from dasp.streams.orders import sample_order
from dasp.streams.visits import CLEAN, Visit

Tick = Callable[[int, Seconds], None]
"""Is told of batches done, and what time went by on since it was last told."""


def run_cell(
    cell: Cell, method: type[Method], features: Features, tick: Tick | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a cell; return its result and what it cost. `tick` is told of batches done."""
    tta = start(cell, method, features)
    count, clock = Count(len(features.labels)), Clock()
    clean = CleanAfter(features, cell) if cell.clean_after else None
    if clean is not None:
        clean.judge(tta, clock)
    stream = stream_of(features, cell, not method.tunes_encoder, torch.get_num_threads())
    with drawn_ahead(stream, features.ahead) as drawn:
        for visit, group in groupby(timed(drawn, clock), key=lambda item: item[0]):
            if visit.reset:
                tta.reset()
            count.enter(visit)
            for _, numbers, batch in group:
                with clock.on("adapt"), timed_encoders(features.model, clock):
                    outcome = _call(tta, batch)
                count.add(numbers, batch, outcome)
                if tick is not None:
                    tick(1, clock.news())
            count.leave()
            if clean is not None:
                clean.judge(tta, clock)
    skipped = [
        {"id": name, "reason": why} for name, why in getattr(features.material, "skipped", ())
    ]
    tta.reset()  # the model is shared with the next cell
    result = count.result(skipped) | {"clean_after": None if clean is None else clean.counts}
    return result, _measured(clock.seconds, result["seen"])


def batches_of(cell: Cell, samples: int) -> int:
    """Return how many batches a cell has."""
    return sum(visit.batches(samples, cell.batch_size) for visit in cell.visits())


def stream_of(
    features: Features, cell: Cell, encoded: bool, threads: int
) -> Iterator[tuple[Visit, NDArray[np.int64], Batch]]:
    """Give every batch of a cell's stream with its visit and the numbers of its samples."""
    torch.set_num_threads(threads)  # a new thread has a number of its own
    for visit in cell.visits():
        for numbers, batch in batches(features, visit, cell, encoded):
            yield visit, numbers, batch


def batches(
    features: Features, visit: Visit, cell: Cell, encoded: bool
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Give a visit's batches and the numbers of their samples, in the order of (seed, visit)."""
    rng = numpy_generator(cell.seed, "order", *visit.purpose)
    labels = features.labels.repeat(len(visit.conditions))
    order = sample_order(visit.order, labels.numpy(), cell.batch_size, rng)
    stream = features.batches(visit.conditions, encoded, order, cell.batch_size, cell.tokens)
    for numbers, inputs in stream:
        yield numbers, Batch(inputs, labels[numbers], domain=visit.name)


class CleanAfter:
    """How many clean samples are right, jointly and by each modality alone, again and again."""

    def __init__(self, features: Features, cell: Cell) -> None:
        self.features, self.cell = features, cell
        self.rows = np.arange(min(cell.clean_after, len(features.labels)))
        self.counts: dict[str, Any] = {"seen": len(self.rows), "joint": []}

    def judge(self, tta: Adaptation, clock: Clock) -> None:
        """Judge the present state; nothing of it changes."""
        encoded = not tta.method.tunes_encoder
        right: Counter[str] = Counter()
        with tta.frozen(), clock.on("judge"):
            for rows, inputs in self.features.batches(
                [CLEAN], encoded, self.rows, self.cell.batch_size, self.cell.tokens
            ):
                labels = self.features.labels[rows]
                alone = tta.alone_on_tokens(inputs) if encoded else tta.alone(inputs)
                joint = _call(tta, Batch(inputs, labels)).logits
                for name, logits in {"joint": joint, **alone}.items():
                    right[name] += int((logits.argmax(dim=1).cpu() == labels).sum())
        for name, value in right.items():
            self.counts.setdefault(name, []).append(value)


def _call(tta: Adaptation, batch: Batch) -> Outcome:
    return tta(batch.inputs) if tta.method.tunes_encoder else tta.on_tokens(batch.inputs)


def _measured(seconds: Seconds, samples: int) -> dict[str, Any]:
    adapting = seconds["adapt"] + seconds.get("encode", 0.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "peak_mib": round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1),
        "samples_per_second": round(samples / max(adapting, 1e-9), 1),
        **provenance(),
    }


def provenance() -> dict[str, Any]:
    """Return when, where and with which versions a file was made."""
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"processor": platform.machine(), "threads": torch.get_num_threads()},
        "versions": {
            "dasp": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }

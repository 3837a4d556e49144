"""Run one cell: a method through a protocol on one model, counting."""

import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dasp.bench.features import Features
from dasp.bench.results import Cell
from dasp.bench.start import start
from dasp.core.seeding import numpy_generator
from dasp.core.types import Batch, Outcome
from dasp.core.version import __version__
from dasp.methods import Adaptation, Method
from dasp.streams.orders import sample_order
from dasp.streams.visits import CLEAN, Visit


class Count:
    """What is counted batch by batch, of `samples` samples under each condition."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.hits = np.zeros(0, dtype=bool)
        self.domains: list[dict[str, Any]] = []
        self.here: list[dict[str, Any]] = []
        self.batches: dict[str, list[Any]] = {
            name: [] for name in ("right", "seen", "updated", "rejected", "diagnosis", "rollback")
        }

    def enter(self, visit: Visit) -> None:
        """Begin a visit."""
        first = len(self.batches["seen"])
        self.hits = np.zeros(len(visit.conditions) * self.samples, dtype=bool)
        self.here = [
            {"name": condition.name, "right": 0, "seen": 0, "first_batch": first, "batches": 0}
            for condition in visit.conditions
        ]

    def add(self, numbers: NDArray[np.int64], batch: Batch, outcome: Outcome) -> None:
        """Count one batch of these samples, numbered as in `Features.batches`."""
        hits = outcome.logits.argmax(dim=1) == batch.labels
        self.hits[numbers] = hits.numpy()
        right = int(hits.sum())
        for place in numbers // self.samples:
            self.here[place]["seen"] += 1
        if len(self.here) == 1:  # a batch of several domains belongs to none of them
            self.here[0]["batches"] += 1
        self.batches["right"].append(right)
        self.batches["seen"].append(len(batch.labels))
        for name in ("updated", "rejected", "diagnosis", "rollback"):
            self.batches[name].append(getattr(outcome, name))

    def leave(self) -> None:
        """End a visit: which samples were right, as a bit each in the data set's own order."""
        for domain, hits in zip(self.here, self.hits.reshape(len(self.here), -1), strict=True):
            domain["right"] = int(hits.sum())
            domain["hits"] = np.packbits(hits).tobytes().hex()
        self.domains += self.here

    def result(self, skipped: list[dict[str, str]]) -> dict[str, Any]:
        """Return the counts as plain data; accuracy is from global counts."""
        right, seen = sum(self.batches["right"]), sum(self.batches["seen"])
        found = [d for d in self.batches["diagnosis"] if d is not None]
        whole = found if len(found) == len(self.batches["seen"]) else None
        scored = dict.fromkeys(name for d in found for name in d.scores)
        rollbacks = [
            {"batch": batch, "reason": reason}
            for batch, reason in enumerate(self.batches["rollback"])
            if reason is not None
        ]
        return {
            "accuracy": round(100 * right / seen, 4),
            "right": right,
            "seen": seen,
            "domains": self.domains,
            "batches": {
                name: self.batches[name] for name in ("right", "seen", "updated", "rejected")
            }
            | {
                "scores": whole and {n: [d.scores.get(n) for d in whole] for n in scored},
                "biased": whole and [sorted(d.biased) for d in whole],
            },
            "updates": sum(self.batches["updated"]),
            "rejections": sum(reason is not None for reason in self.batches["rejected"]),
            "skipped": skipped,
        } | ({"rollbacks": rollbacks} if rollbacks else {})  # files without any stay as they were


def run_cell(
    cell: Cell,
    method: type[Method],
    features: Features,
    tick: Callable[[int], None] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a cell; return its result and what it cost. `tick` is told of batches done."""
    tta = start(cell, method, features)
    count, seconds = Count(len(features.labels)), {"load": 0.0, "adapt": 0.0}
    clean = CleanAfter(features, cell) if cell.clean_after else None
    if clean is not None:
        clean.judge(tta)
    for visit in cell.visits():
        if visit.reset:
            tta.reset()
        count.enter(visit)
        stream = batches(features, visit, cell, encoded=not method.tunes_encoder)
        while True:
            asked = time.perf_counter()
            numbers, batch = next(stream, (None, None))
            loaded = time.perf_counter()
            seconds["load"] += loaded - asked
            if numbers is None or batch is None:
                break
            outcome = _call(tta, batch)
            seconds["adapt"] += time.perf_counter() - loaded
            count.add(numbers, batch, outcome)
            if tick is not None:
                tick(1)
        count.leave()
        if clean is not None:
            clean.judge(tta)
    skipped = [
        {"id": name, "reason": why} for name, why in getattr(features.material, "skipped", ())
    ]
    tta.reset()  # the model is shared with the next cell
    result = count.result(skipped) | {"clean_after": None if clean is None else clean.counts}
    return result, _measured(seconds, result["seen"])


def batches_of(cell: Cell, samples: int) -> int:
    """Return how many batches a cell has."""
    return sum(visit.batches(samples, cell.batch_size) for visit in cell.visits())


def batches(
    features: Features, visit: Visit, cell: Cell, encoded: bool
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Give a visit's batches and the numbers of their samples, in the order of (seed, visit)."""
    rng = numpy_generator(cell.seed, "order", *visit.purpose)
    labels = features.labels.repeat(len(visit.conditions))
    order = sample_order(visit.order, labels.numpy(), cell.batch_size, rng)
    for numbers, inputs in features.batches(visit.conditions, encoded, order, cell.batch_size):
        yield numbers, Batch(inputs, labels[numbers], domain=visit.name)


class CleanAfter:
    """How many clean samples are right, jointly and by each modality alone, again and again."""

    def __init__(self, features: Features, cell: Cell) -> None:
        self.features, self.batch_size = features, cell.batch_size
        self.rows = np.arange(min(cell.clean_after, len(features.labels)))
        self.counts: dict[str, Any] = {"seen": len(self.rows), "joint": []}

    def judge(self, tta: Adaptation) -> None:
        """Judge the present state; nothing of it changes."""
        encoded = not tta.method.tunes_encoder
        right: Counter[str] = Counter()
        with tta.frozen():
            for rows, inputs in self.features.batches([CLEAN], encoded, self.rows, self.batch_size):
                labels = self.features.labels[rows]
                alone = tta.alone_on_tokens(inputs) if encoded else tta.alone(inputs)
                joint = _call(tta, Batch(inputs, labels)).logits
                for name, logits in {"joint": joint, **alone}.items():
                    right[name] += int((logits.argmax(dim=1) == labels).sum())
        for name, value in right.items():
            self.counts.setdefault(name, []).append(value)


def _call(tta: Adaptation, batch: Batch) -> Outcome:
    return tta(batch.inputs) if tta.method.tunes_encoder else tta.on_tokens(batch.inputs)


def _measured(seconds: dict[str, float], samples: int) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "peak_mib": round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1),
        "samples_per_second": round(samples / max(seconds["adapt"], 1e-9), 1),
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

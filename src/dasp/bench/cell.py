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
from dasp.streams.protocols import Visit, visits


class Count:
    """What is counted batch by batch, of `samples` samples a domain."""

    def __init__(self, samples: int) -> None:
        self.hits = np.zeros(samples, dtype=bool)
        self.domains: list[dict[str, Any]] = []
        self.batches: dict[str, list[Any]] = {
            name: [] for name in ("right", "seen", "updated", "rejected", "diagnosis")
        }

    def enter(self, visit: Visit) -> None:
        """Begin a domain."""
        first = len(self.batches["seen"])
        self.hits[:] = False
        self.domains.append(
            {"name": visit.name, "right": 0, "seen": 0, "first_batch": first, "batches": 0}
        )

    def add(self, rows: NDArray[np.int64], batch: Batch, outcome: Outcome) -> None:
        """Count one batch, of these rows of the data set."""
        hits = outcome.logits.argmax(dim=1) == batch.labels
        self.hits[rows] = hits.numpy()
        right = int(hits.sum())
        domain = self.domains[-1]
        domain["right"] += right
        domain["seen"] += len(batch.labels)
        domain["batches"] += 1
        values = (right, len(batch.labels), outcome.updated, outcome.rejected, outcome.diagnosis)
        for name, value in zip(self.batches, values, strict=True):
            self.batches[name].append(value)

    def leave(self) -> None:
        """End a domain: which samples were right, as a bit each in the data set's own order."""
        self.domains[-1]["hits"] = np.packbits(self.hits).tobytes().hex()

    def result(self, skipped: list[dict[str, str]]) -> dict[str, Any]:
        """Return the counts as plain data; accuracy is from global counts."""
        right, seen = sum(self.batches["right"]), sum(self.batches["seen"])
        found = [d for d in self.batches["diagnosis"] if d is not None]
        whole = found if len(found) == len(self.batches["seen"]) else None
        return {
            "accuracy": round(100 * right / seen, 4),
            "right": right,
            "seen": seen,
            "domains": self.domains,
            "batches": {
                name: self.batches[name] for name in ("right", "seen", "updated", "rejected")
            }
            | {
                "scores": whole and {n: [d.scores[n] for d in whole] for n in whole[0].scores},
                "biased": whole and [sorted(d.biased) for d in whole],
            },
            "updates": sum(self.batches["updated"]),
            "rejections": sum(reason is not None for reason in self.batches["rejected"]),
            "skipped": skipped,
        }


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
    for visit in visits(cell.protocol, cell.severity, cell.corruptions):
        if visit.reset:
            tta.reset()
        count.enter(visit)
        stream = batches(features, visit, cell, encoded=not method.tunes_encoder)
        while True:
            asked = time.perf_counter()
            rows, batch = next(stream, (None, None))
            loaded = time.perf_counter()
            seconds["load"] += loaded - asked
            if rows is None or batch is None:
                break
            outcome = _call(tta, batch)
            seconds["adapt"] += time.perf_counter() - loaded
            count.add(rows, batch, outcome)
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
    return len(visits(cell.protocol, cell.severity, cell.corruptions)) * -(
        -samples // cell.batch_size
    )


def batches(
    features: Features, visit: Visit, cell: Cell, encoded: bool
) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Give a domain's batches, with their rows, in the order that (seed, domain) decides."""
    order = numpy_generator(cell.seed, "order", visit.name).permutation(len(features.labels))
    for rows, inputs in features.batches(visit.domain, encoded, order, cell.batch_size):
        yield rows, Batch(inputs, features.labels[rows], domain=visit.name)


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
            for rows, inputs in self.features.batches(None, encoded, self.rows, self.batch_size):
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

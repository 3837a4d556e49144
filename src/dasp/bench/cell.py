"""Run one cell: a method through a protocol on one model, counting."""

import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from dasp.bench.features import Features, Part
from dasp.bench.results import Cell
from dasp.core.seeding import numpy_generator
from dasp.core.types import Batch, Outcome
from dasp.core.version import __version__
from dasp.methods import Adaptation, Method, adapt
from dasp.streams.protocols import Visit, visits


class Count:
    """What is counted batch by batch."""

    def __init__(self) -> None:
        self.domains: list[dict[str, Any]] = []
        self.batches: dict[str, list[Any]] = {
            name: [] for name in ("right", "seen", "updated", "rejected", "diagnosis")
        }

    def enter(self, visit: Visit) -> None:
        """Begin a domain."""
        first = len(self.batches["seen"])
        self.domains.append(
            {"name": visit.name, "right": 0, "seen": 0, "first_batch": first, "batches": 0}
        )

    def add(self, batch: Batch, outcome: Outcome) -> None:
        """Count one batch."""
        right = int((outcome.logits.argmax(dim=1) == batch.labels).sum())
        domain = self.domains[-1]
        domain["right"] += right
        domain["seen"] += len(batch.labels)
        domain["batches"] += 1
        values = (right, len(batch.labels), outcome.updated, outcome.rejected, outcome.diagnosis)
        for name, value in zip(self.batches, values, strict=True):
            self.batches[name].append(value)

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
    tta = adapt(features.model, method, seed=cell.seed, **cell.options)
    count, seconds = Count(), {"load": 0.0, "adapt": 0.0}
    for visit in visits(cell.protocol, cell.severity, cell.corruptions):
        if visit.reset:
            tta.reset()
        count.enter(visit)
        stream = _batches(features, visit, cell, encoded=not method.tunes_encoder)
        while True:
            start = time.perf_counter()
            batch = next(stream, None)
            loaded = time.perf_counter()
            seconds["load"] += loaded - start
            if batch is None:
                break
            count.add(batch, _call(tta, batch))
            seconds["adapt"] += time.perf_counter() - loaded
            if tick is not None:
                tick(1)
    skipped = [
        {"id": name, "reason": why} for name, why in getattr(features.material, "skipped", ())
    ]
    tta.reset()  # the model is shared with the next cell
    result = count.result(skipped)
    return result, _measured(seconds, result["seen"])


def batches_of(cell: Cell, samples: int) -> int:
    """Return how many batches a cell has."""
    return len(visits(cell.protocol, cell.severity, cell.corruptions)) * -(
        -samples // cell.batch_size
    )


def _batches(features: Features, visit: Visit, cell: Cell, encoded: bool) -> Iterator[Batch]:
    """Give a domain's batches in the order that (seed, domain) decides."""
    names = features.model.modalities
    arrays = {name: features.get(Part(name, visit.domain, encoded)) for name in names}  # type: ignore[union-attr]
    order = numpy_generator(cell.seed, "order", visit.name).permutation(len(features.labels))
    for start in range(0, len(order), cell.batch_size):
        rows = order[start : start + cell.batch_size]
        inputs = {name: torch.from_numpy(np.array(array[rows])) for name, array in arrays.items()}
        yield Batch(inputs, features.labels[rows], domain=visit.name)


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

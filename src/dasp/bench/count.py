"""What is counted while a cell runs: hits, updates, diagnoses, batch by batch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.core.types import Batch, Outcome
from dasp.streams.visits import Visit


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
        hits = outcome.logits.argmax(dim=1).cpu() == batch.labels
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

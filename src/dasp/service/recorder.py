"""Counts and logs what an adaptation does; never at the cost of a prediction."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dasp.core.types import Outcome
from dasp.service.counters import Counters, exposition
from dasp.service.events import EventLog

LOGGER = logging.getLogger("dasp")


class Recorder:
    """The counters of an adaptation and, where one is wanted, its event log.

    `about` is what the log says of the run at its start.
    """

    def __init__(
        self, modalities: Sequence[str], about: Mapping[str, Any], log: str | Path | None
    ) -> None:
        self.counters = Counters(modalities)
        self.log = None if log is None else EventLog(log)
        self._about, self._begun, self._warned = about, False, False
        self._fit: dict[str, Any] | None = None
        self._last: Outcome | None = None
        self._last_time = 0.0

    def outcome(
        self,
        outcome: Outcome,
        present: Sequence[str],
        index: int,
        norms: Callable[[], Mapping[str, float]],
        frozen: bool = False,
    ) -> None:
        """Record what one call gave; `norms` is asked only if there is a log."""
        counters, size = self.counters, len(outcome.logits)
        missing = [name for name in counters.modalities if name not in present]
        event: dict[str, Any] = {"event": "frozen" if frozen else "batch"}
        if self.log is not None:
            event |= {"index": index, "size": size, "present": present, "missing": missing}
            event |= {"scores": None, "biased": None, "updated": outcome.updated}
            if outcome.diagnosis is not None:
                event |= {"scores": outcome.diagnosis.scores, "biased": outcome.diagnosis.biased}
            event |= {"loss": outcome.loss, "rejected": outcome.rejected}
            event |= {"rollback": outcome.rollback, "norms": norms()}
            self._write(event)
        if frozen:
            counters.add("frozen")
            return
        self._last, self._last_time = outcome, time.time()
        counters.add("batches")
        counters.add("samples", size)
        counters.add("updates", outcome.updated)
        counters.add("rejections", outcome.rejected is not None)
        counters.add("rollbacks", outcome.rollback is not None)
        counters.add_each("missing", missing)
        if outcome.diagnosis is not None:
            counters.add_each("flags", outcome.diagnosis.biased)

    def error(self, error: Exception) -> None:
        """Record a call that ended in an exception."""
        if self.log is not None:
            self._write({"event": "error", "error": f"{type(error).__name__}: {error}"})
        self.counters.add("batches")
        self.counters.add("errors")

    def event(self, kind: str, count: str | None = None, path: str | Path | None = None) -> None:
        """Record something that is not a batch."""
        if count is not None:
            self.counters.add(count)
        if self.log is not None:
            self._write({"event": kind} | ({} if path is None else {"path": path}))

    def to_disk(self) -> None:
        """Let the log survive a power failure as far as it has come."""
        if self.log is not None:
            self.guarded(self.log.to_disk, "the event log")

    def guarded(self, action: Callable[[], None], what: str) -> bool:
        """Write something; if that fails, count it, say so once, and go on."""
        try:
            action()
        except OSError as error:
            self.counters.add("write_errors")
            if not self._warned:
                LOGGER.warning("dasp could not write %s and goes on without: %s", what, error)
                self._warned = True
            return False
        return True

    def metrics(self, index: int, norms: Mapping[str, float]) -> str:
        """Return counters, last scores and norms in Prometheus' text format."""
        diagnosis = self._last.diagnosis if self._last else None
        gauges: dict[str, tuple[str, Any]] = {
            "batch_index": ("Batches learnt from or predicted since the last reset", index),
            "last_batch_timestamp_seconds": ("When the last batch came", self._last_time),
            "score": ("Redundancy in the last batch", diagnosis.scores if diagnosis else {}),
            "adapter_norm": ("Distance of the adapters from their source state", norms),
        }
        return exposition(self.counters, gauges)

    def _write(self, event: dict[str, Any]) -> None:
        assert self.log is not None
        if not self._begun and event["event"] == "fit":
            self._fit = event  # whether a run starts or goes on shows in what comes next
            return
        if not self._begun and event["event"] != "resume":
            modalities = self.counters.modalities
            self._append({"event": "start", **self._about, "modalities": modalities})
            if self._fit is not None:
                self._append(self._fit)
        self._begun = True
        self._append(event)

    def _append(self, event: dict[str, Any]) -> None:
        assert self.log is not None
        place = {"event": event["event"], "time": time.time()}
        place["batch"] = self.counters.totals["batches"]
        log, line = self.log, {**place, **event}
        self.guarded(lambda: log.write(line), f"the event log {log.path}")

"""The event log: one JSON object per line, appended, and read back with each batch once.

Every line has `event`, `time` (seconds since 1970) and `batch`, the number of batches before it.

- "start": a run begins; with `method`, `hyper`, `modalities`.
- "batch": `index` (batches processed since the last reset), `size`, `present` and `missing`
  modalities, `scores`, `biased` and `probability` (null without a diagnosis), `updated`, `loss`,
  `lr`, `rejected`, `rollback` and `skipped` (the reason, or null: `skipped` says why nothing was
  learned, whatever the cause), `norms` (the distance of each modality's adapters from the source
  state).
- "frozen": the same for a call inside `frozen()`, which is not a batch of the stream.
- "error": a batch that ended in an exception; with `error`.
- "reset", "fit", "save", "load", "resume": with `path` if there is one.

A number that is not finite is null, so that every line is JSON.
"""

import errno
import json
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from dasp.core.errors import DataError, OptionError
from dasp.core.types import Outcome
from dasp.service.metrics import Counters, exposition

LIMIT = 64 * 2**20  # bytes per file; with the previous file, a log takes at most twice this
START = b'{"event": '
COUNTED = {"reset": "resets", "save": "saves", "load": "loads", "resume": "loads"}
FIELDS: Mapping[str, Any] = {  # the kind of each, if it is there and not null
    **dict.fromkeys(("event", "method", "rejected", "rollback", "skipped"), str),
    **{name: [str] for name in ("modalities", "present", "missing", "biased")},
    **{name: {"*": float} for name in ("scores", "norms", "probability")},
    **dict.fromkeys(("time", "loss", "lr"), float),
    "hyper": {"*": str},
}
Event = dict[str, Any]
Norms = Callable[[], Mapping[str, float]]
LOGGER = logging.getLogger("dasp")


class EventLog:
    """Appends lines to a file. At `limit` bytes the file becomes `<name>.1`, replacing the last.

    Each line is one write, so a kill truncates at most the last one, and the next writer removes
    the rest of it. The file is opened for each line, so it may be moved at any time.
    """

    def __init__(self, path: str | Path, limit: int = LIMIT) -> None:
        self.path, self.limit, self._mended = Path(path), limit, False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.is_dir():
            raise OptionError(f"log={str(path)!r} is a directory: give the path of a file.")
        if self.path.exists():
            with self.path.open("rb") as file:
                first = file.readline()
            whole = first.endswith(b"\n")  # a kill may have truncated it
            if parsed(first) is None if whole else not START.startswith(first[: len(START)]):
                raise OptionError(f"log={str(path)!r} is not an event log: give another path.")

    def write(self, event: Mapping[str, Any]) -> None:
        """Append one event, completely or not at all; raise OSError if that fails."""
        plain = json.loads(json.dumps(event, default=_text), parse_constant=lambda _: None)
        line = (json.dumps(plain) + "\n").encode()
        if not self._mended and self.path.exists():
            with self.path.open("rb+") as file:  # remove a last line that a kill has truncated
                file.truncate(file.read().rfind(b"\n") + 1)
        self._mended = True
        if self.path.exists() and 0 < self.path.stat().st_size > self.limit - len(line):
            self.path.replace(older(self.path))
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            size = os.fstat(handle).st_size
            if os.write(handle, line) != len(line):
                os.ftruncate(handle, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        finally:
            os.close(handle)

    def to_disk(self) -> None:
        """Wait until everything written would survive a power failure."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())


def older(path: Path) -> Path:
    """Return the path of a log that has reached its limit."""
    return path.with_name(path.name + ".1")


def read(path: str | Path) -> list[Event]:
    """Return the events of the last run in a log, in order, each batch once.

    A run that was resumed from a checkpoint after a kill has processed some batches twice: a
    "resume" replaces the events from its batch on. A truncated last line is ignored.
    """
    path, kept = Path(path), list[Event]()
    if not path.is_file():
        raise DataError(f"no event log at {path}.")
    for file in filter(Path.is_file, (older(path), path)):
        lines = file.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):  # after the last \n: a truncated line
            event = parsed(line)
            if event is None:
                raise DataError(f"{file}, line {number} is not an event: {line[:60]!r}.")
            if event["event"] == "start":
                kept = []
            elif event["event"] == "resume":
                kept = [earlier for earlier in kept if earlier["batch"] < event["batch"]]
            kept.append(event)
    return kept


def parsed(line: bytes) -> Event | None:
    """Return the event of a line; None if it is not one, or a field is not what it must be."""
    try:
        event = json.loads(line)
        json.dumps(event, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not event.get("event"):
        return None
    batch = event.get("batch")
    placed = type(batch) is int and 0 <= batch < 2**53
    fits = placed and all(_fits(event.get(name), kind) for name, kind in FIELDS.items())
    return event if fits else None


def _fits(value: object, kind: object) -> bool:
    """Tell whether a value is null or of a kind in FIELDS."""
    match value:
        case None:
            return True
        case list():
            return isinstance(kind, list) and all(type(one) is str for one in value)
        case dict():
            return isinstance(kind, dict) and all(_fits(v, kind["*"]) for v in value.values())
        case bool() | str():
            return type(value) is kind
    return kind is float and abs(value) < 2**1000  # type: ignore[arg-type]


def _text(value: object) -> str | list[str]:
    """Return what JSON has no type for, such as a set or a path, as text."""
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


class Recorder:
    """The counters of an adaptation and, optionally, its event log.

    `about` describes the run in the "start" event. A failure to write never costs a prediction.
    """

    def __init__(
        self, modalities: Sequence[str], about: Mapping[str, Any], log: str | Path | None
    ) -> None:
        self.counters = Counters(modalities)
        self.log = None if log is None else EventLog(log)
        self._about, self._begun, self._warned = about, False, False
        self._fit: list[Event] = []
        self._scores: Mapping[str, float] = {}  # of the last batch
        self._logits: Tensor | None = None  # of the last batch
        self._last_time = 0.0

    def count(self, outcome: Outcome, present: Collection[str], frozen: bool) -> None:
        """Count one call."""
        counters, found = self.counters, outcome.diagnosis
        if frozen:
            counters.add(frozen=1)
            return
        self._scores, self._last_time = found.scores if found else {}, time.time()
        self._logits = outcome.logits
        counters.add_each("missing", self._missing(present))
        counters.add_each("flags", found.biased if found else ())
        counters.add(rejections=bool(outcome.rejected), rollbacks=bool(outcome.rollback))
        counters.add(batches=1, samples=len(outcome.logits), updates=outcome.updated)

    def log_outcome(
        self, outcome: Outcome, present: Collection[str], index: int, norms: Norms, frozen: bool
    ) -> None:
        """Write one call that was counted; `norms` is only called if there is a log."""
        if self.log is None:
            return
        found, kind = outcome.diagnosis, "frozen" if frozen else "batch"
        shown = ("updated", "loss", "lr", "rejected", "rollback", "skipped")
        parts = {name: getattr(outcome, name) for name in shown}
        event: Event = {"event": kind, "index": index, "size": len(outcome.logits)}
        event |= {"present": list(present), "missing": self._missing(present)}
        named = ("scores", "biased", "probability")
        event |= {name: found and getattr(found, name) for name in named}
        self._write({**event, **parts, "norms": norms()}, counted=not frozen)

    def _missing(self, present: Collection[str]) -> list[str]:
        return [name for name in self.counters.modalities if name not in present]

    def error(self, error: Exception) -> None:
        """Record a call that ended in an exception."""
        self._write({"event": "error", "error": f"{type(error).__name__}: {error}"})
        self.counters.add(batches=1, errors=1)

    def event(self, kind: str, path: str | Path | None = None) -> None:
        """Record an event other than a batch."""
        if kind in COUNTED:
            self.counters.add(**{COUNTED[kind]: 1})
        self._write({"event": kind} if path is None else {"event": kind, "path": path})

    def to_disk(self) -> None:
        """Write the log to disk, so that it survives a power failure."""
        if self.log is not None:
            self.guarded(self.log.to_disk, "the event log")

    def guarded(self, action: Callable[[], None], what: str) -> bool:
        """Run a write; count a failure, warn once, and continue. Return whether it succeeded."""
        try:
            action()
        except OSError as error:
            self.counters.add(write_errors=1)
            if not self._warned:
                LOGGER.warning("dasp could not write %s and continues without: %s", what, error)
                self._warned = True
            return False
        return True

    def metrics(self, index: int, norms: Mapping[str, float]) -> str:
        """Return the counters, last scores and norms in Prometheus' text format."""
        return exposition(
            self.counters,
            batch_index=("Batches processed since the last reset", index),
            last_batch_timestamp_seconds=("Time of the last batch", self._last_time),
            score=("Diagnosis score in the last batch", self._scores),
            confidence=("Mean highest class probability in the last batch", self._confidence()),
            adapter_norm=("Distance of the adapters from their source state", norms),
        )

    def _confidence(self) -> float:
        """Return the mean probability of the predicted classes; NaN if nothing was predicted."""
        if self._logits is None:
            return math.nan
        highest = self._logits.softmax(dim=1).amax(dim=1)
        return float(highest[highest.isfinite()].mean())

    def _write(self, event: Event, counted: bool = False) -> None:
        """Write an event at its place among the batches: if `counted`, it is the last of them."""
        if self.log is None:
            return
        if not self._begun and event["event"] == "fit":
            self._fit = [event]  # the next event shows whether a run starts or resumes
            return
        events = [event]
        if not self._begun and event["event"] != "resume":
            start = {"event": "start", **self._about, "modalities": self.counters.modalities}
            events = [start, *self._fit, event]
        self._begun = True
        for each in events:
            place = {"time": time.time(), "batch": self.counters.totals["batches"] - counted}
            line = {"event": each["event"], **place, **each}
            self.guarded(partial(self.log.write, line), f"the event log {self.log.path}")

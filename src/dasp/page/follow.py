"""Follow the event log of a process that runs elsewhere, without writing to it."""

import json
import os
from ast import literal_eval
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dasp.core.errors import DataError
from dasp.page.runner import Feed, Point, Update, finite
from dasp.service.events import older


class LogFeed(Feed):
    """The batches in an event log, and those appended to it while the page is open."""

    follows = True

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.is_file():
            raise DataError(f"no event log at {path}: start the process with log='{path}' first.")
        self._events = _tail(self._path)
        self._modalities: list[str] = []
        self._run: dict[str, Any] = {}  # the log's "start" event
        self._keep: int | None = None
        self._notes: list[str] = []
        self._first = self._read_batch()  # read now, so that `about` can describe the run

    def about(self) -> dict[str, Any]:
        """Return what the "start" event says of the run."""
        method = self._run.get("method", "")
        return {
            "title": f"{self._path.name}: {method}".rstrip(": "),
            "mode": "monitor",
            "legend": "",
            "modalities": self._modalities,
            "lanes": [],
            "watched": method.upper() or "the process",
            "profile": _options(self._run).get("score") == "profile",
            "can": [],
        }

    def next(self) -> Update | None:
        """Return the next batch of the log; None if it is not written yet."""
        first, self._first = self._first, None
        return first or self._read_batch()

    def _read_batch(self) -> Update | None:
        for event in self._events:
            if event is None:
                return None
            kind = event["event"]
            if kind == "batch":
                update = Update(self._point(event), keep=self._keep)
                self._keep, self._notes = None, []
                return update
            if kind == "start":
                self._run, self._keep = event, 0
                self._modalities = list(event.get("modalities", []))
            elif kind == "resume":
                self._keep = int(event["batch"])
            if kind not in ("start", "frozen"):
                self._notes.append(str(event.get("error", kind)))
        return None

    def _point(self, event: Mapping[str, Any]) -> Point:
        scores = {m: s for m, s in (event.get("scores") or {}).items() if s is not None}
        for name in [*(event.get("present") or []), *(event.get("missing") or [])]:
            if name not in self._modalities:
                self._modalities.append(name)
        note = event.get("rejected") or event.get("rollback") or ", ".join(self._notes)
        return {
            "n": int(event["batch"]),
            "missing": event.get("missing") or [],
            "scores": scores,
            "limits": _thresholds(scores, self._run),
            "biased": event.get("biased") or [],
            "norms": event.get("norms") or {},
            "loss": event.get("loss"),
            "note": note or None,
            "time": event.get("time"),
        }


def _options(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options from the log's start, of a method that diagnoses as DASP does."""
    if run.get("method") not in ("dasp", "robust"):
        return {}
    given = {name: _literal(text) for name, text in run.get("hyper", {}).items()}
    return {"level": "lowest"} | given


def _literal(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _thresholds(scores: Mapping[str, float], run: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the thresholds if they follow from the scores; a log has no levels or profiles."""
    options = _options(run)
    if not scores or options.get("level") != "lowest" or options.get("score") == "profile":
        return {}
    return dict.fromkeys(scores, finite(min(scores.values()) + options["delta"]))


def _tail(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the events of a log as they come, without end; None whenever there are no more yet."""
    if older(path).is_file():
        with older(path).open("rb") as file:
            yield from filter(None, map(_event, file))
    while True:
        try:
            file = path.open("rb")
        except FileNotFoundError:  # moved away because it was full: the next line creates it
            yield None
            continue
        with file:
            yield from _lines(file, path)


def _lines(file: BinaryIO, path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the events of one file until another file has replaced it."""
    while True:
        position = file.tell()
        replaced = _is_replaced(file, path, position)  # before reading: no line can be missed
        line = file.readline()
        if line.endswith(b"\n"):
            if (event := _event(line)) is not None:
                yield event
        elif replaced:
            return
        else:
            file.seek(position)  # half a line is read again when it is complete
            yield None


def _is_replaced(file: BinaryIO, path: Path, position: int) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    return now.st_ino != os.fstat(file.fileno()).st_ino or now.st_size < position


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"event", "batch"} <= event.keys() else None

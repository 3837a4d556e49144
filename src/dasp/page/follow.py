"""Follow the event log of a process that runs elsewhere, without writing to it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dasp.core.errors import DataError
from dasp.page.runner import Feed, Point, Update, finite
from dasp.service.events import Event, older, parsed


class LogFeed(Feed):
    """The batches in an event log, and those appended to it while the page is open."""

    follows = True

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.is_file():
            raise DataError(f"no event log at {path}: start the process with log='{path}' first.")
        self._lines = _tail(self._path)
        self._modalities: list[str] = []
        self._run: Event = {}  # the log's "start" event
        self._keep: int | None = 0  # of the next batch; 0: browsers start over, with a new `about`
        self._notes: list[str] = []
        self._odd = 0  # lines that are not events

    def state(self) -> dict[str, Any]:
        """Return the number of lines that were skipped, as a note."""
        lines = f"{self._odd} odd line{'s' * (self._odd > 1)}"
        return {"note": f"{lines} of the log skipped: not an event."} if self._odd else {}

    def about(self) -> dict[str, Any]:
        """Return what the "start" event says of the run."""
        method = self._run.get("method") or ""
        return {
            "title": f"{self._path.name}: {method}".rstrip(": "),
            "mode": "monitor",
            "legend": "",
            "modalities": self._modalities,
            "lanes": [],
            "watched": method.upper() or "the process",
            "profile": (self._run.get("hyper") or {}).get("score") == repr("profile"),
            "can": [],
        }

    def next(self) -> Update | None:
        """Return the next batch of the log; None if it is not written yet."""
        while (line := next(self._lines)) is not None:
            event = parsed(line)
            if event is None:
                self._odd += 1
                continue
            kind = event["event"]
            if kind == "batch":
                update = Update(self._point(event), keep=self._keep)
                self._keep, self._notes = None, []
                return update
            if kind == "start":
                self._run, self._keep = event, 0
                self._modalities = list(event.get("modalities") or [])
            elif kind == "resume":
                self._keep = event["batch"]
            if kind not in ("start", "frozen"):
                self._notes.append(str(event.get("error", kind)))
        return None

    def _point(self, event: Event) -> Point:
        scores = {m: s for m, s in (event.get("scores") or {}).items() if s is not None}
        missing = event.get("missing") or []
        names = (*self._modalities, *(event.get("present") or []), *missing)
        self._modalities = list(dict.fromkeys(names))
        note = event.get("rejected") or event.get("rollback") or ", ".join(self._notes)
        return {
            "n": event["batch"],
            "missing": missing,
            "scores": scores,
            "limits": _thresholds(scores, self._run, event.get("probability") or {}),
            "biased": event.get("biased") or [],
            "probability": event.get("probability") or {},
            "norms": event.get("norms") or {},
            "loss": event.get("loss"),
            "note": note or None,
            "skipped": event.get("skipped"),
            "time": event.get("time"),
        }


def _thresholds(
    scores: Mapping[str, float], run: Event, sure: Mapping[str, float]
) -> dict[str, float | None]:
    """Return the thresholds if they follow from the scores; a log has no clean samples."""
    if sure:  # such scores are relative to their limit
        return dict.fromkeys(scores, 1.0)
    hyper = (run.get("hyper") or {}) if run.get("method") == "dasp" else {}
    if scores:
        with suppress(KeyError, ValueError):
            return dict.fromkeys(scores, finite(min(scores.values()) + float(hyper["delta"])))
    return {}


def _tail(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a log as they come, without end; None whenever there are no more yet."""
    if older(path).is_file():
        yield from older(path).read_bytes().splitlines()
    while True:
        try:
            file = path.open("rb")
        except OSError:  # moved away because it was full: the next line creates it
            yield None
            continue
        with file:
            while True:
                replaced = False
                with suppress(OSError):
                    now = path.stat()  # before reading: no line can be missed
                    other = now.st_ino != os.fstat(file.fileno()).st_ino
                    replaced = other or now.st_size < file.tell()
                line = file.readline()
                if line.endswith(b"\n"):
                    yield line
                elif replaced:
                    break
                else:
                    file.seek(-len(line), os.SEEK_CUR)  # half a line is read when it is complete
                    yield None

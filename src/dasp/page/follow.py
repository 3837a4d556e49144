"""Follows the event log of a process that runs elsewhere; reads only."""

import json
import os
from ast import literal_eval
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dasp.core.errors import DataError, OptionError
from dasp.methods.dasp_variants import VARIANTS
from dasp.page.feed import Point, Update, Wish, number
from dasp.service.events import older


class LogFeed:
    """The batches of a log, those it has and those that come, as a page shows them."""

    follows = True

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.is_file():
            raise DataError(f"no event log at {path}: start the process with log='{path}' first.")
        self._events = _tail(self._path)
        self._modalities: list[str] = []
        self._run: dict[str, Any] = {}
        self._keep: int | None = None
        self._notes: list[str] = []
        self._first = self._next_batch()  # so that `about` knows what the log is of

    def about(self) -> dict[str, Any]:
        """Say what the log's first lines say."""
        method = self._run.get("method", "")
        profile = _rules(self._run).get("score") == "profile"
        return {
            "title": f"{self._path.name}: {method}".rstrip(": "),
            "mode": "monitor",
            "legend": "",
            "modalities": self._modalities,
            "lanes": [],
            "watched": method.upper() or "the process",
            "window": 0,
            "score": "distance from clean" if profile else "redundancy",
            "log_score": profile,
            "can": [],
        }

    def state(self) -> dict[str, Any]:
        """There is none."""
        return {}

    def obey(self, wish: Wish) -> None:
        """Refuse every wish."""
        raise OptionError(f"'{wish.get('do')}': a log can only be looked at.")

    def reset(self) -> None:
        """Refuse, as `obey` does."""
        raise OptionError("a log can only be looked at.")

    def next(self) -> Update | None:
        """Give the next batch of the log; None if it has not come yet."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return self._next_batch()

    def _next_batch(self) -> Update | None:
        for event in self._events:
            if event is None:
                return None
            if (update := self._take(event)) is not None:
                return update
        return None

    def _take(self, event: Mapping[str, Any]) -> Update | None:
        kind, place = event["event"], int(event["batch"])
        if kind == "start":
            self._run, self._keep = dict(event), 0
            self._modalities = list(event.get("modalities", []))
        elif kind == "resume":
            self._keep = place
        elif kind == "batch":
            update = Update(self._point(event), keep=self._keep)
            self._keep, self._notes = None, []
            return update
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
            "truth": None,
            "missing": event.get("missing") or [],
            "scores": scores,
            "limits": _limits(scores, self._run),
            "biased": event.get("biased") or [],
            "accuracy": {},
            "overall": {},
            "norms": event.get("norms") or {},
            "updated": bool(event.get("updated")),
            "loss": event.get("loss"),
            "note": note or None,
            "time": event.get("time"),
        }


def _rules(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of DASP as the log's start has them, those of its variant filled in."""
    if run.get("method") != "dasp":
        return {}
    given = {name: _literal(text) for name, text in run.get("hyper", {}).items()}
    rules = next((own for name, own in VARIANTS.items() if name == given.get("variant")), {})
    return {**rules, **{name: value for name, value in given.items() if value is not None}}


def _literal(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _limits(scores: Mapping[str, float], run: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the limit where it follows from the scores alone; own levels are not in a log."""
    rules = _rules(run)
    if not scores or rules.get("level") != "lowest" or rules.get("score") == "profile":
        return {}
    return dict.fromkeys(scores, number(min(scores.values()) + rules["delta"]))


def _tail(path: Path) -> Iterator[dict[str, Any] | None]:
    """Give the events of a log as they come, without end; None whenever there is none for now."""
    if older(path).is_file():
        with older(path).open("rb") as file:
            yield from filter(None, map(_event, file))
    while True:
        try:
            file = path.open("rb")
        except FileNotFoundError:  # moved away; the next line makes it anew
            yield None
            continue
        with file:
            yield from _lines(file, path)


def _lines(file: BinaryIO, path: Path) -> Iterator[dict[str, Any] | None]:
    """Give the events of one file until another has taken its place."""
    while True:
        place = file.tell()
        replaced = _is_replaced(file, path, place)  # asked first: then nothing can follow unread
        line = file.readline()
        if line.endswith(b"\n"):
            if (event := _event(line)) is not None:
                yield event
        elif replaced:
            return
        else:
            file.seek(place)  # half a line is read again when it is whole
            yield None


def _is_replaced(file: BinaryIO, path: Path, place: int) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return there.st_ino != os.fstat(file.fileno()).st_ino or there.st_size < place


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"event", "batch"} <= event.keys() else None

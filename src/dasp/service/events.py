"""The event log: one JSON object a line, appended, and read back with each batch once.

Every line has `event`, `time` (seconds since 1970) and `batch`, the number of batches before it.

- "start": a run begins; with `method`, `hyper`, `modalities`.
- "batch": `index` (batches learnt since the last reset), `size`, `present` and `missing`
  modalities, `scores` and `biased` (null if there is no diagnosis), `updated`, `loss`, `rejected`
  and `rollback` (why, or null), `norms` (how far each modality's adapters are from the source).
- "frozen": the same for a call inside `frozen()`, which is no batch of the stream.
- "error": a batch that ended in an exception; with `error`.
- "reset", "fit", "save", "load", "resume": with `path` where there is one.

A number that is not finite is null, so that every line is JSON.
"""

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dasp.core.errors import DataError, OptionError

LIMIT = 64 * 2**20  # bytes a file; with the one before it, a log takes twice this at most
Event = dict[str, Any]


class EventLog:
    """Appends lines to a file. Past `limit` bytes the file becomes `<name>.1`, replacing the last.

    Each line is one write, so a kill cuts at most the last one, and the next writer removes what
    is left of it. The file is opened for each line: it may be moved away at any time.
    """

    def __init__(self, path: str | Path, limit: int = LIMIT) -> None:
        self.path, self.limit = Path(path), limit
        self._mended = False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.is_dir():
            raise OptionError(f"log={str(path)!r} is a folder: give the path of a file.")
        if self.path.exists():
            self._refuse_foreign()

    def write(self, event: Mapping[str, Any]) -> None:
        """Append one event, whole or not at all; raises OSError if it cannot."""
        line = (json.dumps(_plain(event), allow_nan=False) + "\n").encode()
        if not self._mended:
            self._mend()
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
        """Wait until all that was written would survive a power failure."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _mend(self) -> None:
        """Remove a last line that a kill has cut."""
        if self.path.exists():
            with self.path.open("rb+") as file:
                whole = file.read().rfind(b"\n") + 1
                file.truncate(whole)
        self._mended = True

    def _refuse_foreign(self) -> None:
        with self.path.open("rb") as file:
            first = file.readline()
        if first.endswith(b"\n") and not isinstance(_parsed(first), dict):
            raise OptionError(
                f"log={str(self.path)!r} exists and is no event log: give another path."
            )


def older(path: Path) -> Path:
    """Return where a log goes when it has reached its limit."""
    return path.with_name(path.name + ".1")


def read(path: str | Path) -> list[Event]:
    """Return the events of the last run in a log, in order, each batch once.

    A run that went on from a checkpoint after a kill has run some batches twice: "resume" replaces
    what the log has from its place on. A last line that was cut is left out.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no event log at {path}.")
    kept: list[Event] = []
    for event in _lines(path):
        if event["event"] == "start":
            kept = []
        elif event["event"] == "resume":
            kept = [earlier for earlier in kept if earlier["batch"] < event["batch"]]
        kept.append(event)
    return kept


def _lines(path: Path) -> Iterator[Event]:
    for file in (older(path), path):
        if not file.is_file():
            continue
        lines = file.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):  # what follows the last \n was cut
            event = _parsed(line)
            if not isinstance(event, dict) or not {"event", "batch"} <= event.keys():
                raise DataError(f"{file}, line {number} is no event: {line[:60]!r}.")
            yield event


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    """Turn a value into one that JSON has: numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(name): _plain(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)

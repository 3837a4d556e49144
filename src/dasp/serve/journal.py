"""The journal: every batch in the order it was run, its answer, and the states between.

A journal is a directory of numbered segments. A segment is the state at its beginning
(`00000003.safetensors`) and a file of records (`00000003.journal`): each batch before it is run,
and its answer before it is sent. Running the batches of a segment from its state gives its
answers, bit for bit. A killed process therefore resumes by running the last segment again, and
any segment that is kept can be checked later.
"""

import json
import os
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout
from torch import Tensor

from dasp.core.errors import DataError, StateError
from dasp.core.files import remove_parts
from dasp.core.types import Inputs
from dasp.methods.state import State, write_state
from dasp.service.wire import pack, unpack

HEAD = struct.Struct("<QI")  # length and CRC-32 of a record


@dataclass(frozen=True)
class Record:
    """One record: its kind, what it says, and its tensors.

    - "begin": the first of a segment; `cause` (start, checkpoint, reset, upload or rollback),
      `batches` (the number before it), `time`.
    - "batch": `requests` [{id, digest, size}], `learn`; the tensors are the inputs.
    - "again": a batch without an answer is about to be run a second time, after a kill.
    - "answer": `facts` of the outcome and the tensor `logits`, or `error` {type, message}.
    """

    kind: str
    facts: dict[str, Any]
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class JournalSegment:
    """The files of a segment, and what its first record says."""

    number: int
    state: Path
    records: Path
    begin: dict[str, Any]


class Journal:
    """Writes and reads a journal; one process at a time may have it open."""

    def __init__(self, folder: str | Path, keep: int | None = 8) -> None:
        """Open a directory for writing; of its segments the last `keep` are kept, None: all."""
        self.folder, self.keep = Path(folder), keep
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / ".lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StateError(
                f"{self.folder} is in use by another server: stop it, or choose another directory."
            ) from None
        remove_parts(self.folder)
        found = segments(self.folder)
        self._last = found[-1] if found else None
        for path in self.folder.glob("*.journal"):  # a kill came before its state was written
            if self._last is None or _number(path) > self._last.number:
                path.unlink()
        if self._last is not None:
            _remove_torn_record(self._last.records)

    @property
    def last(self) -> JournalSegment | None:
        """The segment that records are appended to; None in a new directory."""
        return self._last

    @property
    def size(self) -> int:
        """Bytes of records in the last segment."""
        return self._last.records.stat().st_size if self._last else 0

    def close(self) -> None:
        """Let another process open the directory."""
        self._lock.release()

    def begin(self, state: State, cause: str, batches: int) -> JournalSegment:
        """Begin a segment with a state; it is on the disk on return."""
        number = self._last.number + 1 if self._last else 0
        facts = {"cause": cause, "batches": batches, "time": time.time()}
        path = self.folder / f"{number:08d}.journal"
        segment = JournalSegment(number, path.with_suffix(".safetensors"), path, facts)
        segment.records.unlink(missing_ok=True)
        _append(segment.records, "begin", facts)
        write_state(segment.state, state)  # last: a segment without its state never began
        self._last = segment
        if self.keep is not None:
            for old in segments(self.folder)[: -self.keep]:
                old.state.unlink()
                old.records.unlink()
        return segment

    def append(self, kind: str, facts: dict[str, Any], tensors: Inputs | None = None) -> None:
        """Write a record to the last segment, completely or not at all; OSError if that fails."""
        assert self._last is not None
        _append(self._last.records, kind, facts, tensors)


def segments(folder: str | Path) -> list[JournalSegment]:
    """Return the segments of a journal, oldest first."""
    found = []
    for records in sorted(Path(folder).glob("[0-9]*.journal")):
        state = records.with_suffix(".safetensors")
        if state.is_file():
            first = next(read_records(records), None)
            if first is None or first.kind != "begin":
                raise DataError(f"{records} does not begin a segment: it is damaged.")
            found.append(JournalSegment(_number(records), state, records, first.facts))
    return found


def read_records(path: Path, inputs: bool = True) -> Iterator[Record]:
    """Yield the records of a segment; what a kill has cut at the end is left out.

    Without `inputs`, those of batches, nearly all of a segment, are neither read nor checked.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        while size - (place := file.tell()) >= HEAD.size:
            length, checksum = HEAD.unpack(file.read(HEAD.size))
            if length > size - file.tell():
                return
            if not inputs and (texts := _texts(file)).get("kind") == "batch":
                file.seek(place + HEAD.size + length)
                yield Record("batch", json.loads(texts["facts"]), {})
                continue
            file.seek(place + HEAD.size)
            data = file.read(length)
            if zlib.crc32(data) != checksum:
                raise DataError(f"{path}: the record at byte {place} is damaged.")
            tensors, texts = unpack(data)
            yield Record(texts["kind"], json.loads(texts["facts"]), tensors)


def _texts(file: BinaryIO) -> dict[str, str]:
    """Return the texts of the record that begins here; none if it is damaged."""
    length = int.from_bytes(file.read(8), "little")
    try:
        return dict(json.loads(file.read(length))["__metadata__"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return {}


def _remove_torn_record(path: Path) -> None:
    """Cut off the last record if a kill has left a part of it."""
    whole, size = 0, path.stat().st_size
    with path.open("rb+") as file:
        while size - whole >= HEAD.size:
            file.seek(whole)
            after = whole + HEAD.size + HEAD.unpack(file.read(HEAD.size))[0]
            if after > size:
                break
            whole = after
        file.truncate(whole)


def _append(path: Path, kind: str, facts: dict[str, Any], tensors: Inputs | None = None) -> None:
    data = pack(tensors or {}, kind=kind, facts=json.dumps(facts))
    line = HEAD.pack(len(data), zlib.crc32(data)) + data
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(handle).st_size
        if os.write(handle, line) != len(line):
            os.ftruncate(handle, size)
            raise OSError(28, "No space left on device", str(path))
    finally:
        os.close(handle)


def _number(path: Path) -> int:
    return int(path.stem)

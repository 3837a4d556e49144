"""The feature store: arrays kept by what made them, whole or not there, shared and bounded."""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.core.clock import Clock
from dasp.core.errors import DataError
from dasp.core.files import atomic_path

Array = NDArray[np.floating[Any]]
"""float32, or float16 tokens."""
Make = Callable[[Clock], Iterator[Array]]
"""Gives the rows of an array in chunks, each (n, ...), and tells the clock what they took."""

GIB = 2**30


def digest(content: Any) -> str:
    """Hash plain data: 16 hex digits, the same on every machine."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """Arrays in a folder, each a memory-mapped .npy file named by the hash of its key.

    Several processes may share the folder: the first to ask for an array makes it while the
    others wait. A killed process leaves no half array. When the folder exceeds `limit` bytes
    the arrays used longest ago are removed; a reader that has one open keeps it.
    """

    def __init__(self, folder: str | Path, limit: float = 50 * GIB) -> None:
        self.folder, self.limit = Path(folder), limit
        self.folder.mkdir(parents=True, exist_ok=True)
        self.clock = Clock()  # what making arrays took, here

    def get(self, key: dict[str, Any], rows: int, make: Make) -> Array:
        """Return the array (rows, ...) of `key`, read-only; make it first if it is not there."""
        path = self._path(key)
        array: Array | None = None
        while array is None:
            if not path.exists():
                with self._locked(path):
                    if not path.exists():
                        self._write(path, key, rows, make)
                        self._shrink(keep=path)
            with suppress(FileNotFoundError):  # removed meanwhile by a process that needed room
                os.utime(path)
                array = np.load(path, mmap_mode="r")
        if len(array) != rows:
            raise DataError(f"{path} has {len(array)} rows instead of {rows}: remove the file.")
        return array

    def has(self, key: dict[str, Any]) -> bool:
        """Tell whether the array is there."""
        return self._path(key).exists()

    def about(self, key: dict[str, Any]) -> dict[str, Any]:
        """Return what is kept beside an array: its key, rows, bytes and what making it took."""
        try:
            found: dict[str, Any] = json.loads(self._path(key).with_suffix(".json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def _path(self, key: dict[str, Any]) -> Path:
        return self.folder / f"{key['kind']}-{digest(key)}.npy"

    def _write(self, path: Path, key: dict[str, Any], rows: int, make: Make) -> None:
        clock = Clock()
        with atomic_path(path) as part, part.open("wb", buffering=0) as file:
            size = _write_rows(file, make(clock), rows, clock, key)
            with clock.on("write"):
                # Or half an array could bear its name after a power failure.
                os.fsync(file.fileno())
        about = key | {"rows": rows, "bytes": size, "seconds": clock.seconds}
        with atomic_path(path.with_suffix(".json")) as part:
            part.write_text(json.dumps(about, indent=1, default=str))
        self.clock.add(clock.seconds)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Hold the lock of one array; the system frees it if this process dies."""
        with path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _shrink(self, keep: Path) -> None:
        entries = []
        for path in self.folder.glob("[!.]*.npy"):  # a dot: another process is writing it
            with suppress(FileNotFoundError):  # or has just removed it
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                return
            if path != keep:
                total -= size
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)


def _write_rows(
    file: FileIO, chunks: Iterator[Array], rows: int, clock: Clock, key: dict[str, Any]
) -> int:
    """Write chunks of rows one after another as a .npy file; return its bytes.

    Large plain writes: filling a memory map takes a page fault every 4 KiB.
    """
    done = 0
    for chunk in chunks:
        with clock.on("write"):
            if not done:
                shape = (rows, *chunk.shape[1:])
                descr = np.lib.format.dtype_to_descr(chunk.dtype)
                header = {"descr": descr, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
            _write_all(file, np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data)
            done += len(chunk)
    if not done or done != rows:
        raise DataError(f"{done} of {rows} rows were made for {key}.")
    return file.tell()


def _write_all(file: FileIO, data: memoryview) -> None:
    """Write all bytes: the system may take fewer at a time, such as 2 GiB."""
    while len(data):
        data = data[file.write(data) :]

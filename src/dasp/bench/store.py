"""The feature store: arrays kept by what made them, whole or not there, shared and bounded."""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from dasp.core.errors import DataError
from dasp.core.files import atomic_path

Array = NDArray[np.float32]
Make = Callable[[], Iterator[Array]]
"""Gives the rows of an array in chunks, each (n, ...)."""

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

    def _path(self, key: dict[str, Any]) -> Path:
        return self.folder / f"{key['kind']}-{digest(key)}.npy"

    def _write(self, path: Path, key: dict[str, Any], rows: int, make: Make) -> None:
        with atomic_path(path) as part:
            array, done = None, 0
            for chunk in make():
                if array is None:
                    shape = (rows, *chunk.shape[1:])
                    array = open_memmap(part, mode="w+", dtype=np.float32, shape=shape)
                array[done : done + len(chunk)] = chunk
                done += len(chunk)
            if array is None or done != rows:
                raise DataError(f"{done} of {rows} rows were made for {key}.")
            array.flush()
            del array
        with atomic_path(path.with_suffix(".json")) as part:
            part.write_text(json.dumps(key, indent=1, default=str))

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

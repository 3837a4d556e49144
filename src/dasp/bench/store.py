"""The feature store: arrays on disk, cached under a key made of their settings."""

import io
import json
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray

from dasp.bench.results import digest
from dasp.core.errors import DataError
from dasp.core.files import atomic_path, remove_parts

BLOCK = 2**20  # bytes read at once to verify a checksum
_VERIFIED: set[tuple[str, int, int]] = set()  # path, inode and size of files that were whole

Array = NDArray[np.floating[Any]]
"""float32, or float16 tokens."""
Make = Callable[[], Iterator[Array]]
"""Yields the rows of an array in chunks, each (n, ...)."""


class Store:
    """Arrays in a directory, each a memory-mapped .npy file named by the hash of its key.

    Several processes may share the directory: the first to ask for an array makes it while the
    others wait. A killed process leaves no half array. When the directory exceeds `limit` bytes,
    the least recently used arrays are removed; a reader that has one open keeps it.

    The file beside an array has the checksum of the whole, which a process verifies when it opens
    the array for the first time. As all of it is read for that, and a damaged array is made again
    as a whole, a checksum per block would find nothing more.
    """

    def __init__(self, folder: str | Path, limit: float = 50 * 2**30) -> None:
        self.folder, self.limit = Path(folder), limit
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_parts(self.folder)

    def get(self, key: dict[str, Any], rows: int, make: Make) -> Array:
        """Return the array (rows, ...) of `key`, read-only; make it first if it does not exist.

        A damaged one is set aside and made again, and so is one that was removed meanwhile.
        """
        path = self.folder / f"{key['kind']}-{digest(key)}.npy"
        while True:
            try:
                if not path.exists():
                    self.folder.mkdir(parents=True, exist_ok=True)
                    with FileLock(path.with_suffix(".lock")):
                        if not path.exists():
                            self._write(path, key, rows, make)
                            self._shrink(keep=path)
                if _is_damaged(path):
                    _set_aside(path)
                    continue
                array: Array = np.load(path, mmap_mode="r")
                with suppress(FileNotFoundError):  # gone already, but open
                    os.utime(path)
            except FileNotFoundError as error:
                # Removed meanwhile, by a process that needed room or with the whole folder.
                gone = Path(os.path.realpath(str(error.filename)))
                if gone.is_relative_to(os.path.realpath(self.folder)):
                    continue
                raise  # of the data set itself
            if len(array) != rows:
                raise DataError(f"{path} has {len(array)} rows instead of {rows}: remove the file.")
            return array

    def _write(self, path: Path, key: dict[str, Any], rows: int, make: Make) -> None:
        """Write an array by large plain writes, and its key and checksum beside it."""
        remove_parts(self.folder)  # of a worker that was killed here
        done = checksum = 0
        with atomic_path(path) as part, part.open("wb") as file:
            for chunk in make():
                head = b"" if done else _header(chunk, rows)
                for data in (head, np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data):
                    checksum = zlib.crc32(data, checksum)
                    file.write(data)
                done += len(chunk)
            if done != rows:
                raise DataError(f"{done} of {rows} rows were made for {key}.")
            file.flush()
            os.fsync(file.fileno())  # a power failure must not leave half an array
            about = {"rows": rows, "bytes": file.tell(), "checksum": checksum}
            with atomic_path(path.with_suffix(".json")) as beside:
                text = json.dumps(key | about, indent=1, default=str)
                beside.write_text(text, encoding="utf-8")

    def _shrink(self, keep: Path) -> None:
        entries = []
        for path in self.folder.glob("[!.]*.npy"):  # a dot: another process is writing it
            with suppress(FileNotFoundError):  # or has just removed it
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total > self.limit and path != keep:
                total -= size
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)


def _header(chunk: Array, rows: int) -> bytes:
    """Return the beginning of a .npy file whose rows are those of a chunk."""
    descr = np.lib.format.dtype_to_descr(chunk.dtype)
    header = {"descr": descr, "fortran_order": False, "shape": (rows, *chunk.shape[1:])}
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def _is_damaged(path: Path) -> bool:
    """Verify the checksum of a file, once per process."""
    status = path.stat()
    seen = (str(path), status.st_ino, status.st_size)
    if seen in _VERIFIED:
        return False
    try:
        right = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["checksum"]
    except FileNotFoundError:  # it is written first: somebody is removing both
        path.unlink(missing_ok=True)
        raise
    except (ValueError, TypeError, KeyError):
        return True
    found = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found = zlib.crc32(block, found)
    if found == right:
        _VERIFIED.add(seen)
    return bool(found != right)


def _set_aside(path: Path) -> None:
    with FileLock(path.with_suffix(".lock")):
        if _is_damaged(path):  # another process may have made it again
            aside = path.with_name(f"damaged-{path.name}")
            path.replace(aside)
            text = f"{path} is damaged, set aside as {aside.name}, and made again."
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def gather(
    arrays: Sequence[Array], places: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Copy row `rows[i]` of the array `places[i]` for each i: (len(rows), ...) float32."""
    found = np.empty((len(rows), *arrays[0].shape[1:]), np.float32)
    for i in np.lexsort((rows, places)):  # in the order in which they lie on the disk
        row = arrays[places[i]][rows[i]]
        if row.dtype == np.float16:  # torch converts twice as fast, but takes no read-only memory
            torch.from_numpy(found[i]).copy_(torch.from_numpy(np.array(row)))
        else:
            found[i] = row
    return found

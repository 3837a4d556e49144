"""Write files atomically, and check before a long job that they can be written."""

import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from dasp.core.errors import DataError, cause


@contextmanager
def atomic_path(path: str | Path, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; move it there only if the block succeeds.

    A crash, a full disk or a kill leaves the old file (or none), never half of a new one. With
    `durable` this also holds for a power failure: the content is on disk before the name.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory: give the path of a file.")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.part{target.suffix}")
    part.touch(exist_ok=False)
    try:
        yield part
        if durable:
            _to_disk(part)
        part.replace(target)
        if durable:
            _to_disk(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_parts(path: str | Path) -> None:
    """Remove the temporary files that killed calls of `atomic_path` left beside `path`.

    Only safe where `path` has a single writer.
    """
    target = Path(path)
    pattern = f".{escape(target.stem)}.{'?' * 8}.part{escape(target.suffix)}"
    for part in target.parent.glob(pattern):
        part.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that a killed run left anywhere below `folder`.

    Those younger than a second may belong to another running process and stay.
    """
    for part in folder.rglob(".*.part.*"):
        if time.time() - part.stat().st_mtime > 1:
            part.unlink(missing_ok=True)


def check_writable(folder: Path, name: str = "") -> None:
    """Create `folder` if needed, or raise an error before the work if it cannot be written to.

    With `name`, also refuse a directory of that name in it. Permissions do not tell everything,
    so a temporary file is created.
    """
    if name and (folder / name).is_dir():
        raise DataError(f"cannot write {folder / name}: it is a directory; give a file name.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        occupied = isinstance(error, FileExistsError)
        why = "it is not a directory" if occupied else cause(error)
        raise DataError(f"cannot write to {folder}: {why}; choose another place.") from error

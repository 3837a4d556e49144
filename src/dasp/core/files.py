"""Files that are either whole or not there."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path


@contextmanager
def atomic_path(path: str | Path, durable: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`; move it there only if the block succeeds.

    A crash, a full disk or a kill leaves the old file (or none), never half of a new one. If it is
    to be `durable`, so does a power failure: the disk has the file before its name.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: give the path of a file.")
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.stem}.", suffix=f".part{target.suffix}"
    )
    os.close(handle)
    part = Path(name)
    try:
        yield part
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)  # mkstemp makes files private; ours are ordinary ones
        if durable:
            _to_disk(part)
        part.replace(target)
        if durable:
            _to_disk(target.parent)
    finally:
        part.unlink(missing_ok=True)


def remove_parts(path: str | Path) -> None:
    """Remove what kills in the midst of `atomic_path` have left beside a file of one writer."""
    target = Path(path)
    random = "?" * 8  # the length of the names that mkstemp draws
    for part in target.parent.glob(f".{escape(target.stem)}.{random}.part{escape(target.suffix)}"):
        part.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

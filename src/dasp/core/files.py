"""Write files atomically, and check before a long job that they can be written."""

import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from dasp.core.errors import DataError, cause

try:
    import fcntl
except ImportError:  # Windows: what killed processes leave stays
    fcntl = None  # type: ignore[assignment]

PARTS = re.compile(r"\..*\.[0-9a-f]{8}\.part")  # directories of files that are being written
LOCK = ".lock"


@contextmanager
def atomic_path(path: str | Path, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; move it there only if the block succeeds.

    A crash, a full disk or a kill leaves the old file (or none), never half of a new one. With
    `durable` this also holds for a power failure: the content is on disk before the name.
    A link is written through, and an existing file keeps its permissions. The first call for a
    directory removes what killed processes have left in it.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a directory: give the path of a file.")
    target.parent.mkdir(parents=True, exist_ok=True)
    _clean_once(target.parent)
    folder, handle = _private_folder(target)
    try:
        part = folder / target.name
        yield part
        status = target.stat() if target.exists() else os.fstat(handle)
        part.chmod(stat.S_IMODE(status.st_mode))
        if durable:
            _to_disk(part)
        part.replace(target)
        if durable:
            _to_disk(target.parent)
    finally:
        os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def _private_folder(target: Path) -> tuple[Path, int]:
    """Create a directory beside `target` that is locked as long as this process lives.

    Another process may take it for abandoned before it is locked: then create the next one.
    """
    while True:
        folder = target.with_name(f".{target.stem[:40]}.{secrets.token_hex(4)}.part")
        folder.mkdir(0o700)
        with suppress(FileNotFoundError):
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            with suppress(OSError):  # a file system without locks: nothing is removed there
                if fcntl:
                    fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:
                return folder, handle
            os.close(handle)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_parts(folder: str | Path) -> None:
    """Remove what killed calls of `atomic_path` left in a directory; keep that of live ones."""
    with suppress(OSError):  # it does not exist, or belongs to somebody else
        for name in filter(PARTS.fullmatch, [path.name for path in Path(folder).iterdir()]):
            with suppress(OSError):  # in use, or removed by another process
                _remove_abandoned(Path(folder, name))


def _remove_abandoned(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
    elif fcntl:
        handle = os.open(folder / LOCK, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(handle)


_clean_once = cache(remove_parts)


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

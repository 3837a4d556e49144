"""Put recordings into the layouts that plans read: `python tools/real_data.py SOURCE TARGET`.

SOURCE is a directory with `grid` (or `grid_words`) and `dsa` in it, each unpacked or as archives: a
tar or zip, or packed files with an `unpack.py DIR` beside them that writes the published layout.
What is unpacked already is linked to. TARGET then has `grid` and `dsa`.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import tyro

from dasp.core.errors import DataError
from dasp.data import grid, inertial

NAMES = {"grid": ("grid", "grid_words"), "dsa": ("dsa",)}


def prepare(source: Path, target: Path) -> None:
    """Unpack or link both data sets; what is there is kept."""
    for name, folders in NAMES.items():
        found = next((source / folder for folder in folders if (source / folder).is_dir()), None)
        if found is None:
            raise DataError(f"{source} has no directory {' or '.join(folders)}: see docs/data.md.")
        place = target / name
        if not _complete(name, place):
            target.mkdir(parents=True, exist_ok=True)
            _unpack(name, found, place)
        if not _complete(name, place):
            raise DataError(f"{found} does not hold {name} in a layout that is read: docs/data.md.")
        print(place)


def _complete(name: str, place: Path) -> bool:
    """Tell whether a directory can be read; half a one cannot, as it is renamed at the end."""
    try:
        if name == "grid":
            return bool(grid.find_clips(place))
        return bool(inertial.find_segments(place, inertial.PEOPLE))
    except DataError:
        return False


def _unpack(name: str, found: Path, place: Path) -> None:
    if _complete(name, found):
        place.symlink_to(found.resolve(), target_is_directory=True)
        return
    part = place.with_name(f"{name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    if (found / "unpack.py").is_file():
        subprocess.run([sys.executable, str(found / "unpack.py"), str(part)], check=True)
    for archive in sorted([*found.glob("*.tar"), *found.glob("*.zip")]):
        shutil.unpack_archive(archive, part, filter="data" if archive.suffix == ".tar" else None)
    part.rename(place)


if __name__ == "__main__":
    try:
        tyro.cli(prepare, description=__doc__, config=(tyro.conf.PositionalRequiredArgs,))
    except DataError as error:
        sys.exit(f"error: {error}")

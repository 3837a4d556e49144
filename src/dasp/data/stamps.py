"""Which video each clip was made from, so that a replaced video is noticed.

The size and time of each video are kept in `.sources.json` at the root. A clip without such a
record (made by a run that was killed) counts as made from its video unless that one is newer.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from dasp.core.files import atomic_path

RECORD = ".sources.json"

Stamp = tuple[int, int]  # bytes, and nanoseconds of the last change


def stamp(video: Path) -> Stamp:
    """Return what tells one state of a video from another."""
    facts = video.stat()
    return facts.st_size, facts.st_mtime_ns


def is_outdated(video: Path, made: Path, recorded: Stamp | None) -> bool:
    """Return whether `made` comes from another state of `video` than the present one."""
    if recorded is not None:
        return stamp(video) != recorded
    return video.stat().st_mtime_ns > made.stat().st_mtime_ns


def read_stamps(root: Path) -> dict[str, Stamp]:
    """Return {clip id: stamp}; a record that cannot be read counts as none."""
    try:
        found = json.loads((root / RECORD).read_text(encoding="utf-8"))
        return {name: (int(size), int(time)) for name, (size, time) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_stamps(root: Path, stamps: Mapping[str, Stamp]) -> None:
    """Write the record of all clips below `root`."""
    with atomic_path(root / RECORD) as part:
        part.write_text(json.dumps(dict(sorted(stamps.items()))), encoding="utf-8")

"""Lists of clips: what is in a data set, where its files are, and which class each clip has."""

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dasp.core.errors import DataError, OptionError, unknown_name


@dataclass(frozen=True)
class Clip:
    """One sample: a sound, its frames and its class.

    `audio_dir` and `video_dir` are the folders whose `-C` neighbours hold corrupted copies.
    """

    id: str
    label: int
    wav: Path
    frames: tuple[Path, ...]
    audio_dir: Path
    video_dir: Path

    def frame_index(self, frame: int | None) -> int:
        """Return the frame to use: `frame`, or by default the middle one (5 of READ's ten)."""
        if frame is None:
            return len(self.frames) // 2
        if not 0 <= frame < len(self.frames):
            raise OptionError(
                f"clip '{self.id}' has frames 0 to {len(self.frames) - 1}, not {frame}: "
                "choose one of those, or none for the middle one."
            )
        return frame

    def frame_id(self, index: int) -> str:
        """Return the name that seeds what happens to one frame: each frame has its own noise."""
        return f"{self.id}/frame_{index}"


@dataclass(frozen=True)
class Manifest:
    """The clips of a data set in order, and the names of its classes by index."""

    name: str
    root: Path
    clips: tuple[Clip, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.clips:
            raise DataError(f"{self.name}: no clip in {self.root}: check the list and the root.")
        twice = [name for name, count in Counter(c.id for c in self.clips).items() if count > 1]
        if twice:
            raise DataError(
                f"{self.name}: {len(twice)} duplicated id(s): {', '.join(twice[:20])}. Each clip "
                "needs an id of its own, as it names files and seeds: remove the copies."
            )

    @cached_property
    def digest(self) -> str:
        """Return a hash of ids, classes and relative paths: the same wherever the root lies."""
        rows = [
            [c.id, self.classes[c.label], *(relative(p, self.root) for p in (c.wav, *c.frames))]
            for c in self.clips
        ]
        text = json.dumps([self.classes, rows], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def per_class(self) -> dict[str, int]:
        """Return the number of clips of each class, empty classes included."""
        counts = Counter(c.label for c in self.clips)
        return {name: counts[index] for index, name in enumerate(self.classes)}

    def find(self, clip_id: str | None) -> Clip:
        """Return the clip with this id, by default the first."""
        by_id = {clip.id: clip for clip in self.clips}
        if clip_id is not None and clip_id not in by_id:
            raise OptionError(unknown_name("clip", clip_id, by_id)[:300])
        return self.clips[0] if clip_id is None else by_id[clip_id]

    def first(self, count: int) -> "Manifest":
        """Return the manifest of the first `count` clips."""
        return replace(self, clips=self.clips[:count])


def relative(path: Path, root: Path) -> str:
    """Return `path` as seen from `root`, with forward slashes on every system."""
    return Path(os.path.relpath(path, root)).as_posix()


def absolute(path: str | Path) -> Path:
    """Return an absolute path without "..", symbolic links left as they are."""
    return Path(os.path.normpath(Path(path).absolute()))


def inside(path: Path, root: Path, what: str) -> Path:
    """Return `path` made absolute from `root`; refuse one that leads out of it.

    Judged by the text alone, so a data folder may be a symbolic link to another disk.
    """
    base = absolute(root)
    full = Path(os.path.normpath(base / path))
    if not full.is_relative_to(base):
        raise DataError(
            f"{what} names {path}, outside the root {base}: give the root that holds the files, "
            "or the folders of the sounds and frames (audio_dir, video_dir) where they are now."
        )
    return full

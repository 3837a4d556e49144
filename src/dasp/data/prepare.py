"""Turn mp4 files into READ's layout: ten frames and a 16 kHz mono wav per clip.

The size and modification time of each video are kept in `.sources.json` at the root, so that a
replaced video is noticed. A clip without such a record (made by a killed run) counts as made from
its video unless the video is newer.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dasp.core.errors import DataError
from dasp.core.extras import Pillow, extra
from dasp.core.files import atomic_path, check_writable, remove_leftovers
from dasp.core.progress import with_bar
from dasp.data.clips import (
    FRAMES,
    inside,
    read_entries,
    read_labels,
    repeated,
    write_labels,
    write_list,
)
from dasp.data.features import CORRUPTION_SIDE, shorter_side
from dasp.data.loading import run_jobs
from dasp.data.media import decode_frames, decode_sound, write_wave

FRAME_QUALITY = 95
RECORD = ".sources.json"

Stamp = tuple[int, int]  # of a video: its size in bytes, and its modification time in nanoseconds


@dataclass(frozen=True)
class Video:
    """A video to turn into a clip; `path` is None if a list names one that does not exist."""

    id: str
    label: str
    path: Path | None


@dataclass(frozen=True)
class PrepareReport:
    """The numbers of clips made and kept, and the failures as (video, reason).

    `remade` counts the made clips whose video had been replaced; `unused` are the videos outside
    of the class directories.
    """

    made: int
    kept: int
    failed: list[tuple[str, str]]
    remade: int = 0
    unused: tuple[str, ...] = ()


def prepare_tree(
    source: str | Path,
    root: str | Path,
    refer: str | Path | None = None,
    labels: str | Path | None = None,
    split: str = "test",
    workers: int | None = None,
    show: bool = False,
) -> PrepareReport:
    """Turn the videos below `source` into `root/audio`, `root/video`, `<split>.json`, `labels.csv`.

    Classes are the directories `source/<class>/<clip>.mp4`; or, with READ's list `refer` and its
    label CSV `labels`, the ids and classes of that list, with the videos `<id>.mp4`.
    A clip whose files all exist is kept, so that an interrupted run continues where it stopped;
    it is made again if its video has been replaced since. A video that cannot be read is
    reported and omitted from the list.
    """
    extra("av"), extra("soundfile")
    base = Path(root)
    if not Path(source).is_dir():
        raise DataError(f"{source} is not a directory: give the directory of the videos.")
    classes, sources = _by_list(source, refer, labels) if refer else _by_folder(source)
    if base.resolve().is_relative_to(Path(source).resolve()):
        raise DataError(f"{root} lies inside {source}: choose a root outside of the videos.")
    stamps = _read_stamps(base)
    results = run_jobs(partial(_make_clip, base, stamps), sources, workers)
    check_writable(base)
    for folder in ("audio", "video"):
        remove_leftovers(base / folder)
    outcomes = _collect(with_bar(results, len(sources), "prepare", show), sources, base, stamps)
    good = [s for s, o in zip(sources, outcomes, strict=True) if o.state != "failed"]
    write_labels(base / "labels.csv", classes)
    write_list(base / f"{split}.json", [_entry(s) for s in good])
    states = Counter(outcome.state for outcome in outcomes)
    failed = [
        (str(s.path or s.id), o.reason)
        for s, o in zip(sources, outcomes, strict=True)
        if o.state == "failed"
    ]
    made = states["made"] + states["remade"]
    unused = () if refer else _outside(source)
    return PrepareReport(made, states["kept"], failed, states["remade"], unused)


def _collect(
    results: Iterable["_Outcome"], sources: list[Video], root: Path, stamps: dict[str, Stamp]
) -> list["_Outcome"]:
    """Wait for all clips; record the videos they were made from, even when interrupted."""
    outcomes = []
    known = dict(stamps)
    try:
        for source, outcome in zip(sources, results, strict=True):
            outcomes.append(outcome)
            if outcome.stamp is not None:
                known[source.id] = outcome.stamp
    finally:
        with atomic_path(root / RECORD) as part:
            part.write_text(json.dumps(dict(sorted(known.items()))), encoding="utf-8")
    return outcomes


def _outside(source: str | Path) -> tuple[str, ...]:
    """Return the videos that are not `<class>/<clip>.mp4`."""
    base = Path(source)
    return tuple(sorted(str(p) for p in set(base.rglob("*.mp4")) - set(base.glob("*/*.mp4"))))


def _by_folder(source: str | Path) -> tuple[tuple[str, ...], list[Video]]:
    videos = sorted(Path(source).glob("*/*.mp4"))
    if not videos:
        raise DataError(f"no videos in {source}: expected {source}/<class>/<clip>.mp4.")
    by_id: dict[str, Path] = {}
    for video in videos:
        if video.stem in by_id:
            raise DataError(
                f"duplicated id '{video.stem}': {by_id[video.stem]} and {video}; rename one."
            )
        by_id[video.stem] = video
    classes = tuple(sorted({video.parent.name for video in videos}))
    return classes, [Video(v.stem, v.parent.name, v) for v in videos]


def _by_list(
    source: str | Path, refer: str | Path, labels: str | Path | None
) -> tuple[tuple[str, ...], list[Video]]:
    if not Path(refer).is_file():
        raise DataError(f"no list {refer}: give a list in READ's format with --refer.")
    if labels is None:
        raise DataError(f"the list {refer} also needs its label CSV: give it with --labels.")
    classes = read_labels(labels)
    videos = {video.stem: video for video in sorted(Path(source).rglob("*.mp4"))}
    sources = []
    for number, entry in enumerate(read_entries(refer)):
        clip_id, label = entry["video_id"], entry["labels"]
        if label not in classes:
            raise DataError(
                f"{refer}, entry {number} ('{clip_id}'): no label '{label}' in {labels}."
            )
        sources.append(Video(clip_id, label, videos.get(clip_id)))
    twice = repeated(source.id for source in sources)
    if twice:
        raise DataError(
            f"{refer}: duplicated id(s) {', '.join(twice[:20])}: remove the duplicates."
        )
    return classes, sources


def _entry(source: Video) -> dict[str, str]:
    return {
        "video_id": source.id,
        "wav": f"audio/{source.id}.wav",
        "video_path": "video",
        "labels": source.label,
    }


class _Outcome(NamedTuple):
    """The outcome for one video: "made", "remade", "kept" or "failed"; the reason; its stamp."""

    state: str
    reason: str = ""
    stamp: Stamp | None = None


def _make_clip(root: Path, stamps: Mapping[str, Stamp], source: Video) -> _Outcome:
    """Write the files of one clip, unless they exist and were made from the present video."""
    if source.path is None:
        return _Outcome("failed", f"no {source.id}.mp4 among the videos")
    wav = root / "audio" / f"{source.id}.wav"
    frames = [root / "video" / f"frame_{i}" / f"{source.id}.jpg" for i in range(FRAMES)]
    now = _stamp(source.path)
    state = "made"
    if wav.exists() and all(frame.exists() for frame in frames):
        if not _is_outdated(source.path, wav, stamps.get(source.id)):
            return _Outcome("kept", stamp=now)
        state = "remade"
    try:
        inside(wav, root / "audio", f"the id '{source.id}'")
        pictures, sound = decode_frames(source.path, FRAMES), decode_sound(source.path)
    except DataError as error:
        return _Outcome("failed", str(error))
    for picture, path in zip(pictures, frames, strict=True):
        if min(picture.size) > CORRUPTION_SIDE:
            picture = shorter_side(picture, CORRUPTION_SIDE, Pillow.Resampling.BICUBIC)
        with atomic_path(path) as part:
            picture.save(part, "JPEG", quality=FRAME_QUALITY)
    write_wave(wav, sound)
    return _Outcome(state, stamp=now)


def _stamp(video: Path) -> Stamp:
    facts = video.stat()
    return facts.st_size, facts.st_mtime_ns


def _is_outdated(video: Path, made: Path, recorded: Stamp | None) -> bool:
    """Return whether `made` comes from another version of `video` than the present one."""
    if recorded is not None:
        return _stamp(video) != recorded
    return video.stat().st_mtime_ns > made.stat().st_mtime_ns


def _read_stamps(root: Path) -> dict[str, Stamp]:
    """Return {clip id: stamp}; an unreadable record counts as empty."""
    try:
        found = json.loads((root / RECORD).read_text(encoding="utf-8"))
        return {name: (int(size), int(time)) for name, (size, time) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}

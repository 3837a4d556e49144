"""From mp4 files to READ's layout: ten frames and a 16 kHz mono wav a clip."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from dasp.core.errors import DataError
from dasp.core.files import atomic_path
from dasp.data.manifest import inside
from dasp.data.media import decode_frames, decode_sound, extra, write_wave
from dasp.data.parallel import run_jobs, with_bar
from dasp.data.read_list import FRAMES, read_entries, read_labels, write_labels, write_list
from dasp.data.stamps import Stamp, is_outdated, read_stamps, stamp, write_stamps
from dasp.data.trees import check_writable, remove_leftovers
from dasp.data.video import CORRUPTION_SIDE, shorter_side

FRAME_QUALITY = 95


@dataclass(frozen=True)
class Source:
    """A video to turn into a clip; `path` is None where a list names one that is not there."""

    id: str
    label: str
    path: Path | None


@dataclass(frozen=True)
class PrepareReport:
    """What was made now, what was there already, and what failed: (video, reason).

    `remade` counts those of the made whose video had been replaced; `unused` are the videos that
    lie in no class folder.
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

    Classes are the folders `source/<class>/<clip>.mp4`; or, with READ's list `refer` and its
    label CSV `labels`, the ids and classes of that list, videos being found by `<id>.mp4`.
    A clip whose files are all there is kept, so an interrupted run goes on where it stopped,
    and is made again when its video has been replaced since. A video that cannot be read is
    reported and left off the list.
    """
    extra("av"), extra("soundfile")
    base = Path(root)
    if not Path(source).is_dir():
        raise DataError(f"no folder {source}: give the folder of the videos.")
    classes, sources = _by_list(source, refer, labels) if refer else _by_folder(source)
    if base.resolve().is_relative_to(Path(source).resolve()):
        raise DataError(f"{root} would lie among the videos of {source}: choose a root outside.")
    stamps = read_stamps(base)
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
    results: Iterable["_Outcome"], sources: list[Source], root: Path, stamps: dict[str, Stamp]
) -> list["_Outcome"]:
    """Wait for all clips; record the videos they come from, also when this is interrupted."""
    outcomes = []
    known = dict(stamps)
    try:
        for source, outcome in zip(sources, results, strict=True):
            outcomes.append(outcome)
            if outcome.stamp is not None:
                known[source.id] = outcome.stamp
    finally:
        write_stamps(root, known)
    return outcomes


def _outside(source: str | Path) -> tuple[str, ...]:
    """Return the videos that lie in no class folder, or deeper than one."""
    base = Path(source)
    return tuple(sorted(str(p) for p in set(base.rglob("*.mp4")) - set(base.glob("*/*.mp4"))))


def _by_folder(source: str | Path) -> tuple[tuple[str, ...], list[Source]]:
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
    return classes, [Source(v.stem, v.parent.name, v) for v in videos]


def _by_list(
    source: str | Path, refer: str | Path, labels: str | Path | None
) -> tuple[tuple[str, ...], list[Source]]:
    if not Path(refer).is_file():
        raise DataError(f"no list {refer}: give a list in READ's format with --refer.")
    if labels is None:
        raise DataError(f"the list {refer} needs its label CSV too: give it with --labels.")
    classes = read_labels(labels)
    videos = {video.stem: video for video in sorted(Path(source).rglob("*.mp4"))}
    sources = []
    for number, entry in enumerate(read_entries(refer)):
        clip_id, label = entry["video_id"], entry["labels"]
        if label not in classes:
            raise DataError(
                f"{refer}, entry {number} ('{clip_id}'): no label '{label}' in {labels}."
            )
        sources.append(Source(clip_id, label, videos.get(clip_id)))
    twice = [name for name, count in Counter(s.id for s in sources).items() if count > 1]
    if twice:
        raise DataError(f"{refer}: duplicated id(s) {', '.join(twice[:20])}: remove the copies.")
    return classes, sources


def _entry(source: Source) -> dict[str, str]:
    return {
        "video_id": source.id,
        "wav": f"audio/{source.id}.wav",
        "video_path": "video",
        "labels": source.label,
    }


class _Outcome(NamedTuple):
    """What became of one video: "made", "remade", "kept" or "failed"; why; its stamp."""

    state: str
    reason: str = ""
    stamp: Stamp | None = None


def _make_clip(root: Path, stamps: Mapping[str, Stamp], source: Source) -> _Outcome:
    """Write the files of one clip, unless they are there and come from the video as it is."""
    if source.path is None:
        return _Outcome("failed", f"no {source.id}.mp4 among the videos")
    wav = root / "audio" / f"{source.id}.wav"
    frames = [root / "video" / f"frame_{i}" / f"{source.id}.jpg" for i in range(FRAMES)]
    now = stamp(source.path)
    state = "made"
    if wav.exists() and all(frame.exists() for frame in frames):
        if not is_outdated(source.path, wav, stamps.get(source.id)):
            return _Outcome("kept", stamp=now)
        state = "remade"
    try:
        inside(wav, root / "audio", f"the id '{source.id}'")
        pictures, sound = decode_frames(source.path, FRAMES), decode_sound(source.path)
    except DataError as error:
        return _Outcome("failed", str(error))
    for picture, path in zip(pictures, frames, strict=True):
        if min(picture.size) > CORRUPTION_SIDE:
            picture = shorter_side(picture, CORRUPTION_SIDE, Image.Resampling.BICUBIC)
        with atomic_path(path) as part:
            picture.save(part, "JPEG", quality=FRAME_QUALITY)
    write_wave(wav, sound)
    return _Outcome(state, stamp=now)

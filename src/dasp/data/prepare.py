"""Turn mp4 files into READ's layout: ten frames and a 16 kHz mono wav per clip."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dasp.core.errors import DataError
from dasp.core.extras import Pillow, extra
from dasp.core.files import atomic_path, check_writable, remove_parts
from dasp.core.progress import with_bar
from dasp.data import clips as lists
from dasp.data.clips import Clip, Manifest, listed_clip, write_list
from dasp.data.features import CORRUPTION_SIDE, shorter_side
from dasp.data.loading import run_jobs
from dasp.data.media import decode_frames, decode_sound, write_wave

FRAME_QUALITY = 95


@dataclass(frozen=True)
class PrepareReport:
    """The numbers of clips made and kept, and what was wrong."""

    made: int
    kept: int
    failed: list[tuple[str, str]]  # (video, reason)
    remade: int = 0  # of those made, whose video had been replaced
    unused: tuple[str, ...] = ()  # videos outside of the class directories


def prepare_tree(
    source: str | Path,
    root: str | Path,
    refer: str | Path | None = None,
    labels: str | Path | None = None,
    split: str = "test",
    workers: int | None = None,
    show: bool = False,
    follow_links: bool = False,
) -> PrepareReport:
    """Turn the videos below `source` into `root/audio`, `root/video`, `<split>.json`, `labels.csv`.

    Classes are the directories `source/<class>/<clip>.mp4`; or, with READ's list `refer` and its
    label CSV `labels`, the ids and classes of that list, with the videos `<id>.mp4`. A clip whose
    files all exist is kept unless its video was replaced, so that an interrupted run continues. A
    video that cannot be read is reported and omitted from the list. Links out of `source` are
    refused unless `follow_links`.
    """
    extra("av"), extra("soundfile")
    base, folder = Path(root), Path(source)
    if not folder.is_dir():
        raise DataError(f"{source} is not a directory: give the directory of the videos.")
    manifest, videos = _by_list(folder, base, refer, labels) if refer else _by_folder(folder, base)
    lists.check_links(folder, [str(video.absolute()) for video in videos.values()], follow_links)
    if base.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{root} lies inside {source}: choose a root outside of the videos.")
    todo = [clip for clip in manifest.clips if not _is_made(clip, videos.get(clip.id))]
    outdated = {clip.id for clip in todo if _is_complete(clip)}
    results = run_jobs(partial(_make_clip, videos), todo, workers)
    check_writable(base)
    for written in (base / "audio", *(base / "video").glob("*")):
        remove_parts(written)
    errors = zip(todo, with_bar(results, len(todo), "prepare", show), strict=True)
    failed = {clip.id: error for clip, error in errors if error is not None}
    lists.write_labels(base / "labels.csv", manifest.classes)
    rows = [_entry(clip, manifest.classes) for clip in manifest.clips if clip.id not in failed]
    write_list(base / f"{split}.json", rows)
    used = set(folder.rglob("*.mp4") if refer else videos.values())
    return PrepareReport(
        made=len(todo) - len(failed),
        kept=len(manifest.clips) - len(todo),
        failed=[(str(videos.get(name, name)), reason) for name, reason in failed.items()],
        remade=len(outdated - failed.keys()),
        unused=tuple(sorted(str(video) for video in set(folder.rglob("*.mp4")) - used)),
    )


def _by_folder(source: Path, root: Path) -> tuple[Manifest, dict[str, Path]]:
    """Return the clips to make from `<class>/<clip>.mp4`, and their videos by id."""
    videos: dict[str, Path] = {}
    for video in sorted(source.glob("*/*.mp4")):
        lists.check_name(video.parent)
        lists.check_name(video)
        if video.stem in videos:
            raise DataError(
                f"duplicated id '{video.stem}': {videos[video.stem]} and {video}; rename one."
            )
        videos[video.stem] = video
    if not videos:
        raise DataError(f"no videos in {source}: expected {source}/<class>/<clip>.mp4.")
    classes = tuple(sorted({video.parent.name for video in videos.values()}))
    clips = [
        listed_clip(root, name, classes.index(v.parent.name), f"audio/{name}.wav", "video", str(v))
        for name, v in videos.items()
    ]
    return Manifest(root.name, root, tuple(clips), classes), videos


def _by_list(
    source: Path, root: Path, refer: str | Path, labels: str | Path | None
) -> tuple[Manifest, dict[str, Path]]:
    """Return the clips to make from a list of READ, and those of their videos that exist by id."""
    if labels is None:
        raise DataError(f"the list {refer} also needs its label CSV: give it with --labels.")
    manifest = lists.read_list(refer, labels, root, "audio", "video", follow_links=True)
    ids = {clip.id for clip in manifest.clips}
    return manifest, {v.stem: v for v in sorted(source.rglob("*.mp4")) if v.stem in ids}


def _entry(clip: Clip, classes: tuple[str, ...]) -> dict[str, str]:
    paths = {"wav": f"audio/{clip.id}.wav", "video_path": "video"}
    return {"video_id": clip.id, **paths, "labels": classes[clip.label]}


def _make_clip(videos: dict[str, Path], clip: Clip) -> str | None:
    """Write the files of one clip; return why it cannot be made, or None."""
    if clip.id not in videos:
        return f"no {clip.id}.mp4 among the videos"
    try:
        pictures = decode_frames(videos[clip.id], lists.FRAMES)
        sound = decode_sound(videos[clip.id])
    except DataError as error:
        return str(error)
    for picture, path in zip(pictures, clip.frames, strict=True):
        if min(picture.size) > CORRUPTION_SIDE:
            picture = shorter_side(picture, CORRUPTION_SIDE, Pillow.Resampling.BICUBIC)
        with atomic_path(path) as part:
            picture.save(part, "JPEG", quality=FRAME_QUALITY)
    write_wave(clip.wav, sound)
    made_from = videos[clip.id].stat().st_mtime_ns
    os.utime(clip.wav, ns=(made_from, made_from))  # `_is_made` knows the video by it
    return None


def _is_complete(clip: Clip) -> bool:
    return all(Path(path).exists() for path in clip.files())


def _is_made(clip: Clip, video: Path | None) -> bool:
    """Return whether all files exist and come from this version of the video."""
    if video is None or not _is_complete(clip):
        return False
    return video.stat().st_mtime_ns == clip.wav.stat().st_mtime_ns

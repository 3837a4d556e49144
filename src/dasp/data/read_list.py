"""READ's layout: a JSON list of clips, ten frames a clip in ten folders, and a CSV of labels."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from dasp.core.errors import DataError, unknown_name
from dasp.core.files import atomic_path
from dasp.data.causes import cause
from dasp.data.manifest import Clip, Manifest, inside

FRAMES = 10
KEYS = ("video_id", "wav", "video_path", "labels")


def read_labels(path: str | Path) -> tuple[str, ...]:
    """Return the class names (`mid`) of a label CSV `index,mid[,display_name]`, by index."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the labels {path}: {cause(error)}.") from error
    try:
        by_index = {int(row["index"]): row["mid"] for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is no label file: its columns must be 'index,mid[,display_name]' "
            f"with whole numbers under index ({error!r})."
        ) from error
    names = tuple(by_index[index] for index in sorted(by_index))
    if not rows or sorted(by_index) != list(range(len(rows))) or len(set(names)) != len(rows):
        raise DataError(f"{path}: indices must be 0, 1, 2, … and names unique, each once.")
    return names


def read_list(
    path: str | Path,
    labels: str | Path,
    root: str | Path | None = None,
    audio_dir: str | Path | None = None,
    video_dir: str | Path | None = None,
    name: str = "",
) -> Manifest:
    """Read a list `{"data": [{"video_id", "wav", "video_path", "labels"}]}`.

    Paths in the list are absolute or relative to `root` (by default the folder of the list)
    and may not lead out of it. `audio_dir` and `video_dir`, relative to the root, replace the
    paths of a list made on another machine: sounds are then `audio_dir/<id>.wav`.
    """
    base = Path(root) if root is not None else Path(path).parent
    classes = read_labels(labels)
    index = {mid: number for number, mid in enumerate(classes)}
    clips = []
    for number, entry in enumerate(read_entries(path)):
        where = f"{path}, entry {number} ('{entry['video_id']}')"
        if entry["labels"] not in index:
            raise DataError(f"{where}: {unknown_name('label', entry['labels'], index)[:300]}")
        clips.append(_clip(entry, index[entry["labels"]], base, audio_dir, video_dir, where))
    return Manifest(name or Path(path).stem, base, tuple(clips), classes)


def read_entries(path: str | Path) -> list[dict[str, str]]:
    """Return the entries of a JSON list, each with video_id, wav, video_path and labels."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the list {path}: {cause(error)}.") from error
    entries = content.get("data") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(f'{path} is no list of clips: it must be {{"data": [...]}}.')
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in KEYS):
            raise DataError(
                f"{path}, entry {number}: needs the texts {', '.join(KEYS)}; it is {entry!r}."
            )
        if not entry["video_id"]:
            raise DataError(f"{path}, entry {number}: an empty video_id names no file.")
    return entries


def _clip(
    entry: Mapping[str, str],
    label: int,
    root: Path,
    audio_dir: str | Path | None,
    video_dir: str | Path | None,
    where: str,
) -> Clip:
    clip_id = entry["video_id"]
    wav_path = Path(entry["wav"]) if audio_dir is None else Path(audio_dir) / f"{clip_id}.wav"
    wav = inside(wav_path, root, where)
    folder = inside(Path(entry["video_path"] if video_dir is None else video_dir), root, where)
    frames = tuple(
        inside(Path(f"frame_{i}", f"{clip_id}.jpg"), folder, where) for i in range(FRAMES)
    )
    return Clip(clip_id, label, wav, frames, wav.parent, folder)


def write_list(path: str | Path, entries: Sequence[Mapping[str, str]]) -> None:
    """Write READ's JSON list; each entry has video_id, wav, video_path and labels."""
    with atomic_path(path) as part:
        part.write_text(json.dumps({"data": list(entries)}, indent=1), encoding="utf-8")


def write_labels(path: str | Path, classes: Sequence[str]) -> None:
    """Write a label CSV `index,mid`."""
    with atomic_path(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("index", "mid"))
        writer.writerows(enumerate(classes))

"""The clips of a data set: their files and classes, in READ's layout or one directory per class.

Corrupted copies lie in `<directory>-C/<corruption>/severity_<k>/`, where READ puts them.
"""

import csv
import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dasp.core.errors import DataError, cause, unknown_name
from dasp.core.files import atomic_path
from dasp.core.registry import Registry

FRAMES = 10  # per clip in READ's layout
LONGEST_NAME = 251  # bytes; 255 with the suffix
KEYS = ("video_id", "wav", "video_path", "labels")
PICTURES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class Clip:
    """One sample: a sound, its frames and its class."""

    id: str
    label: int
    wav: Path
    video: Path  # its only frame, or in READ's layout the directory of frame_0 … frame_9
    count: int = 1  # of its frames

    def files(self) -> list[str]:
        """Return the paths of the sound and of each frame; as text, since a list has a million."""
        frames = [f"{self.video}/frame_{i}/{self.id}.jpg" for i in range(self.count)]
        frames = [str(self.video)] if self.count == 1 else [*map(os.path.normpath, frames)]
        return [str(self.wav), *frames]

    @property
    def frames(self) -> tuple[Path, ...]:
        """Return the paths of the frames."""
        return tuple(map(Path, self.files()[1:]))

    @property
    def frame(self) -> Path:
        """Return the frame used for evaluation: the middle one (5 of READ's ten)."""
        return self.frames[self.count // 2]

    @property
    def frame_id(self) -> str:
        """Return the name that seeds the corruption of this frame; each frame has its own."""
        return f"{self.id}/frame_{self.count // 2}"


@dataclass(frozen=True)
class Manifest:
    """The clips of a data set in order, and the names of its classes by index."""

    name: str
    root: Path
    clips: tuple[Clip, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.clips:
            raise DataError(f"{self.name}: no clips in {self.root}: check the list and the root.")
        twice = [name for name, n in Counter(clip.id for clip in self.clips).items() if n > 1]
        if twice:
            raise DataError(
                f"{self.root}: {len(twice)} duplicated id(s): {', '.join(twice[:20])}. Each clip "
                "needs a unique id, as it names files and seeds: remove the duplicates."
            )

    @cached_property
    def digest(self) -> str:
        """Return a hash of ids, classes and relative paths, independent of the root's location."""
        base, rows = os.path.join(os.path.abspath(self.root), ""), []
        for clip in self.clips:
            paths = [path.removeprefix(base).replace(os.sep, "/") for path in clip.files()]
            rows.append([clip.id, self.classes[clip.label], *paths])
        return hashlib.sha256(json.dumps([self.classes, rows]).encode()).hexdigest()

    def per_class(self) -> dict[str, int]:
        """Return the number of clips per class, empty classes included."""
        counts = Counter(c.label for c in self.clips)
        return {name: counts[index] for index, name in enumerate(self.classes)}

    def first(self, count: int) -> "Manifest":
        """Return the manifest of the first `count` clips."""
        return replace(self, clips=self.clips[:count])


class Spec(NamedTuple):
    """The size of a published data set, and the names in READ's release of it."""

    clips: int
    classes: int
    list_file: str
    label_file: str
    audio_dir: str | None = None
    video_dir: str | None = None


SPECS: Registry[Spec] = Registry("data set")
SPECS.register("kinetics50")(Spec(
    2466, 50, "ks50_test_refer.json", "class_labels_indices_ks50.csv",
    "audio_val256_k=50", "image_mulframe_val256_k=50",
))  # fmt: skip
SPECS.register("vggsound")(Spec(
    14046, 309, "vgg_test_refer.json", "class_labels_indices_vgg.csv",
    "audio_test", "image_mulframe_test",
))  # fmt: skip


def open_manifest(
    root: str | Path,
    dataset: str | None = None,
    split: str = "test",
    list_file: str | Path | None = None,
    label_file: str | Path | None = None,
    follow_links: bool = False,
) -> Manifest:
    """Return the clips below `root`, whichever layout they have.

    With `dataset` ("kinetics50", "vggsound"): READ's release, with its list and label files at the
    root or given here. Without: `<split>.json` and `labels.csv`, as `dasp prepare` writes them, at
    the root or given here; without a list, the plain layout of `read_folders`. Links that lead out
    of the root are refused unless `follow_links` is True.
    """
    base = Path(root)
    if not base.is_dir():
        raise DataError(f"{base} is not a directory: give the root of the data set.")
    spec = Spec(0, 0, f"{split}.json", "labels.csv") if dataset is None else SPECS[dataset]
    path, labels = (
        Path(given or base / usual)
        for given, usual in ((list_file, spec.list_file), (label_file, spec.label_file))
    )
    if dataset is None and not (list_file or label_file or os.path.lexists(path)):
        _check_plain(base, split)
        return read_folders(base, follow_links)
    for needed in (path, labels):
        if dataset is not None and not needed.is_file():
            raise DataError(
                f"no file {needed}: {dataset} needs the list and the label file of READ's "
                "release; copy both there, or give --list-file and --label-file."
            )
    folders = (spec.audio_dir, spec.video_dir)
    return read_list(path, labels, base, *folders, dataset or base.name, follow_links)


def _check_plain(root: Path, split: str) -> None:
    """Raise an error for a missing list that was asked for by name, or lies among others."""
    lists = sorted(p.name for p in root.glob("*.json") if not p.name.startswith("."))
    if split != "test" or (lists and (root / "labels.csv").exists()):
        found = f"the lists there are {', '.join(lists)}" if lists else "there is no list"
        raise DataError(f"no {split}.json in {root}: {found}; choose one with --split.")


def read_folders(root: str | Path, follow_links: bool = False) -> Manifest:
    """Return the clips `root/<class>/<clip>.wav` and `.jpg`, ignoring hidden files.

    Classes are numbered in the order of their sorted names; clip ids are "<class>/<clip>".
    """
    base = Path(os.path.abspath(root))
    folders = sorted(p for p in base.iterdir() if p.is_dir() and not p.name.startswith("."))
    clips = [clip for label, path in enumerate(folders) for clip in _class_clips(path, label)]
    if not clips:
        raise DataError(
            f"no clips in {base}: expected a list (test.json with labels.csv) or "
            "<class>/<clip>.wav with <class>/<clip>.jpg or .png beside it."
        )
    check_links(base, [path for clip in clips for path in clip.files()], follow_links)
    return Manifest(base.name, base, tuple(clips), tuple(path.name for path in folders))


def _class_clips(folder: Path, label: int) -> list[Clip]:
    check_name(folder)
    sounds: dict[str, Path] = {}
    pictures: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        kind = path.suffix.lower()
        if path.name.startswith(".") or kind not in (".wav", *PICTURES):
            continue
        check_name(path)
        found = sounds if kind == ".wav" else pictures
        if path.stem in found:
            raise DataError(f"{path}: {found[path.stem].name} exists too: keep one.")
        found[path.stem] = path
    for stem in sorted(sounds.keys() ^ pictures.keys()):
        alone = sounds.get(stem) or pictures[stem]
        lacking = "picture (.jpg, .jpeg, .png)" if stem in sounds else "sound (.wav)"
        raise DataError(f"{alone} has no {lacking} of the same name beside it: add it.")
    return [Clip(f"{folder.name}/{stem}", label, sounds[stem], pictures[stem]) for stem in sounds]


def check_name(path: Path) -> None:
    """Raise an error for a file or directory whose name is not UTF-8: ids and classes are."""
    if not _is_usable(path.name):
        name = os.fsencode(path.name)
        raise DataError(f"{path.parent} contains {name!r}, whose name is not UTF-8: rename it.")


def read_list(
    path: str | Path,
    labels: str | Path,
    root: str | Path | None = None,
    audio_dir: str | None = None,
    video_dir: str | None = None,
    name: str = "",
    follow_links: bool = False,
) -> Manifest:
    """Read a list `{"data": [{"video_id", "wav", "video_path", "labels"}]}`.

    Paths in the list are absolute or relative to `root` (by default the directory of the list) and
    must lie below it. `audio_dir` and `video_dir`, relative to the root, replace those of a list
    made on another machine.
    """
    base = Path(root) if root is not None else Path(path).parent
    check_links(base, [os.path.abspath(path), os.path.abspath(labels)], follow_links)
    classes = read_labels(labels)
    numbers = {label: number for number, label in enumerate(classes)}
    clips = []
    for number, entry in enumerate(read_entries(path)):
        clip_id, label = entry["video_id"], entry["labels"]
        where = f"{path}, entry {number} ('{clip_id}')"
        if label not in numbers:
            raise DataError(f"{where}: {unknown_name('label', label, classes)[:300]}")
        wav = entry["wav"] if audio_dir is None else f"{audio_dir}/{clip_id}.wav"
        folder = video_dir or entry["video_path"]
        clips.append(listed_clip(base, clip_id, numbers[label], wav, folder, where))
    check_links(base, [path for clip in clips for path in clip.files()], follow_links)
    return Manifest(name or Path(path).stem, base, tuple(clips), classes)


def listed_clip(root: Path, clip_id: str, label: int, wav: str, folder: str, where: str) -> Clip:
    """Return a clip in READ's layout; `where` tells which entry names a file outside the root."""
    video = inside(folder, root, where)
    inside(f"frame_0/{clip_id}.jpg", video, where)
    return Clip(clip_id, label, inside(wav, root, where), video, FRAMES)


def read_labels(path: str | Path) -> tuple[str, ...]:
    """Return the class names (`mid`) of a label CSV `index,mid[,display_name]`, by index."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read the labels {path}: {cause(error)}.") from error
    try:
        by_index = {int(row["index"]): row["mid"] for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not a label file: its columns must be 'index,mid[,display_name]' "
            f"with integers under index ({error!r})."
        ) from error
    names = tuple(name for _, name in sorted(by_index.items()))
    if not rows or sorted(by_index) != list(range(len(rows))) or len(set(names)) != len(rows):
        raise DataError(f"{path}: indices must be 0, 1, 2, … and names unique, each once.")
    return names


def read_entries(path: str | Path) -> list[dict[str, str]]:
    """Return the entries of a JSON list, each with video_id, wav, video_path and labels."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read the list {path}: {cause(error)}.") from error
    entries = content.get("data") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(f'{path} is not a list of clips: it must be {{"data": [...]}}.')
    for number, entry in enumerate(entries):
        strings = isinstance(entry, dict) and all(isinstance(entry.get(k), str) for k in KEYS)
        if not strings or not entry["video_id"]:
            raise DataError(
                f"{path}, entry {number}: needs the strings {', '.join(KEYS)}; it is {entry!r:.99}."
            )
        for key in KEYS:
            if not _is_usable(entry[key]):
                raise DataError(
                    f"{path}, entry {number}: {key} cannot be part of a file's name (a NUL, half a "
                    f"character or over {LONGEST_NAME} bytes): rename it; it is {entry[key]!r:.80}."
                )
    return entries


def _is_usable(text: str) -> bool:
    """Return whether every part of a path can be a file's name, with a suffix of four bytes."""
    try:
        parts = text.encode().split(b"/")
    except UnicodeEncodeError:
        return False
    return "\0" not in text and max(map(len, parts)) <= LONGEST_NAME


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


def inside(path: str | Path, root: Path, what: str) -> Path:
    """Return `path` made absolute from `root`; raise an error if its text leads out of it."""
    base = os.path.abspath(root)
    full = os.path.normpath(os.path.join(base, path))
    if not _is_below(full, base):
        raise DataError(
            f"{what} names {path}, outside the root {base}: give the root that holds the files, "
            "or the directories of the sounds and frames (audio_dir, video_dir)."
        )
    return Path(full)


def _is_below(path: str, base: str) -> bool:
    return path == base or path.startswith(os.path.join(base, ""))


def check_links(root: Path, paths: Sequence[str], follow_links: bool) -> None:
    """Raise an error for a link that leads from a path below the root out of it.

    Directories are resolved and listed once each, so that a million files take seconds.
    """
    if follow_links:
        return
    base, real = os.path.abspath(root), os.path.realpath(root)
    folders = {f for f in {os.path.dirname(path) for path in paths} if _is_below(f, base)}
    listed = (os.scandir(folder) for folder in folders if os.path.isdir(folder))
    links = {entry.path for entries in listed for entry in entries if entry.is_symlink()}
    for path in sorted(folders | (links.intersection(paths) if links else links)):
        parts = os.path.relpath(path, base).split(os.sep)
        for link in (os.path.join(base, *parts[: i + 1]) for i in range(len(parts))):
            target = os.path.realpath(link)
            if not _is_below(target, real):
                raise DataError(
                    f"{link} is a link to {target}, outside the root {base}: copy the files "
                    "below the root, or allow such links with --follow-links (follow_links=True)."
                )

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

from dasp.core.errors import DataError, OptionError, cause, unknown_name
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
    frames: tuple[Path, ...]

    @property
    def frame(self) -> Path:
        """Return the frame used for evaluation: the middle one (5 of READ's ten)."""
        return self.frames[len(self.frames) // 2]

    @property
    def frame_id(self) -> str:
        """Return the name that seeds the corruption of this frame; each frame has its own."""
        return f"{self.id}/frame_{len(self.frames) // 2}"


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
        rows = []
        for clip in self.clips:
            paths = (os.path.relpath(path, self.root) for path in (clip.wav, *clip.frames))
            rows.append([clip.id, self.classes[clip.label], *(Path(p).as_posix() for p in paths)])
        return hashlib.sha256(json.dumps([self.classes, rows]).encode()).hexdigest()

    def per_class(self) -> dict[str, int]:
        """Return the number of clips per class, empty classes included."""
        counts = Counter(c.label for c in self.clips)
        return {name: counts[index] for index, name in enumerate(self.classes)}

    def find(self, clip_id: str | None) -> Clip:
        """Return the clip with this id, by default the first clip."""
        by_id = {clip.id: clip for clip in self.clips}
        if clip_id is not None and clip_id not in by_id:
            raise OptionError(unknown_name("clip", clip_id, by_id)[:300])
        return self.clips[0] if clip_id is None else by_id[clip_id]

    def first(self, count: int) -> "Manifest":
        """Return the manifest of the first `count` clips."""
        return replace(self, clips=self.clips[:count])


@dataclass(frozen=True)
class Spec:
    """The size of a published data set, and the names in READ's release of it."""

    clips: int
    classes: int
    short: str
    audio_dir: str
    video_dir: str

    @property
    def list_file(self) -> str:
        """Return the name of the list of the test clips."""
        return f"{self.short}_test_refer.json"

    @property
    def label_file(self) -> str:
        """Return the name of the label CSV."""
        return f"class_labels_indices_{self.short}.csv"


SPECS: Registry[Spec] = Registry("data set")
SPECS.register("kinetics50")(
    Spec(2466, 50, "ks50", "audio_val256_k=50", "image_mulframe_val256_k=50")
)
SPECS.register("vggsound")(Spec(14046, 309, "vgg", "audio_test", "image_mulframe_test"))


def open_manifest(
    root: str | Path,
    dataset: str | None = None,
    split: str = "test",
    list_file: str | Path | None = None,
    label_file: str | Path | None = None,
) -> Manifest:
    """Return the clips below `root`, whichever layout they have.

    With `dataset` ("kinetics50", "vggsound"): READ's release, with its list and label files at
    the root or given here, and sounds and frames in the directories of the release.
    Without: the list `<split>.json` and `labels.csv` at the root or given here, as written by
    `dasp prepare`; without a list, the plain layout of `read_folders`.
    """
    base = Path(root)
    if not base.is_dir():
        raise DataError(f"{base} is not a directory: give the root of the data set.")
    if dataset is None:
        path, labels = Path(list_file or base / f"{split}.json"), label_file or base / "labels.csv"
        if list_file is None and label_file is None and not path.exists():
            _check_plain(base, split)
            return read_folders(base)
        return read_list(path, labels, base, name=base.name)
    spec = SPECS[dataset]
    path, labels = Path(list_file or base / spec.list_file), label_file or base / spec.label_file
    for needed in (path, Path(labels)):
        if not needed.is_file():
            raise DataError(
                f"no file {needed}: {dataset} needs the list and the label file of READ's "
                "release; copy both there, or give --list-file and --label-file."
            )
    return read_list(path, labels, base, spec.audio_dir, spec.video_dir, dataset)


def _check_plain(root: Path, split: str) -> None:
    """Raise an error for a missing list that was asked for by name, or lies among others."""
    lists = sorted(p.name for p in root.glob("*.json") if not p.name.startswith("."))
    if split != "test" or (lists and (root / "labels.csv").exists()):
        found = f"the lists there are {', '.join(lists)}" if lists else "there is no list"
        raise DataError(f"no {split}.json in {root}: {found}; choose one with --split.")


def read_folders(root: str | Path) -> Manifest:
    """Return the clips `root/<class>/<clip>.wav` and `.jpg`, ignoring hidden files.

    Classes are numbered in the order of their sorted names; clip ids are "<class>/<clip>".
    """
    base = Path(os.path.normpath(Path(root).absolute()))
    classes = sorted(p.name for p in base.iterdir() if p.is_dir() and not p.name.startswith("."))
    clips = [clip for label, name in enumerate(classes) for clip in _class_clips(base, name, label)]
    if not clips:
        raise DataError(
            f"no clips in {base}: expected a list (test.json with labels.csv) or "
            "<class>/<clip>.wav with <class>/<clip>.jpg or .png beside it."
        )
    return Manifest(base.name, base, tuple(clips), tuple(classes))


def _class_clips(root: Path, name: str, label: int) -> list[Clip]:
    files = [p for p in sorted((root / name).iterdir()) if not p.name.startswith(".")]
    sounds = {p.stem: p for p in files if p.suffix.lower() == ".wav"}
    pictures: dict[str, Path] = {}
    for path in files:
        if path.suffix.lower() in PICTURES:
            if path.stem in pictures:
                raise DataError(f"{path}: {pictures[path.stem].name} exists too: keep one.")
            pictures[path.stem] = path
    for stem in sorted(sounds.keys() ^ pictures.keys()):
        alone = sounds.get(stem) or pictures[stem]
        lacking = "picture (.jpg, .jpeg, .png)" if stem in sounds else "sound (.wav)"
        raise DataError(f"{alone} has no {lacking} of the same name beside it: add it.")
    return [
        Clip(f"{name}/{stem}", label, sounds[stem], (pictures[stem],)) for stem in sorted(sounds)
    ]


def read_list(
    path: str | Path,
    labels: str | Path,
    root: str | Path | None = None,
    audio_dir: str | None = None,
    video_dir: str | None = None,
    name: str = "",
) -> Manifest:
    """Read a list `{"data": [{"video_id", "wav", "video_path", "labels"}]}`.

    Paths in the list are absolute or relative to `root` (by default the directory of the list)
    and must lie below it. `audio_dir` and `video_dir`, relative to the root, replace the paths of
    a list made on another machine: sounds are then `audio_dir/<id>.wav`.
    """
    base = Path(root) if root is not None else Path(path).parent
    classes = read_labels(labels)
    clips = []
    for number, entry in enumerate(read_entries(path)):
        clip_id, label = entry["video_id"], entry["labels"]
        where = f"{path}, entry {number} ('{clip_id}')"
        if label not in classes:
            raise DataError(f"{where}: {unknown_name('label', label, classes)[:300]}")
        wav = entry["wav"] if audio_dir is None else f"{audio_dir}/{clip_id}.wav"
        folder = video_dir or entry["video_path"]
        clips.append(listed_clip(base, clip_id, classes.index(label), wav, folder, where))
    return Manifest(name or Path(path).stem, base, tuple(clips), classes)


def listed_clip(root: Path, clip_id: str, label: int, wav: str, folder: str, where: str) -> Clip:
    """Return a clip in READ's layout; `where` tells which entry names a file outside the root."""
    sound, video_dir = inside(wav, root, where), inside(folder, root, where)
    frames = (inside(f"frame_{i}/{clip_id}.jpg", video_dir, where) for i in range(FRAMES))
    return Clip(clip_id, label, sound, tuple(frames))


def read_labels(path: str | Path) -> tuple[str, ...]:
    """Return the class names (`mid`) of a label CSV `index,mid[,display_name]`, by index."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
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
    return b"\0" not in text.encode() and max(map(len, parts)) <= LONGEST_NAME


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
    """Return `path` made absolute from `root`; raise an error if it leads out of it.

    Only the text of the path counts, so a data directory may be a link to another disk.
    """
    base = os.path.normpath(root.absolute())
    full = Path(os.path.normpath(Path(base, path)))
    if not full.is_relative_to(base):
        raise DataError(
            f"{what} names {path}, outside the root {base}: give the root that holds the files, "
            "or the directories of the sounds and frames (audio_dir, video_dir)."
        )
    return full

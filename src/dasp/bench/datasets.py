"""Data sets by name: labelled samples, clean or damaged, one modality at a time.

`DATASETS` is a registry: a data set of your own is a function that takes `DataOptions` and returns
a `Dataset`, registered by `@DATASETS.register("name")` or named as `file.py:build`.
"""

import json
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Protocol, get_args, get_origin, get_type_hints

import tyro

from dasp.bench.references import file_digest, from_file
from dasp.bench.results import digest
from dasp.core.errors import ContractError, DataError, OptionError, naming, unknown_name
from dasp.core.files import atomic_path
from dasp.core.registry import Registry
from dasp.core.seeding import check_seed, numpy_generator
from dasp.data import ClipDataset, Manifest, Sample, open_manifest
from dasp.data.clips import SPECS
from dasp.data.loading import Loader, cores
from dasp.data.shapes import VERSION, SoundingShapes
from dasp.streams.domains import Domain, DomainDamage

BUILT_IN = "sounding_shapes"
CLIPS_VERSION = 1  # raised when the same clips are decoded to other numbers
SOURCE_SAMPLES = 32
HASHES = ".dasp-hashes.json"


def check_types(options: Any) -> None:
    """Refuse a field of a dataclass whose value is not of its type; the error names the field."""
    for name, hint in get_type_hints(type(options)).items():
        value = getattr(options, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise OptionError(unknown_name(f"value of {name}", str(value), get_args(hint)))
        if not _fits(value, hint):
            words = re.sub(r"pathlib\.|<class '|'>|\.\.\.", "", str(hint)).replace(", ]", "]")
            raise OptionError(f"{name} must be of type {words}, not {value!r}.")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner
    if origin is UnionType:
        return any(_fits(value, kind) for kind in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, inner[0]) for item in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, origin or hint) and "\0" not in str(value)  # no path has a NUL


class Samples(Protocol):
    """Samples of one modality under one domain."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...


class Dataset(Protocol):
    """Labelled samples of several modalities under any domain."""

    @property
    def identity(self) -> dict[str, Any]:
        """Return everything that decides the samples, "name" and "samples" among it: it is hashed
        into the keys of results and stored features."""

    def labels(self) -> list[int]:
        """Return the label of each sample, in order."""

    def samples(self, modality: str, domain: Domain | None) -> Samples:
        """Return one modality of each sample, damaged by a domain of that modality."""

    def damage(self, domain: Domain) -> DomainDamage:
        """Return what a domain does to this data set."""

    def source(self, count: int) -> "Dataset":
        """Return clean training samples, for methods that are fitted first."""


@dataclass(frozen=True)
class DataOptions:
    """Which data set, and which samples of it."""

    name: Annotated[str, tyro.conf.arg(name="data")] = BUILT_IN
    """sounding_shapes (built in), kinetics50, vggsound, folder, grid, dsa, dsa_units, or your own
    as file.py:build."""
    root: Path | None = None
    """Directory of the clips."""
    samples: int | None = None
    """Samples per domain, of once and once_mixed in all; by default 1024 built-in ones, or all
    clips."""
    split: str = "test"
    """test or validation, the name of a list at the root, or people of dsa such as p7+p8."""
    flavour: str = "balanced"
    """Of the built-in set: balanced, or sound, where the sound tells more. Of grid: balanced (each
    word equally often), or natural."""
    seed: Annotated[int, tyro.conf.arg(name="data-seed")] = 0
    """Seed of the built-in samples and of every corruption."""
    frost_dir: Path | None = None
    """Directory of frost pictures; by default textures are grown."""
    noise_dir: Path | None = None
    """Directory of recorded noises; by default the sounds are synthesised."""
    follow_links: bool = False
    """Read files outside of the root to which links in it lead."""
    on_bad: Literal["error", "skip"] = "error"
    """Whether a clip that cannot be read ends the run, or is left out and listed."""
    source_split: str | None = None
    """List of clean training clips, for methods that are fitted before they adapt."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.samples is not None and self.samples < 1:
            raise OptionError(f"--samples is the number of samples per domain, not {self.samples}.")
        check_seed(self.seed)

    @lru_cache(maxsize=8)  # noqa: B019 - options are small
    def open(self) -> Dataset:
        """Open the data set; a process opens it once."""
        with naming(f"opening data set {self.name}"):
            build = from_file(self.name) if ".py:" in self.name else DATASETS[self.name]
            dataset: Dataset = build(self)
            identity = dataset.identity
        if not {"name", "samples"} <= set(identity):
            raise ContractError(
                f"the identity of data set {self.name} lacks 'name' or 'samples': return a dict "
                "with both, and whatever else decides the samples."
            )
        return dataset


DATASETS: Registry[Callable[[DataOptions], Dataset]] = Registry("data set")


@dataclass(frozen=True)
class BuiltIn:
    """The built-in set `sounding_shapes`."""

    samples_count: int
    flavour: str = "balanced"
    split: str = "test"
    seed: int = 0

    @property
    def identity(self) -> dict[str, Any]:
        """Return what decides the samples."""
        return {
            "name": BUILT_IN,
            "flavour": self.flavour,
            "split": self.split,
            "samples": self.samples_count,
            "seed": self.seed,
            "version": VERSION,
        }

    def labels(self) -> list[int]:
        """Return the classes, 0 to 35."""
        shapes = self.samples("video", None)
        return [shapes.label(index) for index in range(len(shapes))]

    def samples(self, modality: str, domain: Domain | None) -> SoundingShapes:
        """Return frames, sounds or depth maps, drawn when they are read."""
        damage = None if domain is None else self.damage(domain)
        size, kind = self.samples_count, self.flavour
        return SoundingShapes(self.split, size, kind, self.seed, damage, (modality,))

    def damage(self, domain: Domain) -> DomainDamage:
        """Return what a domain does here."""
        return DomainDamage(domain, self.seed)

    def source(self, count: int) -> "BuiltIn":
        """Return the first training samples."""
        return replace(self, samples_count=count, split="train")


@DATASETS.register(BUILT_IN)
def _built_in(options: DataOptions) -> BuiltIn:
    dataset = BuiltIn(options.samples or 1024, options.flavour, options.split, options.seed)
    dataset.samples("video", None)  # refuses an unknown split or flavour
    return dataset


@dataclass(frozen=True)
class Clips:
    """Clips on disk: Kinetics50, VGGSound or a user's own."""

    manifest: Manifest
    seed: int = 0
    frost_dir: Path | None = None
    noise_dir: Path | None = None
    skipped: tuple[tuple[str, str], ...] = ()  # (id, reason) of the clips that were left out
    training: Manifest | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Return what decides the samples; of the clips, the sounds and frames that are read."""
        files = [path for clip in self.manifest.clips for path in (clip.wav, clip.frame)]
        return {
            "name": self.manifest.name,
            "list": self.manifest.digest,
            "files": content_digest(self.manifest.root, files, keep=True),
            "samples": len(self.manifest.clips),
            "seed": self.seed,
            "frost": "grown" if self.frost_dir is None else _recorded(self.frost_dir),
            "noise": "synthesised" if self.noise_dir is None else _recorded(self.noise_dir),
            "version": CLIPS_VERSION,
        }

    def labels(self) -> list[int]:
        """Return the classes by their index in the label file."""
        return [clip.label for clip in self.manifest.clips]

    def samples(self, modality: str, domain: Domain | None) -> ClipDataset:
        """Return log-mels or frames of the clips."""
        damage = None if domain is None else self.damage(domain)
        return ClipDataset(self.manifest, damage, (modality,))

    def damage(self, domain: Domain) -> DomainDamage:
        """Return what a domain does here."""
        return DomainDamage(domain, self.seed, self.frost_dir, self.noise_dir)

    def source(self, count: int) -> "Clips":
        """Return training clips drawn by the seed, in the order of their list."""
        if self.training is None:
            raise OptionError(
                f"a method of this plan is fitted with {count} clean training clips of "
                f"{self.manifest.name}: name their list at the root by --source-split (train for "
                "train.json), or choose other --methods."
            )
        clips = self.training.clips
        drawn = numpy_generator(self.seed, "source clips").permutation(len(clips))
        kept = tuple(clips[place] for place in sorted(drawn[:count]))
        return replace(self, manifest=replace(self.training, clips=kept), skipped=(), training=None)


def _recorded(folder: Path) -> str:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a directory: give one of recordings or pictures.")
    files = sorted(path for path in folder.iterdir() if path.is_file())  # each may be used
    return f"recorded {content_digest(folder, files)}"


_hashes: dict[Path, dict[str, Any]] = {}  # by root and name of the file: size, time, hash


def content_digest(root: Path, paths: Sequence[Path], keep: bool = False) -> str:
    """Hash names and contents of files; one of the same size and time is not read again.

    With `keep`, their hashes are written to a file at the root, unless that is read-only.
    """
    known, kept, rows, new = _hashes.setdefault(root, {}), root / HASHES, [], False
    if keep and not known:
        with suppress(OSError, ValueError, TypeError):
            known |= json.loads(kept.read_text(encoding="utf-8"))
    for path in paths:
        name = os.path.relpath(path, root)
        try:
            state, old = [path.stat().st_size, path.stat().st_mtime_ns], known.get(name)
            if not (isinstance(old, list) and old[:2] == state and type(old[-1]) is str):
                known[name], new = [*state, file_digest(path)], True
        except OSError:  # whoever reads the clip will tell
            known[name] = ["", "", ""]
        rows.append((Path(name).as_posix(), known[name][-1]))
    if keep and new:
        with suppress(OSError), atomic_path(kept) as part:
            part.write_text(json.dumps(known), encoding="utf-8")
    return digest(rows)


@DATASETS.register("folder")
def _clips(options: DataOptions) -> Clips:
    root, skipped = options.root, []
    if root is None:
        raise OptionError(f"data set '{options.name}' needs its directory: give --root.")
    known = options.name if options.name in SPECS else None
    follow = options.follow_links
    manifest = open_manifest(root, known, options.split, follow_links=follow)
    if options.samples:
        manifest = manifest.first(options.samples)
    if options.on_bad == "skip":
        loader = Loader(ClipDataset(manifest), workers=cores(), on_bad="skip")
        deque(loader, maxlen=0)  # reads every clip
        skipped, bad = loader.skipped, {clip.id for clip in loader.skipped}
        kept = tuple(clip for clip in manifest.clips if clip.id not in bad)
        manifest = replace(manifest, clips=kept)
    training = _training(options, root) if options.source_split else None
    folders = (options.frost_dir, options.noise_dir)
    return Clips(manifest, options.seed, *folders, tuple(skipped), training)


for _name in SPECS:
    DATASETS.register(_name)(_clips)


def _training(options: DataOptions, root: Path) -> Manifest:
    """Return the list of training clips; its paths are relative to the root."""
    path = root / f"{options.source_split}.json"
    if not path.is_file():
        raise DataError(
            f"{path} does not exist: --source-split {options.source_split} names a list of "
            "training clips in READ's layout, with paths relative to the root; put it there."
        )
    labels = SPECS[options.name].label_file if options.name in SPECS else "labels.csv"
    links = options.follow_links
    return open_manifest(root, list_file=path, label_file=root / labels, follow_links=links)

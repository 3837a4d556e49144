"""What a run is made of: labelled samples, clean or of a domain, one modality at a time."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from dasp.core.errors import DataError, InputError, OptionError
from dasp.core.seeding import numpy_generator
from dasp.data import ClipDataset, Manifest, Sample, open_manifest
from dasp.data.parallel import run_jobs
from dasp.data.sets import SPECS
from dasp.data.shapes import SoundingShapes
from dasp.data.shapes.pool import VERSION
from dasp.streams.domains import Domain, DomainDamage

BUILT_IN = "sounding_shapes"
SOURCE_SAMPLES = 32


class Samples(Protocol):
    """A data set of one modality of one domain."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...


class Material(Protocol):
    """Samples of a data set under any domain."""

    @property
    def identity(self) -> dict[str, Any]:
        """Return all that decides the samples: it is hashed into keys and kept in results."""

    def labels(self) -> list[int]:
        """Return the label of each sample, in order."""

    def samples(self, modality: str, domain: Domain | None) -> Samples:
        """Return one modality of each sample; only its own domains damage it."""

    def damage(self, domain: Domain) -> DomainDamage:
        """Return what a domain does here."""

    def source(self, count: int = SOURCE_SAMPLES) -> "Material":
        """Return a few training samples, for methods that learn from clean data first."""


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
        shapes = self._set(None, ("video",))
        return [shapes.label(index) for index in range(len(shapes))]

    def samples(self, modality: str, domain: Domain | None) -> SoundingShapes:
        """Return frames or sounds, drawn when asked for."""
        return self._set(domain, (modality,))

    def damage(self, domain: Domain) -> DomainDamage:
        """Return what a domain does here."""
        return DomainDamage(domain, self.seed)

    def source(self, count: int = SOURCE_SAMPLES) -> "BuiltIn":
        """Return the first samples of the training split."""
        return replace(self, samples_count=count, split="train")

    def _set(self, domain: Domain | None, modalities: tuple[str, ...]) -> SoundingShapes:
        damage = None if domain is None else self.damage(domain)
        return SoundingShapes(
            self.split, self.samples_count, self.flavour, self.seed, damage, modalities
        )


@dataclass(frozen=True)
class Clips:
    """Clips on disk: Kinetics50, VGGSound or a user's own."""

    manifest: Manifest
    seed: int = 0
    frost_dir: Path | None = None
    noise_dir: Path | None = None
    skipped: tuple[tuple[str, str], ...] = ()  # (id, why) of clips left out
    training: Manifest | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Return what decides the samples."""
        return {
            "name": self.manifest.name,
            "list": self.manifest.digest,
            "samples": len(self.manifest.clips),
            "seed": self.seed,
            "frost": "grown" if self.frost_dir is None else "recorded",
            "noise": "synthesised" if self.noise_dir is None else "recorded",
        }

    def labels(self) -> list[int]:
        """Return the classes by index of the label file."""
        return [clip.label for clip in self.manifest.clips]

    def samples(self, modality: str, domain: Domain | None) -> ClipDataset:
        """Return log-mels or frames of the clips."""
        damage = None if domain is None else self.damage(domain)
        return ClipDataset(self.manifest, None, damage, (modality,))

    def damage(self, domain: Domain) -> DomainDamage:
        """Return what a domain does here."""
        return DomainDamage(domain, self.seed, self.frost_dir, self.noise_dir)

    def source(self, count: int = SOURCE_SAMPLES) -> "Clips":
        """Return training clips drawn by the seed, in the order of their list."""
        if self.training is None:
            raise OptionError(
                f"a method of this plan learns from {count} clean training clips of "
                f"{self.manifest.name} first: name their list at the root by --source-split "
                "(train for train.json), or choose other --methods."
            )
        clips = self.training.clips
        drawn = numpy_generator(self.seed, "source clips").permutation(len(clips))
        kept = tuple(clips[place] for place in sorted(drawn[:count]))
        return replace(self, manifest=replace(self.training, clips=kept), skipped=(), training=None)


@dataclass(frozen=True)
class DataOptions:
    """Which data a run uses."""

    name: str = BUILT_IN
    """sounding_shapes (built in), kinetics50, vggsound, or folder."""
    root: Path | None = None
    """Where clips on disk lie."""
    samples: int | None = None
    """How many samples of each domain; by default 1024 built-in ones, or all clips."""
    split: str = "test"
    """test or validation (built in), or the name of a list at the root."""
    flavour: str = "balanced"
    """Of the built-in set: balanced, or sound where the sound tells more."""
    seed: int = 0
    """Of the built-in samples and of every corruption."""
    frost_dir: Path | None = None
    """Folder of frost pictures; by default textures are grown."""
    noise_dir: Path | None = None
    """Folder of recordings; by default the sounds are synthesised."""
    on_bad: Literal["error", "skip"] = "error"
    """Whether a clip that cannot be read ends the run, or is left out and listed."""
    source_split: str | None = None
    """Name of a list of clean training clips, for methods that learn from some first."""

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise OptionError(f"samples of a domain are at least 1, not {self.samples}.")

    def open(self) -> BuiltIn | Clips:
        """Open the data."""
        if self.name == BUILT_IN:
            return BuiltIn(self.samples or 1024, self.flavour, self.split, self.seed)
        if self.root is None:
            raise OptionError(f"data '{self.name}' needs the folder it lies in: give --root.")
        dataset = None if self.name == "folder" else self.name
        manifest = open_manifest(self.root, dataset, self.split)
        if self.samples:
            manifest = manifest.first(self.samples)
        skipped: tuple[tuple[str, str], ...] = ()
        if self.on_bad == "skip":
            manifest, skipped = _readable(manifest)
        folders = (self.frost_dir, self.noise_dir)
        return Clips(manifest, self.seed, *folders, skipped, self._training(self.root))

    def _training(self, root: Path) -> Manifest | None:
        """Return the list of training clips; paths in it are its own, relative to the root."""
        if self.source_split is None:
            return None
        path = root / f"{self.source_split}.json"
        if not path.is_file():
            raise DataError(
                f"no file {path}: --source-split {self.source_split} names a list of training "
                "clips in READ's layout, with paths relative to the root; put it there."
            )
        labels = SPECS[self.name].label_file if self.name in SPECS else "labels.csv"
        return open_manifest(root, list_file=path, label_file=root / labels)


def _readable(manifest: Manifest) -> tuple[Manifest, tuple[tuple[str, str], ...]]:
    """Leave out the clips whose sound or frame cannot be read, and say why."""
    problems = list(run_jobs(partial(_problem, ClipDataset(manifest)), range(len(manifest.clips))))
    pairs = list(zip(manifest.clips, problems, strict=True))
    kept = tuple(clip for clip, problem in pairs if problem is None)
    skipped = tuple((clip.id, problem) for clip, problem in pairs if problem is not None)
    return replace(manifest, clips=kept), skipped


def _problem(clips: ClipDataset, index: int) -> str | None:
    try:
        clips[index]
    except (DataError, InputError) as error:
        return str(error)
    return None

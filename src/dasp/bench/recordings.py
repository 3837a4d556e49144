"""Data sets of recordings: `grid` (spoken words) and `dsa`, `dsa_units` (body-worn sensors)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dasp.bench.datasets import DATASETS, DataOptions, _recorded, content_digest
from dasp.bench.results import digest
from dasp.core.errors import OptionError, unknown_name
from dasp.core.seeding import numpy_generator
from dasp.core.sensors import BODY_UNITS, SENSORS
from dasp.data import grid, inertial
from dasp.streams.domains import Domain, DomainDamage

VERSION = 1  # raised when the same recordings are read as other numbers
FLAVOURS = ("balanced", "natural")


@dataclass(frozen=True)
class SpokenWords:
    """Words of the GRID corpus: audio (64, 128), video (15, 64, 64)."""

    clips: Sequence[grid.WordClip]
    training: Sequence[grid.WordClip]
    root: Path
    split: str
    flavour: str
    seed: int = 0
    frost_dir: Path | None = None
    noise_dir: Path | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Return what decides the samples."""
        spans = [(clip.id, clip.word, clip.centre) for clip in self.clips]
        return {
            "name": "grid",
            "split": self.split,
            "flavour": self.flavour,
            "list": digest(spans),
            "files": content_digest(self.root, [clip.path for clip in self.clips], keep=True),
            "samples": len(self.clips),
            "seed": self.seed,
            "frost": "grown" if self.frost_dir is None else _recorded(self.frost_dir),
            "noise": "synthesised" if self.noise_dir is None else _recorded(self.noise_dir),
            "version": VERSION,
        }

    def labels(self) -> list[int]:
        """Return the words by their index in `grid.WORDS`."""
        return [clip.label for clip in self.clips]

    def samples(self, modality: str, domain: Domain | None) -> grid.WordSamples:
        """Return log-mels or sequences of frames."""
        damage = None if domain is None else self.damage(domain)
        return grid.WordSamples(self.clips, modality, damage)

    def damage(self, domain: Domain) -> DomainDamage:
        """Return what a domain does here."""
        return DomainDamage(domain, self.seed, self.frost_dir, self.noise_dir)

    def source(self, count: int) -> "SpokenWords":
        """Return words of the training sentences."""
        clips = grid.ordered(self.training, balanced=True)[:count]
        return replace(self, clips=clips, split="train", flavour="balanced")


@DATASETS.register("grid")
def _grid(options: DataOptions) -> SpokenWords:
    root = _root(options)
    if options.flavour not in FLAVOURS:
        raise OptionError(unknown_name("flavour of grid", options.flavour, FLAVOURS))
    everything = grid.find_clips(root)
    chosen = grid.split_clips(everything, options.split)
    clips = grid.ordered(chosen, options.flavour == "balanced")[: options.samples]
    if not clips:
        raise OptionError(f"the split {options.split} of {root} has no clips: choose another.")
    return SpokenWords(
        clips,
        grid.split_clips(everything, "train"),
        root,
        options.split,
        options.flavour,
        options.seed,
        options.frost_dir,
        options.noise_dir,
    )


@dataclass(frozen=True)
class WornSensors:
    """Segments of body-worn sensors: (15, 125) by kind of sensor, or (9, 125) by body unit."""

    segments: Sequence[inertial.Segment]
    root: Path
    name: str
    people: tuple[str, ...]
    modalities: Sequence[str]
    seed: int = 0

    @property
    def identity(self) -> dict[str, Any]:
        """Return what decides the samples."""
        paths = [segment.path for segment in self.segments]
        return {
            "name": self.name,
            "people": "+".join(self.people),
            "list": digest([segment.id for segment in self.segments]),
            "files": content_digest(self.root, paths, keep=True),
            "samples": len(self.segments),
            "seed": self.seed,
            "version": VERSION,
        }

    def labels(self) -> list[int]:
        """Return the activities by their index in `inertial.ACTIVITIES`."""
        return [segment.label for segment in self.segments]

    def samples(self, modality: str, domain: Domain | None) -> inertial.InertialSamples:
        """Return the signals of one kind of sensor or of one unit."""
        if modality not in self.modalities:
            raise OptionError(unknown_name(f"sensor of {self.name}", modality, self.modalities))
        damage = None if domain is None else self.damage(domain)
        return inertial.InertialSamples(self.segments, modality, damage)

    def damage(self, domain: Domain) -> DomainDamage:
        """Return what a domain does here."""
        return DomainDamage(domain, self.seed)

    def source(self, count: int) -> "WornSensors":
        """Return segments of the people of the split "train" who are not in this one."""
        people = tuple(p for p in inertial.people_of("train") if p not in self.people)
        if not people:
            raise OptionError(
                f"the split {'+'.join(self.people)} leaves no training person to fit a method "
                "with: choose another split."
            )
        segments = inertial.find_segments(self.root, people)
        drawn = numpy_generator(self.seed, "source segments").permutation(len(segments))
        kept = [segments[place] for place in sorted(drawn[:count].tolist())]
        return replace(self, segments=kept, people=people)


@DATASETS.register("dsa")
def _by_sensor(options: DataOptions) -> WornSensors:
    return _body(options, tuple(SENSORS))


@DATASETS.register("dsa_units")
def _by_unit(options: DataOptions) -> WornSensors:
    return _body(options, BODY_UNITS)


def _body(options: DataOptions, modalities: Sequence[str]) -> WornSensors:
    root, people = _root(options), inertial.people_of(options.split)
    segments = inertial.find_segments(root, people)[: options.samples]
    return WornSensors(segments, root, options.name, people, modalities, options.seed)


def _root(options: DataOptions) -> Path:
    if options.root is None:
        raise OptionError(
            f"data set '{options.name}' needs its directory: give --root; "
            f"`dasp data fetch {options.name.partition('_')[0]}` says where to get it."
        )
    return options.root

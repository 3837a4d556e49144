"""Protocols: the domains a stream visits, their order, and where the method is reset.

The domains of a protocol are fixed lists of the published corruptions: registering a corruption
does not change them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, repeat

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import OptionError, unknown_name
from dasp.corruptions import names
from dasp.streams.domains import Domain

MISSING, CONSTANT = "missing", "constant"
ORDERS = ("shuffled", "dirichlet", "sorted")
CONCENTRATION = 0.1  # of the Dirichlet: most samples of a class fall into one or two batches
RECURRENCES = 20
LONG = 100_000  # samples

# The published corruptions per modality, in the order of the papers.
PUBLISHED = {
    "video": (
        "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur",
        "motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast",
        "elastic_transform", "pixelate", "jpeg_compression",
    ),
    "audio": ("gaussian_noise", "traffic", "crowd", "rain", "thunder", "wind"),
    "depth": ("speckle", "dropout", "fog", "multipath", "quantisation", "dead_rows"),
}  # fmt: skip
# The paper's order of alternating corruptions: "v" of video, "a" of audio.
_INTERLEAVED = (
    "v gaussian_noise, v shot_noise, a gaussian_noise, v impulse_noise, v defocus_blur, a traffic, "
    "v glass_blur, v motion_blur, a crowd, v zoom_blur, v snow, v frost, a rain, v fog, "
    "v brightness, a thunder, v contrast, v elastic_transform, a wind, v pixelate, "
    "v jpeg_compression"
)
# The same with a third sensor: a corruption of depth ("d") after every three or four.
_INTERLEAVED_DEPTH = (
    "v gaussian_noise, v shot_noise, a gaussian_noise, d speckle, v impulse_noise, "
    "v defocus_blur, a traffic, d dropout, v glass_blur, v motion_blur, a crowd, v zoom_blur, "
    "d fog, v snow, v frost, a rain, d multipath, v fog, v brightness, a thunder, v contrast, "
    "d quantisation, v elastic_transform, a wind, v pixelate, d dead_rows, v jpeg_compression"
)
# Outdoor corruptions whose severity rises and falls.
_GRADUAL = "v fog, a rain, v motion_blur, a traffic"
_LETTERS = {"v": "video", "a": "audio", "d": "depth"}

PROTOCOLS = (
    "per_domain/video", "per_domain/audio", "continual/video", "continual/audio", "interleaved",
    "clean", "pairs", "mixed", "dirichlet", "sorted", "stretches", "gradual",
    "missing/audio", "missing/video", "constant/audio", "constant/video", "recurring", "long",
    "per_domain/depth", "continual/depth", "interleaved/depth",
)  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """The state of the sensors while a sample is taken; sensors not named are clean.

    >>> fog = Domain("video", "fog", 5)
    >>> Condition((fog, Domain("audio", "rain", 5))).name
    'video/fog/5+audio/rain/5'
    >>> Condition((fog,), missing=("audio",)).name
    'video/fog/5+audio/missing'
    """

    domains: tuple[Domain, ...] = ()
    """Corruptions, at most one domain per modality."""
    missing: tuple[str, ...] = ()
    """Modalities that are absent from the inputs."""
    constant: tuple[str, ...] = ()
    """Modalities that are all zeros."""

    @property
    def name(self) -> str:
        """Return the name used in results: "clean", or all faults joined by "+"."""
        words = [str(domain) for domain in self.domains]
        for silence, modalities in ((MISSING, self.missing), (CONSTANT, self.constant)):
            words += [f"{modality}/{silence}" for modality in modalities]
        return "+".join(words) or "clean"

    def domain(self, modality: str) -> Domain | None:
        """Return the domain that corrupts this modality, or None."""
        return next((d for d in self.domains if d.modality == modality), None)


CLEAN = Condition()


@dataclass(frozen=True)
class Visit:
    """One stop of a stream: each sample of the data set occurs once under each condition."""

    conditions: Sequence[Condition]
    """One; or several, whose samples are mixed in a batch (all with the same inputs)."""
    reset: bool
    """Whether the method is reset before it."""
    order: str = "shuffled"
    """The order of the samples, see `sample_order`."""
    number: int = 0
    """The number of earlier visits of the stream with this name."""

    @property
    def name(self) -> str:
        """Return the name used in results: "video/fog/5", "clean", or "mixed"."""
        return self.conditions[0].name if len(self.conditions) == 1 else "mixed"

    @property
    def purpose(self) -> tuple[str, ...]:
        """Return what seeds the order of samples: each visit has its own."""
        return (self.name, str(self.number)) if self.number else (self.name,)

    def batches(self, samples: int, batch_size: int) -> int:
        """Return the number of batches that a data set of `samples` samples gives here."""
        return -(-len(self.conditions) * samples // batch_size)


def visits(
    protocol: str, severity: int, corruptions: Sequence[str] = (), samples: int = 1
) -> Iterator[Visit]:
    """Return the visits of a protocol in order; `corruptions` keeps only those named.

    per_domain: reset at each domain (the paper's "episodic"); no other protocol is ever reset.
    continual: the domains of one modality. interleaved: the paper's order of 21 domains, on which
    those below are built. interleaved/depth: with the six domains of depth. clean: no corruption.
    pairs: both modalities corrupted at once. mixed: samples of all domains, and clean ones, in
    each batch. dirichlet, sorted: classes come in bursts, or one after another. stretches: clean
    data before each domain. gradual: severity rises from 1 to `severity` and falls again. missing,
    constant: in every other domain one modality is absent, or all zeros. recurring: the order 20
    times. long: repeated up to 100,000 samples, with `samples` per domain.

    The domains are the published ones. For per_domain and continual, `corruptions` may also name
    a registered corruption of your own.

    >>> [visit.name for visit in visits("continual/audio", 5)][:2]
    ['audio/gaussian_noise/5', 'audio/traffic/5']
    """
    if protocol not in PROTOCOLS:
        raise OptionError(unknown_name("protocol", protocol, PROTOCOLS))
    kind, _, modality = protocol.partition("/")
    order = _conditions(kind, modality, severity)
    if kind in ("per_domain", "continual"):
        own = [n for n in names(modality) if n in corruptions and n not in PUBLISHED[modality]]
        order += [Condition((Domain(modality, name, severity),)) for name in own]
    known = {domain.corruption for condition in order for domain in condition.domains}
    for name in corruptions if known else ():
        if name not in known:
            raise OptionError(unknown_name(f"corruption of {protocol}", name, known))
    kept = [c for c in order if not (corruptions and known) or _names(c) & set(corruptions)]
    stops = _stops(kind, modality, kept, samples)
    return _visits(stops, kind if kind in ORDERS else "shuffled", kind == "per_domain")


def resets_once(protocol: str) -> bool:
    """Return whether a stream is never reset after its start, so that forgetting is possible."""
    return not protocol.startswith("per_domain/")


def sensors(protocol: str) -> set[str]:
    """Return the modalities that a protocol corrupts or removes; a model must have them all.

    >>> sorted(sensors("missing/audio"))
    ['audio', 'video']
    """
    kind, _, modality = protocol.partition("/")
    conditions = _conditions(kind, modality, severity=1)
    damaged = {domain.modality for condition in conditions for domain in condition.domains}
    return damaged | ({modality} if modality else set())


def _conditions(kind: str, modality: str, severity: int) -> list[Condition]:
    """Return the conditions of a protocol."""
    if kind == "clean":
        return [CLEAN]
    if kind in ("per_domain", "continual"):
        return [Condition((Domain(modality, name, severity),)) for name in PUBLISHED[modality]]
    if kind == "pairs":  # the few sounds are repeated
        pairs = zip(PUBLISHED["video"], cycle(PUBLISHED["audio"]), strict=False)
        return [
            Condition((Domain("video", frame, severity), Domain("audio", sound, severity)))
            for frame, sound in pairs
        ]
    if kind == "gradual":
        degrees = [*range(1, severity), *range(severity, 0, -1)]
        return [
            c for name in _GRADUAL.split(", ") for degree in degrees for c in _listed(name, degree)
        ]
    return _listed(_INTERLEAVED_DEPTH if modality == "depth" else _INTERLEAVED, severity)


def _listed(steps: str, severity: int) -> list[Condition]:
    pairs = [tuple(step.split()) for step in steps.split(", ")]
    return [Condition((Domain(_LETTERS[letter], name, severity),)) for letter, name in pairs]


def _names(condition: Condition) -> set[str]:
    return {domain.corruption for domain in condition.domains}


def _stops(
    kind: str, modality: str, order: list[Condition], samples: int
) -> Iterable[Sequence[Condition]]:
    """Return the conditions of each visit."""
    if kind == "mixed":
        return [(CLEAN, *order)]
    if kind == "stretches":
        order = [stop for condition in order for stop in (CLEAN, condition)]
    if kind in (MISSING, CONSTANT):
        order[1::2] = [_silenced(condition, kind, modality) for condition in order[1::2]]
    times = {"recurring": RECURRENCES, "long": -(-LONG // (len(order) * samples))}.get(kind, 1)
    return ((condition,) for condition in chain.from_iterable(repeat(order, times)))


def _silenced(condition: Condition, kind: str, modality: str) -> Condition:
    """Return a condition without this modality, and so without any corruption of it."""
    others = tuple(domain for domain in condition.domains if domain.modality != modality)
    return replace(condition, domains=others, **{kind: (modality,)})


def _visits(stops: Iterable[Sequence[Condition]], order: str, per_domain: bool) -> Iterator[Visit]:
    before: Counter[str] = Counter()
    for place, conditions in enumerate(stops):
        visit = Visit(conditions, reset=place == 0 or per_domain, order=order)
        yield replace(visit, number=before[visit.name])
        before[visit.name] += 1


def sample_order(
    order: str, labels: NDArray[np.int64], batch_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return a permutation (n,) of the samples whose labels (n,) are given.

    shuffled: uniformly at random. dirichlet: each class in bursts, its samples distributed over
    the batches by shares drawn from a Dirichlet(0.1). sorted: one class after another.

    >>> labels = np.array([1, 0, 1, 0])
    >>> labels[sample_order("sorted", labels, 2, np.random.default_rng(0))].tolist()
    [0, 0, 1, 1]
    """
    count = len(labels)
    if order == "shuffled":
        return rng.permutation(count)
    place = labels
    if order == "dirichlet":
        slots = max(1, count // batch_size)
        shares = rng.dirichlet([CONCENTRATION] * slots, size=int(labels.max()) + 1)
        ends = shares.cumsum(axis=1)[labels]
        place = np.minimum((rng.random((count, 1)) >= ends).sum(axis=1), slots - 1)
    return np.lexsort((rng.random(count), place))

"""Protocols: the domains a stream visits, their order, and where the method is reset.

The domains of a protocol are fixed lists of the published corruptions: registering a corruption
does not change them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, repeat

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import OptionError, unknown_name
from dasp.core.seeding import numpy_generator
from dasp.corruptions import names
from dasp.streams import worn
from dasp.streams.domains import Domain

ORDERS = ("shuffled", "dirichlet", "sorted")
CONCENTRATION = 0.1  # of the Dirichlet: most samples of a class fall into one or two batches
RECURRENCES = 20
LONG = 100_000  # samples

# The paper's order of alternating corruptions, and between them those of a third sensor.
_STEPS = (
    "video gaussian_noise, video shot_noise, audio gaussian_noise, depth speckle, "
    "video impulse_noise, video defocus_blur, audio traffic, depth dropout, video glass_blur, "
    "video motion_blur, audio crowd, video zoom_blur, depth fog, video snow, video frost, "
    "audio rain, depth multipath, video fog, video brightness, audio thunder, video contrast, "
    "depth quantisation, video elastic_transform, audio wind, video pixelate, depth dead_rows, "
    "video jpeg_compression"
)
_INTERLEAVED = [(m, name) for m, _, name in (s.partition(" ") for s in _STEPS.split(", "))]
# The published corruptions per modality, in the order of the papers.
PUBLISHED = {
    modality: tuple(name for m, name in _INTERLEAVED if m == modality)
    for modality in ("video", "audio", "depth")
}
# Outdoor corruptions whose severity rises and falls.
_GRADUAL = (("video", "fog"), ("audio", "rain"), ("video", "motion_blur"), ("audio", "traffic"))

PROTOCOLS = (
    "per_domain/video", "per_domain/audio", "continual/video", "continual/audio", "interleaved",
    "clean", "pairs", "mixed", "dirichlet", "sorted", "stretches", "gradual", "once", "once_mixed",
    "missing/audio", "missing/video", "constant/audio", "constant/video", "recurring", "long",
    "per_domain/depth", "continual/depth", "interleaved/depth", *worn.PROTOCOLS,
)  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """The state of the sensors while a sample is taken; sensors not named are clean.

    >>> Condition((Domain("video", "fog", 5),), missing=("audio",)).name
    'video/fog/5+audio/missing'
    """

    domains: tuple[Domain, ...] = ()  # at most one per modality
    missing: tuple[str, ...] = ()  # modalities that are absent from the inputs
    constant: tuple[str, ...] = ()  # modalities that are all zeros

    @property
    def name(self) -> str:
        """Return the name used in results: "clean", or all faults joined by "+"."""
        words = [str(domain) for domain in self.domains]
        words += [f"{modality}/missing" for modality in self.missing]
        words += [f"{modality}/constant" for modality in self.constant]
        return "+".join(words) or "clean"

    def domain(self, modality: str) -> Domain | None:
        """Return the domain that corrupts this modality, or None."""
        return next((d for d in self.domains if d.modality == modality), None)


CLEAN = Condition()


@dataclass(frozen=True)
class Visit:
    """One stop of a stream: each sample of the data set occurs once under each condition.

    With `shares`, a condition has only its share of the samples, and the shares of all conditions
    of the stream together are the data set.
    """

    conditions: Sequence[Condition]  # one; or several, whose samples are mixed in a batch
    reset: bool  # whether the method is reset before it
    order: str = "shuffled"  # of the samples, see `sample_order`
    number: int = 0  # of earlier visits of the stream with this name
    shares: int = 0  # into which the samples are dealt; 0: each condition has all samples
    first_share: int = 0  # that of the first condition; the others have the following ones

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
        here = sum(len(range(samples)[own]) for own in self._dealt())
        return -(-here // batch_size)

    def numbers(self, samples: int, seed: int) -> NDArray[np.int64]:
        """Return the samples that occur here, sorted: k·n + i is sample i of n, condition k.

        The dealing depends on the seed alone: it is the same for every method and batch size.
        """
        order = np.arange(samples)
        if self.shares:
            order = numpy_generator(seed, "shares").permutation(samples)
        dealt = [k * samples + order[own] for k, own in enumerate(self._dealt())]
        return np.sort(np.concatenate(dealt))

    def _dealt(self) -> list[slice]:
        """Return where each condition's samples are in the order of dealing: sizes are even."""
        if not self.shares:
            return [slice(None)] * len(self.conditions)
        firsts = range(self.first_share, self.first_share + len(self.conditions))
        return [slice(first, None, self.shares) for first in firsts]


def visits(
    protocol: str, severity: int, corruptions: Sequence[str] = (), samples: int = 1
) -> Iterator[Visit]:
    """Return the visits of a protocol in order; `corruptions` keeps only those named.

    docs/benchmark.md describes each protocol; only per_domain (the paper's "episodic") is ever
    reset. The domains are the published ones; for per_domain and continual, `corruptions` may also
    name a registered corruption of your own. long has `samples` per domain, 100,000 in all.

    >>> [visit.name for visit in visits("continual/audio", 5)][:2]
    ['audio/gaussian_noise/5', 'audio/traffic/5']
    """
    if protocol not in PROTOCOLS:
        raise OptionError(unknown_name("protocol", protocol, PROTOCOLS))
    kind, _, modality = protocol.partition("/")
    order = _conditions(kind, modality, severity, corruptions)
    known = {domain.corruption for condition in order for domain in condition.domains}
    if known and corruptions:
        for name in corruptions:
            if name not in known:
                raise OptionError(unknown_name(f"corruption of {protocol}", name, known))
        order = [c for c in order if any(d.corruption in corruptions for d in c.domains)]
    return _visits(kind, modality, order, samples)


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
    return damaged | ({modality} - worn.GROUPS.keys() if modality else set())


def _conditions(
    kind: str, modality: str, severity: int, corruptions: Sequence[str] = ()
) -> list[Condition]:
    """Return the conditions of a protocol, with a user's own corruptions only if named."""
    if kind == "clean":
        return [CLEAN]
    if kind not in ("per_domain", "continual") and f"{kind}/{modality}" in worn.PROTOCOLS:
        return [
            Condition(tuple(Domain(*step, severity) for step in together))
            for together in worn.steps(kind, modality)
        ]
    if kind == "pairs":  # the few sounds are repeated
        sounds = cycle(Domain("audio", name, severity) for name in PUBLISHED["audio"])
        frames = (Domain("video", name, severity) for name in PUBLISHED["video"])
        return [Condition(pair) for pair in zip(frames, sounds, strict=False)]
    if kind == "gradual":
        degrees = [*range(1, severity), *range(severity, 0, -1)]
        steps = [(m, name, degree) for m, name in _GRADUAL for degree in degrees]
    elif kind in ("per_domain", "continual"):
        published = PUBLISHED.get(modality, worn.CORRUPTIONS)
        own = [n for n in names(modality) if n in corruptions and n not in published]
        steps = [(modality, name, severity) for name in (*published, *own)]
    else:
        steps = [(m, n, severity) for m, n in _INTERLEAVED if m != "depth" or modality == "depth"]
    return [Condition((Domain(*step),)) for step in steps]


def _visits(kind: str, modality: str, order: list[Condition], samples: int) -> Iterator[Visit]:
    stops: list[tuple[Condition, ...]] = [(condition,) for condition in order]
    if kind in ("mixed", "once_mixed"):
        stops = [(CLEAN, *order)]
    elif kind == "stretches":
        stops = [stop for condition in order for stop in ((CLEAN,), (condition,))]
    elif kind in ("missing", "constant"):  # a silent modality cannot be corrupted
        for place, condition in list(enumerate(order))[1::2]:
            others = tuple(d for d in condition.domains if d.modality != modality)
            stops[place] = (replace(condition, domains=others, **{kind: (modality,)}),)
    times = {"recurring": RECURRENCES, "long": -(-LONG // (len(order) * samples))}.get(kind, 1)
    order_kind = kind if kind in ORDERS else "shuffled"
    shares = sum(map(len, stops)) if kind in ("once", "once_mixed") else 0
    before: Counter[str] = Counter()
    for place, conditions in enumerate(chain.from_iterable(repeat(stops, times))):
        visit = Visit(conditions, place == 0 or kind == "per_domain", order_kind, shares=shares)
        yield replace(visit, number=before[visit.name], first_share=place if shares else 0)
        before[visit.name] += 1


def sample_order(
    order: str, labels: NDArray[np.int64], batch_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return a permutation (n,) of the samples whose labels (n,) are given.

    dirichlet: the samples of a class fall into batches by shares drawn from a Dirichlet(0.1).
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

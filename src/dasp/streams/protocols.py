"""Protocols: which domains a stream visits, in which order, and where the method starts over."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, repeat

from dasp.core.errors import OptionError, unknown_name
from dasp.corruptions import names
from dasp.streams.domains import Domain
from dasp.streams.orders import ORDERS
from dasp.streams.visits import CLEAN, CONSTANT, MISSING, Condition, Visit

# The paper's order for alternating damage: "v" a corruption of video, "a" one of audio.
_INTERLEAVED = (
    "v gaussian_noise, v shot_noise, a gaussian_noise, v impulse_noise, v defocus_blur, a traffic, "
    "v glass_blur, v motion_blur, a crowd, v zoom_blur, v snow, v frost, a rain, v fog, "
    "v brightness, a thunder, v contrast, v elastic_transform, a wind, v pixelate, "
    "v jpeg_compression"
)
# The same with a third sensor: a corruption of depth ("d") after each three or four.
_INTERLEAVED_DEPTH = (
    "v gaussian_noise, v shot_noise, a gaussian_noise, d speckle, v impulse_noise, "
    "v defocus_blur, a traffic, d dropout, v glass_blur, v motion_blur, a crowd, v zoom_blur, "
    "d fog, v snow, v frost, a rain, d multipath, v fog, v brightness, a thunder, v contrast, "
    "d quantisation, v elastic_transform, a wind, v pixelate, d dead_rows, v jpeg_compression"
)
# Damage that comes and goes by degrees outdoors.
_GRADUAL = "v fog, a rain, v motion_blur, a traffic"
_LETTERS = {"v": "video", "a": "audio", "d": "depth"}
RECURRENCES = 20
LONG = 100_000  # samples

PROTOCOLS = (
    "per_domain/video",
    "per_domain/audio",
    "continual/video",
    "continual/audio",
    "interleaved",
    "clean",
    "pairs",
    "mixed",
    "dirichlet",
    "sorted",
    "stretches",
    "gradual",
    "missing/audio",
    "missing/video",
    "constant/audio",
    "constant/video",
    "recurring",
    "long",
    "per_domain/depth",
    "continual/depth",
    "interleaved/depth",
)


def visits(
    protocol: str, severity: int, corruptions: Sequence[str] = (), samples: int = 1
) -> Iterator[Visit]:
    """Give the visits of a protocol in order; `corruptions` keeps only those named.

    per_domain: reset at each domain (the paper's "episodic"); no other is ever reset.
    continual: the domains of one modality. interleaved: the paper's order of 21 domains; all
    below follow it. interleaved/depth: the six of depth among them. clean: no damage at all.
    pairs: both modalities damaged at once. mixed: samples of all domains, and clean ones, side by
    side. dirichlet, sorted: classes come in bursts, or one after another. stretches: clean data
    before each domain. gradual: severity climbs from 1 to `severity` and falls again. missing,
    constant: in every other domain one modality sends nothing, or zeros. recurring: the order 20
    times. long: as often as 100,000 samples take, `samples` a domain.

    >>> [visit.name for visit in visits("continual/audio", 5)][:2]
    ['audio/gaussian_noise/5', 'audio/traffic/5']
    """
    if protocol not in PROTOCOLS:
        raise OptionError(unknown_name("protocol", protocol, PROTOCOLS))
    kind, _, modality = protocol.partition("/")
    order = _conditions(kind, modality, severity)
    known = {domain.corruption for condition in order for domain in condition.domains}
    for name in corruptions if known else ():
        if name not in known:
            raise OptionError(unknown_name(f"corruption of {protocol}", name, known))
    kept = [c for c in order if not (corruptions and known) or _names(c) & set(corruptions)]
    stops = _stops(kind, modality, kept, samples)
    return _visits(stops, kind if kind in ORDERS else "shuffled", kind == "per_domain")


def resets_once(protocol: str) -> bool:
    """Tell whether a stream runs on from domain to domain, so that something can be forgotten."""
    return not protocol.startswith("per_domain/")


def sensors(protocol: str) -> set[str]:
    """Return the modalities that a protocol damages or silences: a model must take them all.

    >>> sorted(sensors("missing/audio"))
    ['audio', 'video']
    """
    kind, _, modality = protocol.partition("/")
    conditions = _conditions(kind, modality, severity=1)
    damaged = {domain.modality for condition in conditions for domain in condition.domains}
    return damaged | ({modality} if modality else set())


def _conditions(kind: str, modality: str, severity: int) -> list[Condition]:
    """Return the conditions that a protocol is made of."""
    if kind == "clean":
        return [CLEAN]
    if kind in ("per_domain", "continual"):
        return [Condition((Domain(modality, name, severity),)) for name in names(modality)]
    if kind == "pairs":  # the few sounds go round
        pairs = zip(names("video"), cycle(names("audio")), strict=False)
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
    """Give the conditions of each visit."""
    if kind == "mixed":
        return [(CLEAN, *order)]
    if kind == "stretches":
        order = [stop for condition in order for stop in (CLEAN, condition)]
    if kind in (MISSING, CONSTANT):
        order[1::2] = [_silenced(condition, kind, modality) for condition in order[1::2]]
    times = {"recurring": RECURRENCES, "long": -(-LONG // (len(order) * samples))}.get(kind, 1)
    return ((condition,) for condition in chain.from_iterable(repeat(order, times)))


def _silenced(condition: Condition, kind: str, modality: str) -> Condition:
    """Return a condition in which a modality says nothing, so that no damage to it is heard."""
    others = tuple(domain for domain in condition.domains if domain.modality != modality)
    return replace(condition, domains=others, **{kind: (modality,)})


def _visits(stops: Iterable[Sequence[Condition]], order: str, per_domain: bool) -> Iterator[Visit]:
    before: Counter[str] = Counter()
    for place, conditions in enumerate(stops):
        visit = Visit(conditions, reset=place == 0 or per_domain, order=order)
        yield replace(visit, number=before[visit.name])
        before[visit.name] += 1

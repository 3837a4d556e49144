"""Protocols: which domains a stream visits, in which order, and where the method starts over."""

from collections.abc import Sequence
from dataclasses import dataclass

from dasp.core.errors import OptionError, unknown_name
from dasp.corruptions import names
from dasp.streams.domains import Domain

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
_LETTERS = {"v": "video", "a": "audio", "d": "depth"}

PROTOCOLS = (
    "per_domain/video",
    "per_domain/audio",
    "continual/video",
    "continual/audio",
    "interleaved",
    "clean",
    "per_domain/depth",
    "continual/depth",
    "interleaved/depth",
)


@dataclass(frozen=True)
class Visit:
    """One domain of a stream (None: clean data), and whether the method starts over before it."""

    domain: Domain | None
    reset: bool

    @property
    def name(self) -> str:
        """Return the name used in results: "video/fog/5", or "clean"."""
        return "clean" if self.domain is None else str(self.domain)


def visits(protocol: str, severity: int, corruptions: Sequence[str] = ()) -> list[Visit]:
    """Return the domains of a protocol in order; `corruptions` keeps only those named.

    per_domain: reset at each domain (the paper's "episodic"). continual: never reset.
    interleaved: the paper's order of 21 domains, never reset; interleaved/depth has the six of
    depth among them. clean: no damage at all.

    >>> [visit.name for visit in visits("continual/audio", 5)][:2]
    ['audio/gaussian_noise/5', 'audio/traffic/5']
    """
    if protocol not in PROTOCOLS:
        raise OptionError(unknown_name("protocol", protocol, PROTOCOLS))
    if protocol == "clean":
        return [Visit(None, reset=True)]
    kind, _, modality = protocol.partition("/")
    if kind == "interleaved":
        steps = _INTERLEAVED_DEPTH if modality else _INTERLEAVED
        pairs = [tuple(step.split()) for step in steps.split(", ")]
        order = [Domain(_LETTERS[letter], name, severity) for letter, name in pairs]
    else:
        order = [Domain(modality, name, severity) for name in names(modality)]
    known = {domain.corruption for domain in order}
    for name in corruptions:
        if name not in known:
            raise OptionError(unknown_name(f"corruption of {protocol}", name, known))
    kept = [domain for domain in order if not corruptions or domain.corruption in corruptions]
    return [
        Visit(domain, reset=place == 0 or kind == "per_domain") for place, domain in enumerate(kept)
    ]


def resets_once(protocol: str) -> bool:
    """Tell whether a stream runs on from domain to domain, so that something can be forgotten."""
    return not protocol.startswith("per_domain/")

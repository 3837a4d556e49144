"""The 36 classes, and the difficulty of each flavour of the set."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from dasp.core.errors import OptionError, unknown_name

OUTLINES = ("disk", "square", "triangle", "star", "cross", "ring", "crescent", "hourglass")
TEXTURES = ("plain", "stripes", "checks", "dots", "rings")
TIMBRES = ("flute", "buzz", "reed", "bell", "hiss", "voice")
PATTERNS = ("steady", "pluck", "pulses", "rise", "fall", "trill")
RELIEFS = ("flat", "dome", "bowl", "ridge", "wedge")

VERSION = 2  # of the generator; part of the keys of results and of stored features
CLASSES = 36
FRAMES = 64  # of the log-mel picture of 1.28 s
SENSORS = ("audio", "video", "depth")
SPLITS = ("train", "validation", "test")
# Pairs that are not classes, as the texture is hard to see inside the outline.
_LEFT_OUT = {("ring", "rings"), ("ring", "dots"), ("crescent", "rings"), ("hourglass", "dots")}


class Kind(NamedTuple):
    """What is seen (outline, texture, hue), measured (outline, relief) and heard of a class."""

    outline: str
    texture: str
    hue: float
    relief: str
    timbre: str
    pattern: str


def _kinds() -> Iterator[Kind]:
    looks = [look for look in product(OUTLINES, TEXTURES) if look not in _LEFT_OUT]
    events = list(product(TIMBRES, PATTERNS))
    for number, (outline, texture) in enumerate(looks):
        place = OUTLINES.index(outline)
        # The hue depends on the outline, so that only the fine texture separates similar classes.
        hue = place * 3 % 8 / 8
        # Each outline pairs reliefs and textures differently: no relief implies a texture.
        relief = RELIEFS[(place + TEXTURES.index(texture)) % len(RELIEFS)]
        # A stride coprime to the number of classes spreads each timbre over all outlines.
        yield Kind(outline, texture, hue, relief, *events[number * 11 % CLASSES])


KINDS = tuple(_kinds())
NAMES = tuple(f"{kind.texture} {kind.outline}, {kind.timbre} {kind.pattern}" for kind in KINDS)


@dataclass(frozen=True)
class Flavour:
    """The difficulty of a set: the ranges that each sample draws from."""

    radius: tuple[float, float]  # pixels
    contrast: tuple[float, float]  # of the object against its surroundings, 1 is full
    grain: tuple[float, float]  # of the sensor: standard deviation in grey levels
    snr: tuple[float, float]  # of the event in the room's noise, decibels
    bad: float  # share of samples in which one modality is absent or dubbed


FLAVOURS = {
    "balanced": Flavour(radius=(12, 20), contrast=(0.5, 1.0), grain=(3, 10), snr=(-9, 3), bad=0.2),
    "sound": Flavour(radius=(10, 16), contrast=(0.35, 0.85), grain=(3, 10), snr=(-5, 7), bad=0.2),
}


def flavour_named(name: str) -> Flavour:
    """Return a flavour by name; "_easy" adds a quiet room and no bad modality."""
    easy = {f"{plain}_easy": replace(f, snr=(10.0, 28.0), bad=0.0) for plain, f in FLAVOURS.items()}
    known = FLAVOURS | easy
    if name not in known:
        raise OptionError(unknown_name("flavour", name, known))
    return known[name]

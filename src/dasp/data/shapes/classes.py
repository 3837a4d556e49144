"""The 36 classes: appearance, sound and form of each, and the difficulty of each flavour."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from dasp.core.errors import OptionError, unknown_name

OUTLINES = ("disk", "square", "triangle", "star", "cross", "ring", "crescent", "hourglass")
TEXTURES = ("plain", "stripes", "checks", "dots", "rings")
TIMBRES = ("flute", "buzz", "reed", "bell", "hiss", "voice")
PATTERNS = ("steady", "pluck", "pulses", "rise", "fall", "trill")
RELIEFS = ("flat", "dome", "bowl", "ridge", "wedge")

CLASSES = 36
# Pairs that are not classes, as the texture is hard to see inside the outline.
_LEFT_OUT = {("ring", "rings"), ("ring", "dots"), ("crescent", "rings"), ("hourglass", "dots")}


class Appearance(NamedTuple):
    """What is seen of a class; the `hue` (0–1) is shared by all classes with this outline."""

    outline: str
    texture: str
    hue: float


class Voice(NamedTuple):
    """What is heard of a class."""

    timbre: str
    pattern: str


class Form(NamedTuple):
    """What a depth sensor measures of a class."""

    outline: str
    relief: str


# The hue depends on the outline, so that only the fine texture separates similar classes.
APPEARANCES = tuple(
    Appearance(outline, texture, place * 3 % 8 / 8)
    for place, outline in enumerate(OUTLINES)
    for texture in TEXTURES
    if (outline, texture) not in _LEFT_OUT
)
# A stride coprime to the number of classes spreads each timbre over all outlines.
_EVENTS = [Voice(timbre, pattern) for timbre in TIMBRES for pattern in PATTERNS]
VOICES = tuple(_EVENTS[i * 11 % CLASSES] for i in range(CLASSES))
# Each outline pairs reliefs and textures differently, so that no relief implies a texture.
FORMS = tuple(
    Form(outline, RELIEFS[(OUTLINES.index(outline) + TEXTURES.index(texture)) % len(RELIEFS)])
    for outline, texture, _ in APPEARANCES
)
NAMES = tuple(
    f"{look.texture} {look.outline}, {voice.timbre} {voice.pattern}"
    for look, voice in zip(APPEARANCES, VOICES, strict=True)
)


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
    """Return a flavour by name: "balanced" or "sound", optionally with the suffix "_easy".

    Training starts with the easy ones: a quiet room and no bad modality.
    """
    easy = {f"{plain}_easy": replace(f, snr=(10.0, 28.0), bad=0.0) for plain, f in FLAVOURS.items()}
    known = FLAVOURS | easy
    if name not in known:
        raise OptionError(unknown_name("flavour", name, known))
    return known[name]

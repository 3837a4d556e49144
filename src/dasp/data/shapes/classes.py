"""The 36 classes: appearance, sound and form of each, and the difficulty of each flavour."""

from dataclasses import dataclass, replace

from dasp.core.errors import OptionError, unknown_name

OUTLINES = ("disk", "square", "triangle", "star", "cross", "ring", "crescent", "hourglass")
TEXTURES = ("plain", "stripes", "checks", "dots", "rings")
TIMBRES = ("flute", "buzz", "reed", "bell", "hiss", "voice")
PATTERNS = ("steady", "pluck", "pulses", "rise", "fall", "trill")
RELIEFS = ("flat", "dome", "bowl", "ridge", "wedge")

CLASSES = 36
# Pairs that are not classes, as the texture is hard to see inside the outline.
_LEFT_OUT = {("ring", "rings"), ("ring", "dots"), ("crescent", "rings"), ("hourglass", "dots")}


@dataclass(frozen=True)
class Appearance:
    """What is seen of a class; the `hue` (0–1) is shared by all classes with this outline."""

    outline: str
    texture: str
    hue: float


@dataclass(frozen=True)
class Voice:
    """What is heard of a class."""

    timbre: str
    pattern: str


@dataclass(frozen=True)
class Form:
    """What a depth sensor measures of a class: its outline and its relief."""

    outline: str
    relief: str


def _appearances() -> tuple[Appearance, ...]:
    pairs = [(o, t) for o in OUTLINES for t in TEXTURES if (o, t) not in _LEFT_OUT]
    # The hue depends on the outline, so that only the fine texture separates similar classes.
    return tuple(Appearance(o, t, OUTLINES.index(o) * 3 % 8 / 8) for o, t in pairs)


def _voices() -> tuple[Voice, ...]:
    pairs = [Voice(t, p) for t in TIMBRES for p in PATTERNS]
    # A stride coprime to the number of classes spreads each timbre over all outlines.
    return tuple(pairs[i * 11 % CLASSES] for i in range(CLASSES))


def _forms() -> tuple[Form, ...]:
    # Each outline pairs reliefs and textures differently, so that no relief implies a texture.
    places = [(OUTLINES.index(a.outline), TEXTURES.index(a.texture)) for a in APPEARANCES]
    return tuple(Form(OUTLINES[o], RELIEFS[(o + t) % len(RELIEFS)]) for o, t in places)


APPEARANCES = _appearances()
VOICES = _voices()
FORMS = _forms()
NAMES = tuple(
    f"{appearance.texture} {appearance.outline}, {voice.timbre} {voice.pattern}"
    for appearance, voice in zip(APPEARANCES, VOICES, strict=True)
)


@dataclass(frozen=True)
class Flavour:
    """The difficulty of a set: the ranges that each sample draws from.

    `radius` in pixels; `contrast` of the object against its surroundings (1: full); `grain` of the
    sensor, a standard deviation in grey levels; `snr` of the event in the room's noise, in dB;
    `bad` is the share of samples in which one modality is absent or dubbed.
    """

    radius: tuple[float, float]
    contrast: tuple[float, float]
    grain: tuple[float, float]
    snr: tuple[float, float]
    bad: float

    def easier(self) -> "Flavour":
        """Return the flavour that training starts with: a quiet room and no bad modality."""
        return replace(self, snr=(10.0, 28.0), bad=0.0)


FLAVOURS = {
    "balanced": Flavour(radius=(12, 20), contrast=(0.5, 1.0), grain=(3, 10), snr=(-9, 3), bad=0.2),
    "sound": Flavour(radius=(10, 16), contrast=(0.35, 0.85), grain=(3, 10), snr=(-5, 7), bad=0.2),
}


def flavour_named(name: str) -> Flavour:
    """Return a flavour by name: "balanced" or "sound", optionally with the suffix "_easy"."""
    plain = name.removesuffix("_easy")
    if plain not in FLAVOURS:
        known = [known + end for known in FLAVOURS for end in ("", "_easy")]
        raise OptionError(unknown_name("flavour", name, known))
    flavour = FLAVOURS[plain]
    return flavour if plain == name else flavour.easier()

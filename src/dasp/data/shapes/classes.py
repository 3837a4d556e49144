"""The 36 classes of the set: how each looks, sounds and is formed, and how hard a flavour is."""

from dataclasses import dataclass, replace

from dasp.core.errors import OptionError, unknown_name

OUTLINES = ("disk", "square", "triangle", "star", "cross", "ring", "crescent", "hourglass")
TEXTURES = ("plain", "stripes", "checks", "dots", "rings")
TIMBRES = ("flute", "buzz", "reed", "bell", "hiss", "voice")
PATTERNS = ("steady", "pluck", "pulses", "rise", "fall", "trill")
RELIEFS = ("flat", "dome", "bowl", "ridge", "wedge")

CLASSES = 36
# Where a texture shows badly inside an outline, the two together are no class.
_LEFT_OUT = {("ring", "rings"), ("ring", "dots"), ("crescent", "rings"), ("hourglass", "dots")}


@dataclass(frozen=True)
class Look:
    """What is seen of a class; `hue` (0–1) is its colour, that of all looks of this outline."""

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
    """What a depth sensor measures of a class: the outline that is seen, and its relief."""

    outline: str
    relief: str


def _looks() -> tuple[Look, ...]:
    pairs = [(o, t) for o in OUTLINES for t in TEXTURES if (o, t) not in _LEFT_OUT]
    # The hue goes with the outline, so that only its fine texture tells a look from its kin.
    return tuple(Look(o, t, OUTLINES.index(o) * 3 % 8 / 8) for o, t in pairs)


def _voices() -> tuple[Voice, ...]:
    pairs = [Voice(t, p) for t in TIMBRES for p in PATTERNS]
    # A stride without common divisor spreads each timbre over all outlines.
    return tuple(pairs[i * 11 % CLASSES] for i in range(CLASSES))


def _forms() -> tuple[Form, ...]:
    # A relief goes with another texture in each outline, so that none stands for a texture.
    places = [(OUTLINES.index(k.outline), TEXTURES.index(k.texture)) for k in LOOKS]
    return tuple(Form(OUTLINES[o], RELIEFS[(o + t) % len(RELIEFS)]) for o, t in places)


LOOKS = _looks()
VOICES = _voices()
FORMS = _forms()
NAMES = tuple(
    f"{look.texture} {look.outline}, {voice.timbre} {voice.pattern}"
    for look, voice in zip(LOOKS, VOICES, strict=True)
)


@dataclass(frozen=True)
class Flavour:
    """How hard a set is: ranges that each sample draws from.

    `radius` in pixels; `contrast` of the object against its surroundings (1: full); `grain` of the
    sensor, standard deviation in grey levels; `snr` of the event in the room's noise, decibels;
    `bad` is the share of samples of which one modality is absent or dubbed.
    """

    radius: tuple[float, float]
    contrast: tuple[float, float]
    grain: tuple[float, float]
    snr: tuple[float, float]
    bad: float

    def easier(self) -> "Flavour":
        """Return the set that training starts with: a quiet room, and nothing bad."""
        return replace(self, snr=(10.0, 28.0), bad=0.0)


FLAVOURS = {
    "balanced": Flavour(radius=(12, 20), contrast=(0.5, 1.0), grain=(3, 10), snr=(-9, 3), bad=0.2),
    "sound": Flavour(radius=(10, 16), contrast=(0.35, 0.85), grain=(3, 10), snr=(-5, 7), bad=0.2),
}


def flavour_named(name: str) -> Flavour:
    """Return a flavour by name: "balanced", "sound", or one of them with "_easy" behind it."""
    plain = name.removesuffix("_easy")
    if plain not in FLAVOURS:
        known = [known + end for known in FLAVOURS for end in ("", "_easy")]
        raise OptionError(unknown_name("flavour", name, known))
    flavour = FLAVOURS[plain]
    return flavour if plain == name else flavour.easier()

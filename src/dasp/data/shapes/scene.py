"""Draw a frame: a lit background, clutter, and the object of a class (or none).

All in float64 until the values are rounded to bytes at the end, so that the last bit of a sine or
a power, which differs between processors, cannot change a byte.
"""

import colorsys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dasp.data.shapes.classes import OUTLINES, TEXTURES, Flavour, Look
from dasp.data.shapes.outlines import OUTLINE_FIELDS, TEXTURE_FIELDS, Field

SIZE = 64
HUE_SPREAD = 0.05
_Y, _X = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2

Picture = NDArray[np.uint8]  # (64, 64, 3)


@dataclass(frozen=True)
class _Thing:
    """One object in a scene; places and radius in pixels from the middle."""

    outline: str
    texture: str
    hue: float
    saturation: float
    place: tuple[float, float]
    radius: float
    angle: float
    contrast: float


def draw_frame(generator: np.random.Generator, look: Look | None, flavour: Flavour) -> Picture:
    """Return a (64, 64, 3) uint8 frame that shows `look`, or an empty scene for None."""
    canvas = _background(generator)
    for _ in range(generator.integers(2, 6)):
        _paint(canvas, _clutter(generator))
    if look is not None:
        _paint(canvas, _object(generator, look, flavour))
    return _photograph(canvas, generator, flavour)


def _background(generator: np.random.Generator) -> Field:
    """Return (3, 64, 64) of one pale colour, values about 0 to 1."""
    hue, saturation, value = (
        generator.random(),
        generator.uniform(0, 0.35),
        generator.uniform(0.25, 0.7),
    )
    colour = np.array(colorsys.hsv_to_rgb(hue, saturation, value))
    return np.repeat(colour, SIZE * SIZE).reshape(3, SIZE, SIZE)


def _clutter(generator: np.random.Generator) -> _Thing:
    across, down = generator.uniform(-30, 30, 2)
    return _Thing(
        outline=OUTLINES[generator.integers(len(OUTLINES))],
        texture=TEXTURES[generator.integers(len(TEXTURES))],
        hue=generator.random(),
        saturation=generator.uniform(0.2, 0.9),
        place=(across, down),
        radius=generator.uniform(4, 10),
        angle=generator.uniform(0, 2 * np.pi),
        contrast=generator.uniform(0.3, 0.9),
    )


def _object(generator: np.random.Generator, look: Look, flavour: Flavour) -> _Thing:
    across, down = generator.uniform(-4, 4, 2)
    return _Thing(
        outline=look.outline,
        texture=look.texture,
        hue=(look.hue + generator.uniform(-HUE_SPREAD, HUE_SPREAD)) % 1,
        saturation=generator.uniform(0.55, 0.95),
        place=(across, down),
        radius=generator.uniform(*flavour.radius),
        angle=generator.uniform(-0.22, 0.22),
        contrast=generator.uniform(*flavour.contrast),
    )


def _paint(canvas: Field, thing: _Thing) -> None:
    """Lay one object over the (3, 64, 64) canvas; its low contrast lets the canvas through."""
    cos, sin = np.cos(thing.angle) / thing.radius, np.sin(thing.angle) / thing.radius
    x, y = _X - thing.place[0], _Y - thing.place[1]
    u, v = cos * x + sin * y, cos * y - sin * x
    inside = np.clip(0.5 - OUTLINE_FIELDS[thing.outline](u, v) * thing.radius, 0, 1)
    tone = TEXTURE_FIELDS[thing.texture](u, v)
    bright, dark = (
        np.array(colorsys.hsv_to_rgb(thing.hue, thing.saturation, value)) for value in (0.95, 0.3)
    )
    colour = dark[:, None, None] + (bright - dark)[:, None, None] * tone
    canvas += thing.contrast * inside * (colour - canvas)


def _photograph(canvas: Field, generator: np.random.Generator, flavour: Flavour) -> Picture:
    """Light the (3, 64, 64) scene from one side, bend its tones, add grain; (64, 64, 3) bytes."""
    angle, slope = generator.uniform(0, 2 * np.pi), generator.uniform(0, 0.45)
    level, gamma = generator.uniform(0.75, 1.15), generator.uniform(0.7, 1.4)
    light = level + slope / (SIZE / 2) * (np.cos(angle) * _X + np.sin(angle) * _Y)
    exposed = np.clip(canvas * light, 1e-4, 1) ** gamma
    grain = generator.standard_normal(exposed.shape)
    exposed *= 255
    exposed += generator.uniform(*flavour.grain) * grain
    bytes_ = np.clip(np.rint(exposed), 0, 255).astype(np.uint8)
    return np.ascontiguousarray(bytes_.transpose(1, 2, 0))

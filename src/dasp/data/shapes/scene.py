"""Draw a frame or measure a depth map: a background, clutter, and the object of a class (or none).

An outline gives the signed distance to its edge (negative inside) at (u, v), in units of the
object's radius; a texture gives the share of the bright colour, 0 to 1; a relief the height
towards the viewer, about 0 to 1.

Everything is float64 until values are rounded to bytes or millimetres at the end, so that the last
bit of a sine or a power, which differs between processors, cannot change a byte.
"""

import colorsys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dasp.data.shapes.classes import OUTLINES, TEXTURES, Flavour, Kind

SIZE = 64
HUE_SPREAD = 0.05
RANGE_SIZE = 32
FARTHEST = 4000  # millimetres
NO_RETURN = 0  # value of a pixel that received no light
_Y, _X = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
_RANGE_Y, _RANGE_X = np.mgrid[:RANGE_SIZE, :RANGE_SIZE] - (RANGE_SIZE - 1) / 2

Field = NDArray[np.float64]  # (H, W) or (3, H, W)
Picture = NDArray[np.uint8]  # (64, 64, 3)
DepthMap = NDArray[np.uint16]  # (32, 32), millimetres


def draw_frame(generator: np.random.Generator, kind: Kind | None, flavour: Flavour) -> Picture:
    """Return a (64, 64, 3) uint8 frame that shows a class, or an empty scene for None."""
    hue, saturation, value = (generator.uniform(*ends) for ends in ((0, 1), (0, 0.35), (0.25, 0.7)))
    pale = np.array(colorsys.hsv_to_rgb(hue, saturation, value))
    canvas = np.repeat(pale, SIZE * SIZE).reshape(3, SIZE, SIZE)
    for _ in range(generator.integers(2, 6)):  # clutter
        place = generator.uniform(-30, 30, 2)
        outline = OUTLINES[generator.integers(len(OUTLINES))]
        texture = TEXTURES[generator.integers(len(TEXTURES))]
        colour = (generator.random(), generator.uniform(0.2, 0.9))
        radius, angle = generator.uniform(4, 10), generator.uniform(0, 2 * np.pi)
        contrast = generator.uniform(0.3, 0.9)
        _paint(canvas, outline, texture, colour, place, radius, angle, contrast)
    if kind is not None:
        place = generator.uniform(-4, 4, 2)
        hue = (kind.hue + generator.uniform(-HUE_SPREAD, HUE_SPREAD)) % 1
        colour = (hue, generator.uniform(0.55, 0.95))
        radius, angle = generator.uniform(*flavour.radius), generator.uniform(-0.22, 0.22)
        contrast = generator.uniform(*flavour.contrast)
        _paint(canvas, kind.outline, kind.texture, colour, place, radius, angle, contrast)
    return _photograph(canvas, generator, flavour)


def _paint(
    canvas: Field,
    outline: str,
    texture: str,
    colour: tuple[float, float],
    place: Field,
    radius: float,
    angle: float,
    contrast: float,
) -> None:
    """Paint one object onto the (3, 64, 64) canvas; `colour` is hue and saturation."""
    u, v = _turned(_X - place[0], _Y - place[1], radius, angle)
    inside = np.clip(0.5 - OUTLINE_FIELDS[outline](u, v) * radius, 0, 1)
    tone = TEXTURE_FIELDS[texture](u, v)
    bright, dark = (np.array(colorsys.hsv_to_rgb(*colour, value)) for value in (0.95, 0.3))
    painted = dark[:, None, None] + (bright - dark)[:, None, None] * tone
    canvas += contrast * inside * (painted - canvas)


def _turned(x: Field, y: Field, radius: float, angle: float) -> tuple[Field, Field]:
    """Return the coordinates (u, v) of pixels seen from an object, in units of its radius."""
    cos, sin = np.cos(angle) / radius, np.sin(angle) / radius
    return cos * x + sin * y, cos * y - sin * x


def _photograph(canvas: Field, generator: np.random.Generator, flavour: Flavour) -> Picture:
    """Light the (3, 64, 64) scene from one side, add gamma and grain; return (64, 64, 3) bytes."""
    angle, slope = generator.uniform(0, 2 * np.pi), generator.uniform(0, 0.45)
    level, gamma = generator.uniform(0.75, 1.15), generator.uniform(0.7, 1.4)
    light = level + slope / (SIZE / 2) * (np.cos(angle) * _X + np.sin(angle) * _Y)
    exposed = np.clip(canvas * light, 1e-4, 1) ** gamma
    grain = generator.standard_normal(exposed.shape)
    exposed *= 255
    exposed += generator.uniform(*flavour.grain) * grain
    bytes_ = np.clip(np.rint(exposed), 0, 255).astype(np.uint8)
    return np.ascontiguousarray(bytes_.transpose(1, 2, 0))


def draw_depth(generator: np.random.Generator, kind: Kind | None) -> DepthMap:
    """Return (32, 32) distances in millimetres of a scene with a class, or without for None."""
    across, down = generator.uniform(-10, 10, 2)
    scene = generator.uniform(1700, 2600) + across * _RANGE_X + down * _RANGE_Y
    edges = np.zeros(scene.shape, bool)
    for _ in range(generator.integers(2, 5)):
        place = generator.uniform(-15, 15, 2)
        outline = OUTLINES[generator.integers(len(OUTLINES))]
        radius, angle = generator.uniform(2, 5), generator.uniform(0, 2 * np.pi)
        distance, slope = generator.uniform(1200, 1700), generator.uniform(-8, 8, 2)
        _place(scene, edges, outline, "flat", place, radius, angle, distance, 0.0, slope)
    if kind is not None:
        place = generator.uniform(-2, 2, 2)
        radius, angle = generator.uniform(6, 10), generator.uniform(-0.22, 0.22)
        distance, height = generator.uniform(800, 1100), generator.uniform(40, 120)
        slope = generator.uniform(-3, 3, 2)
        look = (kind.outline, kind.relief)
        _place(scene, edges, *look, place, radius, angle, distance, height, slope)
    return _measure(scene, edges, generator)


def _place(
    scene: Field,
    edges: NDArray[np.bool_],
    outline: str,
    relief: str,
    place: Field,
    radius: float,
    angle: float,
    distance: float,
    height: float,
    slope: Field,
) -> None:
    """Put one object into the (32, 32) scene; mark the pixels on its edge in `edges`.

    `distance`, `height` (of the relief) in millimetres, `slope` in millimetres per pixel.
    """
    x, y = _RANGE_X - place[0], _RANGE_Y - place[1]
    u, v = _turned(x, y, radius, angle)
    outside = OUTLINE_FIELDS[outline](u, v) * radius
    surface = distance + slope[0] * x + slope[1] * y - height * RELIEF_FIELDS[relief](u, v)
    inside = outside < 0
    scene[inside] = surface[inside]
    edges |= np.abs(outside) < 0.5


def _measure(scene: Field, edges: NDArray[np.bool_], generator: np.random.Generator) -> DepthMap:
    """Add the sensor's noise, which grows with distance, and drop pixels, mostly at edges."""
    grain, lost = generator.uniform(0.004, 0.016), generator.uniform(0.005, 0.03)
    noisy = scene * (1 + grain * generator.standard_normal(scene.shape))
    gone = generator.random(scene.shape) < np.where(edges, 0.4, lost)
    noisy[gone] = NO_RETURN
    return np.asarray(np.clip(np.rint(noisy), 0, FARTHEST), np.uint16)


def _soft(wave: Field) -> Field:
    """Turn a wave into two tones with an edge about one pixel wide."""
    return np.clip(0.5 + 1.6 * wave, 0, 1)


def _star(u: Field, v: Field) -> Field:
    """Fold the five points onto half a point, whose edge is a straight line."""
    inner = 0.42
    part = 2 * np.pi / 5
    angle = np.arctan2(u, -v)
    folded = np.abs(angle - part * np.rint(angle / part))
    radius = np.hypot(u, v)
    x, y = inner * np.cos(part / 2), inner * np.sin(part / 2)
    length = np.hypot(y, 1 - x)
    edge = (radius * np.cos(folded) - 1) * y + radius * np.sin(folded) * (1 - x)
    return np.asarray(edge / length)


def _cross(u: Field, v: Field) -> Field:
    a, b = np.abs(u), np.abs(v)
    return np.maximum(np.maximum(a, b) - 0.9, np.minimum(a, b) - 0.3)


def _hourglass(u: Field, v: Field) -> Field:
    a, b = np.abs(u), np.abs(v)
    return np.maximum(b - 0.85, (a - 0.1 - 0.8 * b) * 0.78)


OUTLINE_FIELDS: dict[str, Callable[[Field, Field], Field]] = {
    "disk": lambda u, v: np.hypot(u, v) - 0.9,
    "square": lambda u, v: np.maximum(np.abs(u), np.abs(v)) - 0.78,
    "triangle": lambda u, v: np.maximum(0.8660254 * np.abs(u) - 0.5 * v, v) - 0.52,
    "star": _star,
    "cross": _cross,
    "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.66) - 0.24,
    "crescent": lambda u, v: np.maximum(np.hypot(u, v) - 0.92, 0.72 - np.hypot(u - 0.46, v)),
    "hourglass": _hourglass,
}
TEXTURE_FIELDS: dict[str, Callable[[Field, Field], Field]] = {
    "plain": lambda u, _: np.ones_like(u),
    "stripes": lambda _, v: _soft(np.sin(15 * v)),
    "checks": lambda u, v: _soft(np.sin(11.5 * u) * np.sin(11.5 * v) * 2),
    "dots": lambda u, v: _soft(0.4 - np.cos(14 * u) - np.cos(14 * v)),
    "rings": lambda u, v: _soft(np.cos(15 * np.hypot(u, v))),
}
RELIEF_FIELDS: dict[str, Callable[[Field, Field], Field]] = {
    "flat": lambda u, _: np.full_like(u, 0.5),
    "dome": lambda u, v: np.asarray(1 - u * u - v * v),
    "bowl": lambda u, v: np.asarray(u * u + v * v),
    "ridge": lambda u, _: 1 - 2 * np.abs(u),
    "wedge": lambda _, v: 0.5 + 0.5 * v,
}

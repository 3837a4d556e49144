"""Outlines, textures and reliefs as functions of the place inside an object.

An outline gives the signed distance to its edge (below 0: inside) at (u, v), in units of the
object's radius; a texture gives the share of the bright colour, 0 to 1; a relief the height
towards the viewer, about 0 to 1.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float64]  # (H, W) or (3, H, W)


def _disk(u: Field, v: Field) -> Field:
    return np.hypot(u, v) - 0.9


def _square(u: Field, v: Field) -> Field:
    return np.maximum(np.abs(u), np.abs(v)) - 0.78


def _triangle(u: Field, v: Field) -> Field:
    side = 0.8660254 * np.abs(u) - 0.5 * v
    return np.maximum(side, v) - 0.52


def _star(u: Field, v: Field) -> Field:
    """Fold the five points onto one half-point; its edge is a straight line."""
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


def _ring(u: Field, v: Field) -> Field:
    return np.abs(np.hypot(u, v) - 0.66) - 0.24


def _crescent(u: Field, v: Field) -> Field:
    return np.maximum(np.hypot(u, v) - 0.92, 0.72 - np.hypot(u - 0.46, v))


def _hourglass(u: Field, v: Field) -> Field:
    a, b = np.abs(u), np.abs(v)
    return np.maximum(b - 0.85, (a - 0.1 - 0.8 * b) * 0.78)


def _plain(u: Field, v: Field) -> Field:  # noqa: ARG001
    return np.ones_like(u)


def _stripes(u: Field, v: Field) -> Field:  # noqa: ARG001
    return _soft(np.sin(15 * v))


def _checks(u: Field, v: Field) -> Field:
    return _soft(np.sin(11.5 * u) * np.sin(11.5 * v) * 2)


def _dots(u: Field, v: Field) -> Field:
    return _soft(0.4 - np.cos(14 * u) - np.cos(14 * v))


def _rings(u: Field, v: Field) -> Field:
    return _soft(np.cos(15 * np.hypot(u, v)))


def _soft(wave: Field) -> Field:
    """Turn a wave into two tones with an edge about a pixel wide."""
    return np.clip(0.5 + 1.6 * wave, 0, 1)


def _flat(u: Field, v: Field) -> Field:  # noqa: ARG001
    return np.full_like(u, 0.5)


def _dome(u: Field, v: Field) -> Field:
    return np.asarray(1 - u * u - v * v)


def _bowl(u: Field, v: Field) -> Field:
    return np.asarray(u * u + v * v)


def _ridge(u: Field, v: Field) -> Field:  # noqa: ARG001
    return 1 - 2 * np.abs(u)


def _wedge(u: Field, v: Field) -> Field:  # noqa: ARG001
    return 0.5 + 0.5 * v


OUTLINE_FIELDS: dict[str, Callable[[Field, Field], Field]] = {
    "disk": _disk,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "ring": _ring,
    "crescent": _crescent,
    "hourglass": _hourglass,
}
TEXTURE_FIELDS: dict[str, Callable[[Field, Field], Field]] = {
    "plain": _plain,
    "stripes": _stripes,
    "checks": _checks,
    "dots": _dots,
    "rings": _rings,
}
RELIEF_FIELDS: dict[str, Callable[[Field, Field], Field]] = {
    "flat": _flat,
    "dome": _dome,
    "bowl": _bowl,
    "ridge": _ridge,
    "wedge": _wedge,
}

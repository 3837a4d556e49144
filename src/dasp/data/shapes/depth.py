"""Measure a depth map: a wall, clutter in front of it, and the form of a class (or none).

In float64 until the distances are rounded to millimetres, for the reason given in `scene`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dasp.data.shapes.classes import OUTLINES, Form
from dasp.data.shapes.scene import OUTLINE_FIELDS, RELIEF_FIELDS, Field

SIDE = 32
FARTHEST = 4000  # millimetres
NO_RETURN = 0  # value of a pixel that received no light
NEAREST = 250.0  # millimetres; smaller distances are clipped in the model's input
NEAR_MEAN, NEAR_STD = 0.52, 0.25  # of clean inverse distances, 1 / metre
STEEPEST, SLOPE_STD = 40.0, 15.0  # millimetres per pixel
_Y, _X = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2

DepthMap = NDArray[np.uint16]  # (32, 32), millimetres


@dataclass(frozen=True)
class _Solid:
    """One object in front of the wall; place and radius in pixels, the rest in millimetres."""

    outline: str
    relief: str
    place: tuple[float, float]
    radius: float
    angle: float
    distance: float
    height: float  # of its relief
    slope: tuple[float, float]  # per pixel, to the right and downwards


def draw_depth(generator: np.random.Generator, form: Form | None) -> DepthMap:
    """Return (32, 32) distances in millimetres of a scene with `form`, or without for None."""
    across, down = generator.uniform(-10, 10, 2)
    scene = generator.uniform(1700, 2600) + across * _X + down * _Y
    edges = np.zeros(scene.shape, bool)
    for _ in range(generator.integers(2, 5)):
        _place(scene, edges, _clutter(generator))
    if form is not None:
        _place(scene, edges, _object(generator, form))
    return _measure(scene, edges, generator)


def _clutter(generator: np.random.Generator) -> _Solid:
    across, down = generator.uniform(-15, 15, 2)
    return _Solid(
        outline=OUTLINES[generator.integers(len(OUTLINES))],
        relief="flat",
        place=(across, down),
        radius=generator.uniform(2, 5),
        angle=generator.uniform(0, 2 * np.pi),
        distance=generator.uniform(1200, 1700),
        height=0.0,
        slope=tuple(generator.uniform(-8, 8, 2)),
    )


def _object(generator: np.random.Generator, form: Form) -> _Solid:
    across, down = generator.uniform(-2, 2, 2)
    return _Solid(
        outline=form.outline,
        relief=form.relief,
        place=(across, down),
        radius=generator.uniform(6, 10),
        angle=generator.uniform(-0.22, 0.22),
        distance=generator.uniform(800, 1100),
        height=generator.uniform(40, 120),
        slope=tuple(generator.uniform(-3, 3, 2)),
    )


def _place(scene: Field, edges: NDArray[np.bool_], solid: _Solid) -> None:
    """Put one object into the (32, 32) scene; mark the pixels on its edge in `edges`."""
    cos, sin = np.cos(solid.angle) / solid.radius, np.sin(solid.angle) / solid.radius
    x, y = _X - solid.place[0], _Y - solid.place[1]
    u, v = cos * x + sin * y, cos * y - sin * x
    outside = OUTLINE_FIELDS[solid.outline](u, v) * solid.radius
    tilted = solid.distance + solid.slope[0] * x + solid.slope[1] * y
    surface = tilted - solid.height * RELIEF_FIELDS[solid.relief](u, v)
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


def depth_input(maps: NDArray[np.uint16] | Tensor) -> Tensor:
    """Return the model's input: (..., 32, 32) millimetres → (..., 3, 32, 32).

    The first channel is the normalised inverse distance, 0 before normalising where there was no
    return; the others are the slopes to the right and downwards, 0 if a neighbour is missing.

    >>> depth_input(np.full((32, 32), 1000, np.uint16)).shape
    torch.Size([3, 32, 32])
    """
    distance = torch.as_tensor(maps).float()
    near = torch.where(distance > NO_RETURN, 1000 / distance.clamp_min(NEAREST), 0.0)
    slopes = (_slope(distance, axis) for axis in (-1, -2))
    return torch.stack([(near - NEAR_MEAN) / NEAR_STD, *slopes], dim=-3)


def _slope(distance: Tensor, axis: int) -> Tensor:
    """Return half the difference of the next and the previous neighbour; 0 at the border."""
    inner = distance.shape[axis] - 2
    before, behind = (distance.narrow(axis, start, inner) for start in (0, 2))
    steps = ((behind - before) / 2).clamp(-STEEPEST, STEEPEST) / SLOPE_STD
    known = torch.where((before > NO_RETURN) & (behind > NO_RETURN), steps, 0.0)
    return functional.pad(known, (1, 1) if axis == -1 else (0, 0, 1, 1))

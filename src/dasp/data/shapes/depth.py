"""Measure a depth map: a wall, clutter in front of it, and the form of a class (or none).

In float64 until the distances are rounded to millimetres, for the reason given in `scene`.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dasp.data.shapes.classes import OUTLINES, Kind
from dasp.data.shapes.scene import OUTLINE_FIELDS, RELIEF_FIELDS, Field, turned

SIDE = 32
FARTHEST = 4000  # millimetres
NO_RETURN = 0  # value of a pixel that received no light
NEAREST = 250.0  # millimetres; smaller distances are clipped in the model's input
NEAR_MEAN, NEAR_STD = 0.52, 0.25  # of clean inverse distances, 1 / metre
STEEPEST, SLOPE_STD = 40.0, 15.0  # millimetres per pixel
_Y, _X = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2

DepthMap = NDArray[np.uint16]  # (32, 32), millimetres


def draw_depth(generator: np.random.Generator, kind: Kind | None) -> DepthMap:
    """Return (32, 32) distances in millimetres of a scene with a class, or without for None."""
    across, down = generator.uniform(-10, 10, 2)
    scene = generator.uniform(1700, 2600) + across * _X + down * _Y
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

    `place` and `radius` are in pixels, `distance` and the `height` of the relief in millimetres,
    `slope` to the right and downwards in millimetres per pixel.
    """
    x, y = _X - place[0], _Y - place[1]
    u, v = turned(x, y, radius, angle)
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

"""Corruptions of depth maps, as they occur in time-of-flight sensors.

A map is (H, W) uint16 in millimetres; 0 is a pixel without return. Such pixels stay 0, except
under fog.
"""

import numpy as np
from numpy.typing import NDArray

from dasp.corruptions.base import Depth, corruption

NO_RETURN = 0
NEAREST, FARTHEST = 250, 65535  # range of a sensor in millimetres


@corruption("depth", "speckle", family="noise")
def speckle(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:
    """Add normal noise proportional to each distance of (H, W): too little light."""
    sigma = (0.01, 0.02, 0.035, 0.055, 0.08)[severity - 1]
    return _measured(depth * (1 + sigma * generator.standard_normal(depth.shape)), depth)


@corruption("depth", "dropout", family="noise")
def dropout(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:
    """Drop a share of the pixels of (H, W): dark or shiny surfaces return no light."""
    share = (0.1, 0.2, 0.35, 0.5, 0.7)[severity - 1]
    return np.where(generator.random(depth.shape) < share, np.uint16(NO_RETURN), depth)


@corruption("depth", "fog", family="weather")
def fog(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:
    """Drop pixels of (H, W), more at larger distances; half of them measure a drop instead."""
    density = (0.1, 0.2, 0.35, 0.5, 0.7)[severity - 1]  # per metre
    travelled = 2 * depth.astype(np.float64) / 1000
    lost = generator.random(depth.shape) > np.exp(-density * travelled)
    drop = NEAREST + generator.random(depth.shape) * np.maximum(depth - float(NEAREST), 0)
    seen = np.where(generator.random(depth.shape) < 0.5, drop, NO_RETURN)
    return np.where(lost, _measured(seen, depth), depth)


@corruption("depth", "multipath", family="digital")
def multipath(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:  # noqa: ARG001
    """Mix each distance of (H, W) with its surroundings, plus a detour: edges and relief fade."""
    share, detour = ((0.02, 10), (0.05, 25), (0.1, 50), (0.2, 80), (0.4, 120))[severity - 1]
    surroundings = _mean_around(depth, reach=min(depth.shape) // 8)
    return _measured(depth + share * (surroundings - depth) + detour, depth)


@corruption("depth", "quantisation", family="digital")
def quantisation(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:  # noqa: ARG001
    """Round the distances of (H, W) to few levels: a coarse clock."""
    step = (20, 40, 70, 110, 160)[severity - 1]  # millimetres
    return _measured(np.rint(depth / step) * step, depth)


@corruption("depth", "dead_rows", family="digital")
def dead_rows(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:
    """Drop a share of the rows of (H, W), at least one."""
    share = (0.1, 0.2, 0.3, 0.45, 0.6)[severity - 1]
    count = max(round(share * len(depth)), 1)
    damaged = depth.copy()
    damaged[generator.permutation(len(depth))[:count]] = NO_RETURN
    return damaged


def _measured(distances: NDArray[np.float64], depth: Depth) -> Depth:
    """Round to millimetres within the sensor's range; pixels without return stay 0."""
    whole = np.clip(np.rint(distances), NO_RETURN, FARTHEST).astype(np.uint16)
    return np.where(depth == NO_RETURN, np.uint16(NO_RETURN), whole)


def _mean_around(depth: Depth, reach: int) -> NDArray[np.float64]:
    """Return the mean distance in the square around each pixel, ignoring pixels without return."""
    side = 2 * reach + 1
    sums, counts = (
        np.lib.stride_tricks.sliding_window_view(np.pad(values, reach), (side, side)).sum((2, 3))
        for values in (depth.astype(np.int64), (depth != NO_RETURN).astype(np.int64))
    )
    return np.where(counts > 0, sums / np.maximum(counts, 1), 0.0)

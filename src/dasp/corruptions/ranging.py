"""Six ways to damage a map of distances, as sensors that time light do.

A map is (H, W) uint16 in millimetres; 0 is a pixel from which nothing came back. What was lost
stays lost; only fog puts something in its place.
"""

import numpy as np
from numpy.typing import NDArray

from dasp.corruptions.base import Depth, corruption

NO_RETURN = 0
NEAREST, FARTHEST = 250, 65535  # millimetres that a sensor can report


@corruption("depth", "speckle", family="noise")
def speckle(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:
    """Add normal noise to each distance of (H, W), in shares of it: too little light."""
    sigma = (0.01, 0.02, 0.035, 0.055, 0.08)[severity - 1]
    return _measured(depth * (1 + sigma * generator.standard_normal(depth.shape)), depth)


@corruption("depth", "dropout", family="noise")
def dropout(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:
    """Lose a share of the pixels of (H, W): dark or shiny surfaces send nothing back."""
    share = (0.1, 0.2, 0.35, 0.5, 0.7)[severity - 1]
    return np.where(generator.random(depth.shape) < share, np.uint16(NO_RETURN), depth)


@corruption("depth", "fog", family="weather")
def fog(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:
    """Lose light on the way through (H, W), the more the farther; drops send half of it back."""
    density = (0.1, 0.2, 0.35, 0.5, 0.7)[severity - 1]  # a metre
    travelled = 2 * depth.astype(np.float64) / 1000
    lost = generator.random(depth.shape) > np.exp(-density * travelled)
    drop = NEAREST + generator.random(depth.shape) * np.maximum(depth - float(NEAREST), 0)
    seen = np.where(generator.random(depth.shape) < 0.5, drop, NO_RETURN)
    return np.where(lost, _measured(seen, depth), depth)


@corruption("depth", "multipath", family="digital")
def multipath(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:  # noqa: ARG001
    """Mix into each distance of (H, W) the surroundings', by a detour: edges and relief fade."""
    share, detour = ((0.02, 10), (0.05, 25), (0.1, 50), (0.2, 80), (0.4, 120))[severity - 1]
    surroundings = _mean_around(depth, reach=min(depth.shape) // 8)
    return _measured(depth + share * (surroundings - depth) + detour, depth)


@corruption("depth", "quantisation", family="digital")
def quantisation(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:  # noqa: ARG001
    """Round the distances of (H, W) to few levels: a clock too coarse."""
    step = (20, 40, 70, 110, 160)[severity - 1]  # millimetres
    return _measured(np.rint(depth / step) * step, depth)


@corruption("depth", "dead_rows", family="digital")
def dead_rows(depth: Depth, severity: int, generator: np.random.Generator) -> Depth:
    """Lose a share of the rows of (H, W), at least one."""
    share = (0.1, 0.2, 0.3, 0.45, 0.6)[severity - 1]
    count = max(round(share * len(depth)), 1)
    damaged = depth.copy()
    damaged[generator.permutation(len(depth))[:count]] = NO_RETURN
    return damaged


def _measured(distances: NDArray[np.float64], depth: Depth) -> Depth:
    """Return whole millimetres within the sensor's range; what `depth` lost stays lost.

    What falls to 0 or below is lost as well.
    """
    whole = np.clip(np.rint(distances), NO_RETURN, FARTHEST).astype(np.uint16)
    return np.where(depth == NO_RETURN, np.uint16(NO_RETURN), whole)


def _mean_around(depth: Depth, reach: int) -> NDArray[np.float64]:
    """Return for each pixel the mean distance of the square around it, lost pixels left out."""
    side = 2 * reach + 1
    sums, counts = (
        np.lib.stride_tricks.sliding_window_view(np.pad(values, reach), (side, side)).sum((2, 3))
        for values in (depth.astype(np.int64), (depth != NO_RETURN).astype(np.int64))
    )
    return np.where(counts > 0, sums / np.maximum(counts, 1), 0.0)

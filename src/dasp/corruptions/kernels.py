"""Filters and warps shared by several corruptions of frames, exact on every processor.

The constants of ImageNet-C are lengths in pixels of a 224-pixel image. Here every length is
multiplied by `scale_of(image)`, so that frames of other sizes look equally corrupted; at 224 the
constants are the published ones.

Filter weights are multiples of 2⁻¹⁶ that sum to one: a byte times a weight then fits float32
exactly, flat areas stay flat, and the last digit of `exp` cannot change a byte. Warps read
between pixels with integer weights for the same reason.
"""

from collections.abc import Callable
from functools import lru_cache
from math import ceil, cos, radians, sin

import numpy as np
from numpy.typing import NDArray

from dasp.corruptions.base import Image

Floats = NDArray[np.float32]
Places = NDArray[np.intp]
Reflect = Callable[[Places, int], Places]

_UNIT = 65536
_BITS = 6  # places are rounded to 1/64 pixel (OpenCV: 1/32)
_LANE = 8 + 2 * _BITS  # a byte times two weights; three such lanes fill 60 bits of a word


def scale_of(image: Image) -> float:
    """Return the shorter side of `image` (H, W, 3) divided by 224."""
    return float(min(image.shape[:2]) / 224)


def to_bytes(values: Floats) -> Image:
    """Clip values to 0…255 in place and truncate them, as the original scripts do."""
    return np.clip(values, 0, 255, out=values).astype(np.uint8)


def unit_weights(weights: NDArray[np.float64]) -> Floats:
    """Scale `weights` (n,) to sum to one, in multiples of 2⁻¹⁶; the largest absorbs the rest."""
    steps = np.rint(weights / weights.sum() * _UNIT)
    steps[np.argmax(weights)] += _UNIT - steps.sum()
    return np.asarray(steps / _UNIT, np.float32)


@lru_cache(maxsize=64)
def bell(sigma: float, radius: int) -> Floats:
    """Return the right half (radius + 1,) of a Gaussian of 2·radius + 1 taps that sum to one."""
    offsets = np.arange(-radius, radius + 1)
    return unit_weights(np.exp(-(offsets**2) / (2 * sigma**2)))[radius:]


def gaussian_blur(image: Image, sigma: float) -> Image:
    """Blur (H, W, 3) with a Gaussian truncated at four sigmas, edges repeated."""
    reach = int(4 * sigma + 0.5)
    weights, (height, width) = bell(sigma, reach), image.shape[:2]
    padded = pad_edges(image.astype(np.float32), reach, reach)
    rows = _weighted([padded[i : i + height] for i in range(2 * reach + 1)], weights)
    both = _weighted([rows[:, i : i + width] for i in range(2 * reach + 1)], weights)
    return both.astype(np.uint8)


def _weighted(windows: list[Floats], weights: Floats) -> Floats:
    """Sum the windows, of which those as far from the middle one share a weight."""
    middle = len(weights) - 1
    total: Floats = windows[middle] * weights[0]
    pair = np.empty_like(total)
    for by in range(1, middle + 1):
        np.add(windows[middle - by], windows[middle + by], out=pair)
        pair *= weights[by]
        total += pair
    return total


def pad_edges(values: Floats, rows: int, columns: int) -> Floats:
    """Repeat the edges of (H, W, C) by `rows` above and below, `columns` left and right."""
    return np.pad(values, ((rows, rows), (columns, columns), (0, 0)), "edge")


def motion_smear(values: Floats, radius: float, sigma: float, angle: float) -> Floats:
    """Smear (H, W, C) along `angle` degrees as ImageMagick's motion blur does.

    Half a Gaussian of 2⌈radius⌉ + 1 taps, each rounded to a whole pixel; edges repeated. As it is
    one-sided, it also shifts the picture. `sigma` is at least half a pixel, for tiny images.
    """
    sigma = max(sigma, 0.5)
    taps = 2 * ceil(radius) + 1
    weights = unit_weights(np.exp(-(np.arange(taps) ** 2) / (2 * sigma**2)))
    downs = [ceil(i * sin(radians(angle)) - 0.5) for i in range(taps)]
    rights = [ceil(i * cos(radians(angle)) - 0.5) for i in range(taps)]
    rows, columns = max(map(abs, downs)), max(map(abs, rights))
    padded = pad_edges(values, rows, columns)
    height, width = values.shape[:2]
    total, part = np.zeros_like(values), np.empty_like(values)
    for down, right, weight in zip(downs, rights, weights, strict=True):
        top, left = rows + down, columns + right
        np.multiply(padded[top : top + height, left : left + width], weight, out=part)
        total += part
    return total


def zoom_box(side: int, factor: float) -> tuple[int, int, float, float]:
    """Return the part of a side that is visible after zooming by `factor` and cropping to `side`.

    (first, count, start, stop): the `count` pixels from `first` on are stretched so that the
    centres of the outer ones stay outermost; (start, stop) is the middle `side` in Pillow's
    coordinates.
    """
    count = ceil(side / factor)
    grown = max(round(count * factor), side)
    step = (count - 1) / max(grown - 1, 1)
    start = (grown - side) // 2 * step + 0.5 - 0.5 * step
    return (side - count) // 2, count, start, min(start + side * step, float(count))


def reflect_on(places: Places, length: int) -> Places:
    """Fold places into 0…length - 1, mirrored on the edge pixels (c b | a b c | b a)."""
    period = max(2 * (length - 1), 1)
    folded = np.abs(places) % period
    mirrored: Places = np.minimum(folded, period - folded)
    return mirrored % length


def reflect_between(places: Places, length: int) -> Places:
    """Fold places into 0…length - 1, mirrored beyond the edges (b a | a b c | c b)."""
    folded = places % (2 * length)
    return np.minimum(folded, 2 * length - 1 - folded)


def sample(
    image: Image,
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    reflect: Reflect,
    rounded: bool = True,
) -> Image:
    """Return (H, W, 3): `image` at the places y, x (H, W), bilinear, rounded or truncated.

    The three channels of a pixel share one word, so that they need only one gather and product.
    """
    height, width = image.shape[:2]
    red, green, blue = image.transpose(2, 0, 1).astype(np.int64)
    words = red | green << _LANE | blue << 2 * _LANE
    half = 1 << (2 * _BITS - 1) if rounded else 0
    total = np.full((height, width), half | half << _LANE | half << 2 * _LANE)
    beside = _neighbours(x, width, reflect)
    for rows, by_row in _neighbours(y, height, reflect):
        for columns, by_column in beside:
            total += words.take(rows * width + columns) * (by_row * by_column)
    total >>= 2 * _BITS
    channels = (total, total >> _LANE, total >> 2 * _LANE)  # their lowest bytes
    return np.stack([channel.astype(np.uint8) for channel in channels], axis=-1)


def _neighbours(
    places: NDArray[np.float64], length: int, reflect: Reflect
) -> list[tuple[Places, Places]]:
    """Return the two pixels around each place, each with its weight in 64ths."""
    fine = np.rint(places * (1 << _BITS)).astype(np.intp)
    first = fine >> _BITS
    after = fine - (first << _BITS)
    # Folding is a slow remainder: do it once per whole place, not per pixel.
    lowest = first.min()
    folded = reflect(np.arange(lowest, first.max() + 2), length)
    first -= lowest
    return [(folded.take(first), (1 << _BITS) - after), (folded[1:].take(first), after)]

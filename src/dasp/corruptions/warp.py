"""Reading an image between its pixels, in whole numbers so that every machine agrees."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dasp.corruptions.base import Image

Places = NDArray[np.intp]
Reflect = Callable[[Places, int], Places]

_BITS = 6  # places are rounded to 1/64 pixel (OpenCV: 1/32)
_LANE = 8 + 2 * _BITS  # a byte times two weights; three such lanes fill 60 bits of a word


def reflect_on(places: Places, length: int) -> Places:
    """Fold places back into 0…length - 1, mirrored on the edge pixels (c b | a b c | b a)."""
    period = max(2 * (length - 1), 1)
    folded = np.abs(places) % period
    mirrored: Places = np.minimum(folded, period - folded)
    return mirrored % length


def reflect_between(places: Places, length: int) -> Places:
    """Fold places back into 0…length - 1, mirrored beyond the edges (b a | a b c | c b)."""
    folded = places % (2 * length)
    return np.minimum(folded, 2 * length - 1 - folded)


def sample(
    image: Image,
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    reflect: Reflect,
    rounded: bool = True,
) -> Image:
    """Return (H, W, 3): `image` read at the places y, x (H, W), bilinear, rounded or cut off.

    The three channels of a pixel share one word, so that one gather and one product serve them.
    """
    height, width = image.shape[:2]
    shifts = np.arange(3) * _LANE
    words = image[..., 0].astype(np.int64)
    for channel in (1, 2):
        words |= image[..., channel].astype(np.int64) << shifts[channel]
    rows, by_row = _neighbours(y, height, reflect)
    columns, by_column = _neighbours(x, width, reflect)
    half = 1 << (2 * _BITS - 1) if rounded else 0
    total = np.full((height, width), half * (1 << shifts).sum())
    for row, row_weight in zip(rows, by_row, strict=True):
        for column, column_weight in zip(columns, by_column, strict=True):
            total += words.take(row * width + column) * (row_weight * column_weight)
    result = np.empty_like(image)
    for channel in range(3):
        result[..., channel] = (total >> (shifts[channel] + 2 * _BITS)) & 255
    return result


def _neighbours(
    places: NDArray[np.float64], length: int, reflect: Reflect
) -> tuple[tuple[Places, Places], tuple[Places, Places]]:
    """Return the two pixels around each place, and their weights in 64ths."""
    fine = np.rint(places * (1 << _BITS)).astype(np.intp)
    first = fine >> _BITS
    lowest = int(first.min())
    # Folding is a slow remainder: do it once for each whole place, not for each pixel.
    folded = reflect(np.arange(lowest, int(first.max()) + 2), length)
    first -= lowest
    after = fine & ((1 << _BITS) - 1)
    return (folded.take(first), folded[1:].take(first)), ((1 << _BITS) - after, after)

"""How straight a curve of costs is: a line fitted to it, and how far the points lie from it."""

from collections.abc import Sequence

import numpy as np


def straightness(xs: Sequence[float], ys: Sequence[float]) -> dict[str, float]:
    """Fit cost = fixed + slope · x, and cost ∝ x^exponent.

    `deviation` is the largest distance of a point from the line, as a part of the line there. Fixed
    costs lower the exponent below 1 without bending the line.

    >>> straightness([1, 2, 4], [5.0, 7.0, 11.0])

    """
    x, y = np.asarray(xs, dtype=float), np.asarray(ys, dtype=float)
    # Each point weighs by its own size, as the deviation does: else the last ones decide alone.
    slope, fixed = np.polyfit(x, y, 1, w=1 / y)
    line = fixed + slope * x
    exponent = np.polyfit(np.log(x), np.log(y), 1)[0]
    found = {
        "fixed": fixed,
        "slope": slope,
        "deviation": np.max(np.abs(y - line) / np.abs(line)),
        "exponent": exponent,
    }
    return {name: float(f"{value:.4g}") for name, value in found.items()}

"""Sensor noise: Gaussian, shot and impulse."""

from functools import lru_cache
from math import exp

import numpy as np
from numpy.typing import NDArray

from dasp.corruptions.base import Image, corruption
from dasp.corruptions.kernels import to_bytes


@corruption("video", "gaussian_noise", family="noise")
def gaussian_noise(image: Image, severity: int, generator: np.random.Generator) -> Image:
    """Add normal noise to each value of (H, W, 3)."""
    sigma = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    noisy = generator.standard_normal(image.shape, dtype=np.float32)
    noisy *= np.float32(255 * sigma)
    noisy += image
    return to_bytes(noisy)


@corruption("video", "shot_noise", family="noise")
def shot_noise(image: Image, severity: int, generator: np.random.Generator) -> Image:
    """Replace each value of (H, W, 3) by a Poisson count of that mean; white is `photons`."""
    photons = (60, 25, 12, 5, 3)[severity - 1]
    keep, own, other = _shot_tables(photons)
    bits = (keep.size // 256).bit_length() - 1
    draws = generator.integers(0, 1 << 32, image.shape, dtype=np.uint32)
    cells = (draws >> np.uint32(32 - bits)).astype(np.intp)
    cells += image.astype(np.intp) << bits
    kept = (draws & np.uint32((1 << (32 - bits)) - 1)) < keep[cells]
    return np.where(kept, own[cells], other[cells])


@lru_cache(maxsize=5)
def _shot_tables(photons: int) -> tuple[NDArray[np.uint32], Image, Image]:
    """Return Walker's alias tables of the 256 Poisson laws, flat (256 · cells,).

    A draw selects a cell and, if the rest of it is below `keep`, its `own` byte, else its `other`.
    """
    cells = 1 << photons.bit_length()
    means = np.arange(256) / 255 * photons
    share = np.zeros((256, cells))
    share[:, 0] = [exp(-mean) for mean in means]
    for count in range(1, photons):
        share[:, count] = share[:, count - 1] * means / count
    share[:, photons] = np.maximum(0, 1 - share.sum(axis=1))
    share *= cells  # mean one per cell; cells below one are filled up from the largest
    keep, alias = np.ones_like(share), np.tile(np.arange(cells), (256, 1))
    rows, open_cells = np.arange(256), np.ones(share.shape, bool)
    for _ in range(cells - 1):
        poor = np.argmin(np.where(open_cells, share, np.inf), axis=1)
        rich = np.argmax(np.where(open_cells, share, -np.inf), axis=1)
        keep[rows, poor] = np.minimum(share[rows, poor], 1)
        alias[rows, poor] = rich
        share[rows, rich] -= 1 - keep[rows, poor]
        open_cells[rows, poor] = False
    values = (np.minimum(np.arange(cells) / photons, 1) * 255).astype(np.uint8)
    limit = 1 << (33 - cells.bit_length())
    return (
        np.rint(keep * limit).astype(np.uint32).ravel(),
        np.tile(values, 256),
        values[alias].ravel(),
    )


@corruption("video", "impulse_noise", family="noise")
def impulse_noise(image: Image, severity: int, generator: np.random.Generator) -> Image:
    """Set a share of the values of (H, W, 3) to black or white, half each."""
    amount = (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1]
    draws = generator.integers(0, 1 << 16, image.shape, dtype=np.uint16)
    white, hit = round(amount / 2 * 65536), round(amount * 65536)
    noisy = np.where(draws < hit, np.uint8(0), image)
    noisy[draws < white] = 255
    return noisy

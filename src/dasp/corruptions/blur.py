"""Blur: defocus, frosted glass, motion and zoom."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dasp.core.extras import Pillow
from dasp.corruptions.base import Image, corruption
from dasp.corruptions.kernels import (
    bell,
    gaussian_blur,
    motion_smear,
    scale_of,
    to_bytes,
    zoom_box,
)


@corruption("video", "defocus_blur", family="blur")
def defocus_blur(image: Image, severity: int, generator: np.random.Generator) -> Image:  # noqa: ARG001
    """Convolve (H, W, 3) with a disk; the picture is mirrored at its edges."""
    at_224, softness = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity - 1]
    radius = max(at_224 * scale_of(image), 1.0)
    reach = lens_kernel(radius, softness).shape[0] // 2
    planes = np.pad(image.transpose(2, 0, 1), ((0, 0), (reach, reach), (reach, reach)), "reflect")
    size = (planes.shape[1], planes.shape[2])
    spectrum = np.fft.rfft2(planes)
    spectrum *= _lens_spectrum(radius, softness, size)
    blurred = np.fft.irfft2(spectrum, size)[:, 2 * reach :, 2 * reach :]
    # Weights are multiples of 2⁻²⁴, so the sums are integers: rounding makes them exact.
    blurred = np.rint(blurred.transpose(1, 2, 0)) * 2.0**-24
    return np.minimum(blurred, 255).astype(np.uint8, order="C")


@lru_cache(maxsize=32)
def lens_kernel(radius: float, softness: float) -> NDArray[np.float64]:
    """Return the disk (n, n) with its rim softened by a Gaussian of `softness` pixels.

    The softening mirrors the disk at the border of its square: as in the original, a disk that
    reaches it (radius 8 and more) makes the picture about 1 % brighter.
    """
    reach = max(int(np.ceil(radius)), 8)
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    half = bell(softness, 1 if radius <= 8 else 2)
    soft = np.concatenate([half[:0:-1], half]).astype(np.float64)
    margin = len(half) - 1
    wide = np.pad(disk / disk.sum(), margin, "reflect")
    rows = sum(w * wide[i : i + len(line)] for i, w in enumerate(soft))
    return np.asarray(sum(w * rows[:, i : i + len(line)] for i, w in enumerate(soft)))


@lru_cache(maxsize=8)
def _lens_spectrum(radius: float, softness: float, size: tuple[int, int]) -> NDArray[np.complex128]:
    return np.fft.rfft2(np.rint(lens_kernel(radius, softness) * 2**24), size)


@corruption("video", "glass_blur", family="blur")
def glass_blur(image: Image, severity: int, generator: np.random.Generator) -> Image:
    """Blur (H, W, 3), replace each pixel by one nearby, blur again."""
    sigma, reach, rounds = ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))[
        severity - 1
    ]
    sigma, reach = sigma * scale_of(image), max(round(reach * scale_of(image)), 1)
    height, width = image.shape[:2]
    source = np.arange(height * width)
    for _ in range(rounds):
        source = source[scatter_sources(height, width, reach, generator)]
    pixels = gaussian_blur(image, sigma).reshape(-1, 3)
    return gaussian_blur(pixels.take(source, axis=0).reshape(image.shape), sigma)


def scatter_sources(
    height: int, width: int, reach: int, generator: np.random.Generator
) -> NDArray[np.intp]:
    """Return for each pixel the index (H·W,) of the one it shows after one round of scattering.

    The original walks over the pixels from the last to the first; each takes the colour that a
    neighbour at most `reach` away has *at that moment*: its new one if it was visited before, else
    its old one. Following these pointers, each round of `hop[hop]` doubling the distance, gives the
    loop's result to the bit in about five gathers.
    """
    here = np.arange(height * width)
    target = here.copy()
    visited = np.zeros((height, width), bool)
    inside = (slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1))
    visited[inside] = True
    down, right = generator.integers(-reach, reach, (2, *visited[inside].shape), dtype=np.int16)
    target.reshape(height, width)[inside] += down * np.intp(width) + right
    hop = np.where((target > here) & visited.ravel().take(target), target, here)
    while True:
        further = hop.take(hop)
        if np.array_equal(further, hop):
            return target.take(hop)
        hop = further


@corruption("video", "motion_blur", family="blur")
def motion_blur(image: Image, severity: int, generator: np.random.Generator) -> Image:
    """Smear (H, W, 3) to one side, within 45° of the horizontal."""
    radius, sigma = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))[severity - 1]
    scale = scale_of(image)
    angle = generator.uniform(-45, 45)
    smeared = motion_smear(image.astype(np.float32), radius * scale, sigma * scale, angle)
    return to_bytes(smeared)


@corruption("video", "zoom_blur", family="blur")
def zoom_blur(image: Image, severity: int, generator: np.random.Generator) -> Image:  # noqa: ARG001
    """Average (H, W, 3) over zooms towards the centre; the unzoomed picture counts twice."""
    count, step = ((12, 0.01), (16, 0.01), (11, 0.02), (13, 0.02), (11, 0.03))[severity - 1]
    height, width = image.shape[:2]
    picture = Pillow.fromarray(image)
    total = image.astype(np.uint16) * np.uint16(2)
    for zoom in range(1, count):
        top, _, upper, lower = zoom_box(height, 1 + zoom * step)
        left, _, start, stop = zoom_box(width, 1 + zoom * step)
        box = (left + start, top + upper, left + stop, top + lower)
        total += np.asarray(picture.resize((width, height), Pillow.Resampling.BILINEAR, box))
    return (total // np.uint16(count + 1)).astype(np.uint8)

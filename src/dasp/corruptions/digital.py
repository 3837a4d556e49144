"""Digital corruptions: contrast, elastic warps, pixelation and JPEG."""

from functools import lru_cache
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from dasp.core.extras import Pillow
from dasp.corruptions.base import Image, corruption
from dasp.corruptions.kernels import reflect_between, reflect_on, sample


@corruption("video", "contrast", family="digital")
def contrast(image: Image, severity: int, generator: np.random.Generator) -> Image:  # noqa: ARG001
    """Move each channel of (H, W, 3) towards its mean."""
    keep = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]
    picture = Pillow.fromarray(image)
    levels = np.arange(256)
    means = np.reshape(picture.histogram(), (3, 256)) @ levels / (image.size // 3)
    table = ((levels - means[:, None]) * keep + means[:, None]).astype(np.uint8)
    return np.array(picture.point(table.ravel().tolist()))


@corruption("video", "elastic_transform", family="digital")
def elastic_transform(image: Image, severity: int, generator: np.random.Generator) -> Image:
    """Move three points of (H, W, 3) at random, then each pixel by a smooth random field.

    Lengths are shares of the shorter side, of 224 pixels in the reference figures.
    """
    strength, smoothness, shift = (
        (2, 0.7, 0.1),
        (2, 0.08, 0.2),
        (0.05, 0.01, 0.02),
        (0.07, 0.01, 0.02),
        (0.12, 0.01, 0.02),
    )[severity - 1]
    height, width = image.shape[:2]
    side = min(height, width)
    centre = np.array([width // 2, height // 2])
    before = centre + side // 3 * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    after = before + generator.uniform(-shift * side, shift * side, before.shape)
    # The (2, 3) map from a place in the tilted picture to its place in the image:
    back = np.linalg.solve(np.column_stack([after, np.ones(3)]), before).T
    columns, rows = np.arange(width), np.arange(height)[:, None]
    x, y = (of_x * columns + of_y * rows + shifted for of_x, of_y, shifted in back)
    tilted = sample(image, y, x, reflect_on)
    # Uniform noise in ±1 under a Gaussian, mirrored at the edges. 16-bit noise and 18-bit weights
    # make every product and sum exact in float64, on any machine.
    noise = generator.integers(-(2**15), 2**15, (2, height, width), dtype=np.int16)
    tall, wide = (_mirrored_gaussian(length, smoothness * side) for length in (height, width))
    right, down = strength * side * (tall @ noise.astype(np.float64) @ wide.T / 2**15)
    # The release truncates once, at the end, when converting to bytes.
    return sample(tilted, rows + down, columns + right, reflect_between, rounded=False)


@lru_cache(maxsize=8)
def _mirrored_gaussian(length: int, sigma: float) -> NDArray[np.float64]:
    """Return the matrix (length, length) of a Gaussian truncated at three sigmas, however wide."""
    radius = int(3 * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    matrix = np.zeros((length, length))
    places = np.arange(length)
    for offset, weight in zip(offsets, weights / weights.sum(), strict=True):
        matrix[places, reflect_between(places + offset, length)] += weight
    return np.rint(matrix * 2**18) / 2**18


@corruption("video", "pixelate", family="digital")
def pixelate(image: Image, severity: int, generator: np.random.Generator) -> Image:  # noqa: ARG001
    """Shrink (H, W, 3) by averaging and enlarge it again by repeating."""
    share = (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1]
    height, width = image.shape[:2]
    small = (max(int(width * share), 1), max(int(height * share), 1))
    picture = Pillow.fromarray(image).resize(small, Pillow.Resampling.BOX)
    return np.array(picture.resize((width, height), Pillow.Resampling.BOX))


@corruption("video", "jpeg_compression", family="digital")
def jpeg_compression(image: Image, severity: int, generator: np.random.Generator) -> Image:  # noqa: ARG001
    """Encode (H, W, 3) as a low-quality JPEG and decode it."""
    quality = (25, 18, 15, 10, 7)[severity - 1]
    file = BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=quality)
    return np.array(Pillow.open(file))

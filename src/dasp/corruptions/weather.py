"""Weather: snow, frost, fog and brightness."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from dasp.core.extras import Pillow
from dasp.corruptions.base import Image, corruption
from dasp.corruptions.frost import texture_window
from dasp.corruptions.kernels import Floats, motion_smear, scale_of, to_bytes, zoom_box


@corruption("video", "snow", family="weather")
def snow(image: Image, severity: int, generator: np.random.Generator) -> Image:
    """Whiten (H, W, 3) and add flakes: enlarged noise, thresholded and smeared."""
    mean, spread, size, threshold, radius, sigma, keep = (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    )[severity - 1]
    scale = scale_of(image)
    height, width = image.shape[:2]
    flakes = _enlarged_noise(height, width, max(size * scale, 1.0), generator)
    flakes *= np.float32(255 * spread)
    flakes += np.float32(255 * mean)
    flakes[flakes < 255 * threshold] = 0
    falling = to_bytes(flakes)[..., None].astype(np.float32)
    angle = generator.uniform(-135, -45)
    smeared = motion_smear(falling, radius * scale, sigma * scale, angle)[..., 0]
    layer = np.floor(smeared)
    layer += layer[::-1, ::-1].copy()
    planes = image.transpose(2, 0, 1).astype(np.float32)
    red, green, blue = planes
    grey = red * np.float32(0.299) + green * np.float32(0.587) + blue * np.float32(0.114)
    pale = np.maximum(planes, grey * np.float32(1.5) + np.float32(127.5))
    pale *= np.float32(1 - keep)
    planes *= np.float32(keep)
    planes += pale
    planes += layer
    return np.ascontiguousarray(to_bytes(planes).transpose(1, 2, 0))


def _enlarged_noise(
    height: int, width: int, factor: float, generator: np.random.Generator
) -> Floats:
    """Return normal noise (H, W) enlarged by `factor`; only the visible part is drawn."""
    _, rows, top, bottom = zoom_box(height, factor)
    _, columns, left, right = zoom_box(width, factor)
    noise = Pillow.fromarray(generator.standard_normal((rows, columns), dtype=np.float32))
    box = (left, top, right, bottom)
    return np.array(noise.resize((width, height), Pillow.Resampling.BILINEAR, box))


@corruption("video", "frost", family="weather", takes_folder=True)
def frost(
    image: Image, severity: int, generator: np.random.Generator, folder: str | Path | None = None
) -> Image:
    """Add part of an ice texture to a darkened (H, W, 3); `folder` has the user's textures."""
    of_image, of_ice = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[severity - 1]
    height, width = image.shape[:2]
    frosted = texture_window(height, width, generator, folder).astype(np.float32)
    frosted *= np.float32(of_ice)
    frosted += image * np.float32(of_image)
    return to_bytes(frosted)


@corruption("video", "fog", family="weather")
def fog(image: Image, severity: int, generator: np.random.Generator) -> Image:
    """Blend (H, W, 3) with a grey plasma cloud."""
    thickness, decay = ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))[severity - 1]
    height, width = image.shape[:2]
    cloud = plasma(max(height, width), decay, generator)[:height, :width]
    brightest = int(image.max()) / 255
    share = brightest / (brightest + thickness)
    foggy = np.repeat(cloud * np.float32(255 * thickness * share), 3, axis=1)
    foggy += image.reshape(height, width * 3) * np.float32(share)
    return to_bytes(foggy).reshape(image.shape)


def plasma(side: int, decay: float, generator: np.random.Generator) -> Floats:
    """Return a square cloud in 0…1, at least `side` wide, a power of two (diamond-square).

    Each pass halves the grid: a new point is the mean of its four neighbours, on a torus, plus a
    uniform offset that is smaller in each pass.
    """
    side = 1 << max(side - 1, 1).bit_length()
    cloud = np.zeros((side, side), np.float32)
    step, wobble = side, 100.0
    while step >= 2:
        half = step // 2
        count = side // step
        offsets = generator.random((3, count, count), dtype=np.float32)
        offsets -= np.float32(0.5)
        offsets *= np.float32(2 * wobble * wobble)
        corner = cloud[::step, ::step]
        right, below = np.roll(corner, -1, 1), np.roll(corner, -1, 0)
        middle = (corner + right + below + np.roll(below, -1, 1)) / 4 + offsets[0]
        across = (corner + right + middle + np.roll(middle, 1, 0)) / 4 + offsets[1]
        down = (corner + below + middle + np.roll(middle, 1, 1)) / 4 + offsets[2]
        cloud[half::step, half::step] = middle
        cloud[::step, half::step] = across
        cloud[half::step, ::step] = down
        step, wobble = half, wobble / decay
    cloud -= cloud.min()
    cloud /= cloud.max()
    return cloud


@corruption("video", "brightness", family="weather")
def brightness(image: Image, severity: int, generator: np.random.Generator) -> Image:  # noqa: ARG001
    """Raise the value of each pixel of (H, W, 3) in hue-saturation-value space."""
    lift = (0.1, 0.2, 0.3, 0.4, 0.5)[severity - 1]
    red, green, blue = image.transpose(2, 0, 1)
    value = np.maximum(np.maximum(red, green), blue).astype(np.intp)
    cells = np.repeat(value << 8, 3, axis=1) + image.reshape(len(image), -1)
    return _lift_table(lift).take(cells).reshape(image.shape)


@lru_cache(maxsize=5)
def _lift_table(lift: float) -> Image:
    """Return the new byte of a channel by (value of its pixel, its old byte), flat (65536,).

    Channels are proportional to the value of their pixel; black becomes grey.
    """
    value = np.arange(256)[:, None]
    lifted = np.minimum(value + 255 * lift, 255)
    table = np.where(value > 0, np.arange(256) * lifted / np.maximum(value, 1), lifted)
    return np.asarray(np.minimum(table, 255), np.uint8).ravel()

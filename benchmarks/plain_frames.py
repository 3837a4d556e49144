"""The fifteen frame corruptions the plain way, as the released scripts compute them.

The yardstick of `corruptions.py`: the same libraries (scikit-image, SciPy, OpenCV), float64 arrays,
NumPy's global random state and a Python loop over pixels in glass blur. ImageMagick's motion blur
is written out, and frost reads its texture from memory instead of from a file, which only makes
this side faster. Needs `pip install scikit-image opencv-python-headless`.
"""

# ruff: noqa: NPY002  (the global random state is part of what is being timed)

from collections.abc import Callable
from io import BytesIO
from math import ceil, cos, radians, sin

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from scipy.ndimage import map_coordinates, zoom
from skimage.color import hsv2rgb, rgb2hsv
from skimage.filters import gaussian
from skimage.util import random_noise

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

cv2.setNumThreads(1)


def to_bytes(unit: Array) -> Image:
    return np.uint8(np.clip(unit, 0, 1) * 255)


def gaussian_noise(image: Image, severity: int) -> Image:
    sigma = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    return to_bytes(image / 255.0 + np.random.normal(scale=sigma, size=image.shape))


def shot_noise(image: Image, severity: int) -> Image:
    photons = (60, 25, 12, 5, 3)[severity - 1]
    return to_bytes(np.random.poisson(image / 255.0 * photons) / photons)


def impulse_noise(image: Image, severity: int) -> Image:
    amount = (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1]
    return to_bytes(random_noise(image / 255.0, mode="s&p", amount=amount))


def disk(radius: int, alias_blur: float) -> NDArray[np.float32]:
    reach = max(radius, 8)
    line = np.arange(-reach, reach + 1)
    full = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    size = 3 if radius <= 8 else 5
    return cv2.GaussianBlur(full / full.sum(), (size, size), alias_blur)


def defocus_blur(image: Image, severity: int) -> Image:
    kernel = disk(*((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity - 1])
    unit = image / 255.0
    return to_bytes(np.stack([cv2.filter2D(unit[..., c], -1, kernel) for c in range(3)], axis=-1))


def glass_blur(image: Image, severity: int) -> Image:
    sigma, reach, rounds = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))[
        severity - 1
    ]
    x = to_bytes(gaussian(image / 255.0, sigma=sigma, channel_axis=-1))
    for _ in range(rounds):
        for row in range(x.shape[0] - reach, reach, -1):
            for column in range(x.shape[1] - reach, reach, -1):
                dx, dy = np.random.randint(-reach, reach, size=(2,))
                # The released line is a swap of two views, which in NumPy is this copy.
                x[row, column] = x[row + dy, column + dx]
    return to_bytes(gaussian(x / 255.0, sigma=sigma, channel_axis=-1))


def smear(image: NDArray[np.uint8], radius: int, sigma: float, angle: float) -> Array:
    width = 2 * radius + 1
    weights = np.exp(-(np.arange(width) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    edge = [(width, width), (width, width)] + [(0, 0)] * (image.ndim - 2)
    padded = np.pad(image, edge, mode="edge")
    height, wide = image.shape[:2]
    total = np.zeros(image.shape)
    for step, weight in enumerate(weights):
        top = width + ceil(step * sin(radians(angle)) - 0.5)
        left = width + ceil(step * cos(radians(angle)) - 0.5)
        total += weight * padded[top : top + height, left : left + wide]
    return total


def motion_blur(image: Image, severity: int) -> Image:
    radius, sigma = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))[severity - 1]
    return np.uint8(np.clip(smear(image, radius, sigma, np.random.uniform(-45, 45)), 0, 255))


def clipped_zoom(x: NDArray[np.floating], factor: float) -> NDArray[np.floating]:
    side = x.shape[0]
    crop = ceil(side / factor)
    top = (side - crop) // 2
    grown = zoom(x[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
    trim = (grown.shape[0] - side) // 2
    return grown[trim : trim + side, trim : trim + side]


def zoom_blur(image: Image, severity: int) -> Image:
    last, step = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))[
        severity - 1
    ]
    unit = (image / 255.0).astype(np.float32)
    factors = np.arange(1, last, step)
    total = unit + sum(clipped_zoom(unit, factor) for factor in factors)
    return to_bytes(total / (len(factors) + 1))


def snow(image: Image, severity: int) -> Image:
    mean, sd, factor, threshold, radius, sigma, keep = (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    )[severity - 1]
    unit = image.astype(np.float32) / 255
    flakes = clipped_zoom(np.random.normal(mean, sd, image.shape[:2])[..., None], factor)[..., 0]
    flakes[flakes < threshold] = 0
    flakes = np.uint8(np.clip(flakes, 0, 1) * 255)
    layer = smear(flakes, radius, sigma, np.random.uniform(-135, -45))[..., None] / 255
    grey = cv2.cvtColor(unit, cv2.COLOR_RGB2GRAY)[..., None]
    pale = keep * unit + (1 - keep) * np.maximum(unit, grey * 1.5 + 0.5)
    return to_bytes(pale + layer + layer[::-1, ::-1])


def frost(image: Image, severity: int, texture: Image) -> Image:
    of_image, of_ice = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[severity - 1]
    height, width = image.shape[:2]
    top = np.random.randint(texture.shape[0] - height)
    left = np.random.randint(texture.shape[1] - width)
    ice = texture[top : top + height, left : left + width][..., [2, 1, 0]]
    return np.uint8(np.clip(of_image * image + of_ice * ice, 0, 255))


def plasma(side: int, decay: float) -> Array:
    field = np.zeros((side, side))
    step, wobble = side, 100.0

    def jitter(total: Array) -> Array:
        return total / 4 + wobble * np.random.uniform(-wobble, wobble, total.shape)

    while step >= 2:
        half = step // 2
        corners = field[::step, ::step]
        pairs = corners + np.roll(corners, -1, 0)
        middles = field[half::step, half::step] = jitter(pairs + np.roll(pairs, -1, 1))
        across = corners + np.roll(corners, -1, 1) + middles + np.roll(middles, 1, 0)
        field[::step, half::step] = jitter(across)
        down = corners + np.roll(corners, -1, 0) + middles + np.roll(middles, 1, 1)
        field[half::step, ::step] = jitter(down)
        step, wobble = half, wobble / decay
    field -= field.min()
    return field / field.max()


def fog(image: Image, severity: int) -> Image:
    thickness, decay = ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))[severity - 1]
    unit = image / 255.0
    brightest = unit.max()
    unit += thickness * plasma(256, decay)[: image.shape[0], : image.shape[1], None]
    return to_bytes(unit * brightest / (brightest + thickness))


def brightness(image: Image, severity: int) -> Image:
    hsv = rgb2hsv(image / 255.0)
    hsv[..., 2] = np.clip(hsv[..., 2] + severity / 10, 0, 1)
    return to_bytes(hsv2rgb(hsv))


def contrast(image: Image, severity: int) -> Image:
    unit = image / 255.0
    means = unit.mean(axis=(0, 1), keepdims=True)
    return to_bytes((unit - means) * (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1] + means)


def elastic_transform(image: Image, severity: int) -> Image:
    alpha, sigma, shift = (
        (448, 156.8, 22.4),
        (448, 17.92, 44.8),
        (11.2, 2.24, 4.48),
        (15.68, 2.24, 4.48),
        (26.88, 2.24, 4.48),
    )[severity - 1]
    unit = image.astype(np.float32) / 255
    height, width = image.shape[:2]
    middle, arm = np.float32([height // 2, width // 2]), min(height, width) // 3
    before = np.float32([middle + arm, [middle[0] + arm, middle[1] - arm], middle - arm])
    after = before + np.random.uniform(-shift, shift, before.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(before, after)
    unit = cv2.warpAffine(unit, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    dx, dy = (
        gaussian(np.random.uniform(-1, 1, (height, width)), sigma, mode="reflect", truncate=3)
        for _ in range(2)
    )
    x, y, c = np.meshgrid(np.arange(width), np.arange(height), np.arange(3))
    where = (y + alpha * dy[..., None]).ravel(), (x + alpha * dx[..., None]).ravel(), c.ravel()
    return to_bytes(map_coordinates(unit, where, order=1, mode="reflect").reshape(unit.shape))


def pixelate(image: Image, severity: int) -> Image:
    share = (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1]
    height, width = image.shape[:2]
    small = Pillow.fromarray(image).resize((int(width * share), int(height * share)), Pillow.BOX)
    return np.asarray(small.resize((width, height), Pillow.BOX))


def jpeg_compression(image: Image, severity: int) -> Image:
    file = BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=(25, 18, 15, 10, 7)[severity - 1])
    return np.asarray(Pillow.open(file))


PLAIN: dict[str, Callable[..., Image]] = {
    function.__name__: function
    for function in (
        gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur,
        zoom_blur, snow, frost, fog, brightness, contrast, elastic_transform, pixelate,
        jpeg_compression,
    )
}  # fmt: skip

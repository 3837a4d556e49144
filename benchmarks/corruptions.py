"""How fast the frame corruptions are: times the speed of a plain implementation, 224 × 224 pixels.

    python benchmarks/corruptions.py                      # two minutes
    python benchmarks/corruptions.py --seconds 0.2        # a quick look

The plain side computes the same fifteen corruptions as the released scripts do: scikit-image, SciPy
and OpenCV, float64 arrays, NumPy's global random state and a Python loop over pixels in glass blur.
Motion blur does without ImageMagick's detour through PNG, and frost decodes its texture from
memory: both make this side faster than the scripts are. One core, processor time, all five
severities averaged. Needs `pip install scikit-image opencv-python-headless`.
"""

# ruff: noqa: NPY002  (the global random state is part of what is being timed)

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: one core means one core

import time
from functools import cache
from io import BytesIO
from math import ceil, cos, radians, sin

import cv2
import numpy as np
from measuring import finish, parse
from PIL import Image as Pillow
from rich.progress import track
from scipy.ndimage import map_coordinates, zoom
from skimage.color import hsv2rgb, rgb2hsv
from skimage.data import astronaut
from skimage.filters import gaussian
from skimage.util import random_noise

from dasp.corruptions import corrupt_frame, names
from dasp.corruptions.frost import grow_texture

cv2.setNumThreads(1)
PLAIN = {}  # {name: (corruption(image, *parameters), parameters by severity)}


def plain(*parameters):
    """Register a plain corruption with its parameters by severity."""

    def add(function):
        PLAIN[function.__name__] = function, parameters
        return function

    return add


def to_bytes(unit):
    return np.uint8(np.clip(unit, 0, 1) * 255)


@plain(0.08, 0.12, 0.18, 0.26, 0.38)
def gaussian_noise(image, sigma):
    return to_bytes(image / 255.0 + np.random.normal(scale=sigma, size=image.shape))


@plain(60, 25, 12, 5, 3)
def shot_noise(image, photons):
    return to_bytes(np.random.poisson(image / 255.0 * photons) / photons)


@plain(0.03, 0.06, 0.09, 0.17, 0.27)
def impulse_noise(image, amount):
    return to_bytes(random_noise(image / 255.0, mode="s&p", amount=amount))


@plain((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))
def defocus_blur(image, radius, alias_blur):
    reach = max(radius, 8)
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    size = 3 if radius <= 8 else 5
    kernel = cv2.GaussianBlur(disk / disk.sum(), (size, size), alias_blur)
    unit = image / 255.0
    return to_bytes(np.stack([cv2.filter2D(unit[..., c], -1, kernel) for c in range(3)], axis=-1))


@plain((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))
def glass_blur(image, sigma, reach, rounds):
    x = to_bytes(gaussian(image / 255.0, sigma=sigma, channel_axis=-1))
    for _ in range(rounds):
        for row in range(x.shape[0] - reach, reach, -1):
            for column in range(x.shape[1] - reach, reach, -1):
                dx, dy = np.random.randint(-reach, reach, size=(2,))
                # The released line is a swap of two views, which in NumPy is this copy.
                x[row, column] = x[row + dy, column + dx]
    return to_bytes(gaussian(x / 255.0, sigma=sigma, channel_axis=-1))


def smear(image, radius, sigma, angle):
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


@plain((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))
def motion_blur(image, radius, sigma):
    return np.uint8(np.clip(smear(image, radius, sigma, np.random.uniform(-45, 45)), 0, 255))


def clipped_zoom(x, factor):
    side = x.shape[0]
    crop = ceil(side / factor)
    top = (side - crop) // 2
    grown = zoom(x[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
    trim = (grown.shape[0] - side) // 2
    return grown[trim : trim + side, trim : trim + side]


@plain((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
def zoom_blur(image, last, step):
    unit = (image / 255.0).astype(np.float32)
    factors = np.arange(1, last, step)
    total = unit + sum(clipped_zoom(unit, factor) for factor in factors)
    return to_bytes(total / (len(factors) + 1))


@plain(
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
)  # fmt: skip
def snow(image, mean, sd, factor, threshold, radius, sigma, keep):
    unit = image.astype(np.float32) / 255
    flakes = clipped_zoom(np.random.normal(mean, sd, image.shape[:2])[..., None], factor)[..., 0]
    flakes[flakes < threshold] = 0
    layer = smear(to_bytes(flakes), radius, sigma, np.random.uniform(-135, -45))[..., None] / 255
    grey = cv2.cvtColor(unit, cv2.COLOR_RGB2GRAY)[..., None]
    pale = keep * unit + (1 - keep) * np.maximum(unit, grey * 1.5 + 0.5)
    return to_bytes(pale + layer + layer[::-1, ::-1])


@cache
def ice_file():
    return cv2.imencode(".png", grow_texture(0))[1]


@plain((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))
def frost(image, of_image, of_ice):
    texture = cv2.imdecode(ice_file(), cv2.IMREAD_COLOR)
    height, width = image.shape[:2]
    top = np.random.randint(texture.shape[0] - height)
    left = np.random.randint(texture.shape[1] - width)
    ice = texture[top : top + height, left : left + width][..., [2, 1, 0]]
    return np.uint8(np.clip(of_image * image + of_ice * ice, 0, 255))


def plasma(side, decay):
    field = np.zeros((side, side))
    step, wobble = side, 100.0

    def jitter(total):
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


@plain((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))
def fog(image, thickness, decay):
    unit = image / 255.0
    brightest = unit.max()
    unit += thickness * plasma(256, decay)[: image.shape[0], : image.shape[1], None]
    return to_bytes(unit * brightest / (brightest + thickness))


@plain(0.1, 0.2, 0.3, 0.4, 0.5)
def brightness(image, lift):
    hsv = rgb2hsv(image / 255.0)
    hsv[..., 2] = np.clip(hsv[..., 2] + lift, 0, 1)
    return to_bytes(hsv2rgb(hsv))


@plain(0.4, 0.3, 0.2, 0.1, 0.05)
def contrast(image, share):
    unit = image / 255.0
    means = unit.mean(axis=(0, 1), keepdims=True)
    return to_bytes((unit - means) * share + means)


@plain(
    (448, 156.8, 22.4), (448, 17.92, 44.8), (11.2, 2.24, 4.48), (15.68, 2.24, 4.48),
    (26.88, 2.24, 4.48),
)  # fmt: skip
def elastic_transform(image, alpha, sigma, shift):
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


@plain(0.6, 0.5, 0.4, 0.3, 0.25)
def pixelate(image, share):
    height, width = image.shape[:2]
    small = Pillow.fromarray(image).resize((int(width * share), int(height * share)), Pillow.BOX)
    return np.asarray(small.resize((width, height), Pillow.BOX))


@plain(25, 18, 15, 10, 7)
def jpeg_compression(image, quality):
    file = BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Pillow.open(file))


def milliseconds(call, seconds):
    """Return the mean over severities of the median processor time of `call(severity)`."""
    medians = []
    for severity in range(1, 6):
        call(severity)  # tables and caches are filled here
        times: list[float] = []
        end = time.perf_counter() + seconds / 5
        while len(times) < 3 or time.perf_counter() < end:
            start = time.thread_time()
            call(severity)
            times.append(time.thread_time() - start)
        medians.append(np.median(times))
    return float(np.mean(medians)) * 1000


def measure(name, image, seconds):
    corrupt, parameters = PLAIN[name]
    own = milliseconds(lambda severity: corrupt_frame(image, name, severity), seconds)
    given = [value if isinstance(value, tuple) else (value,) for value in parameters]
    other = milliseconds(lambda severity: corrupt(image, *given[severity - 1]), seconds)
    return {"ours": own, "plain": other, "gain": other / own}


def main() -> None:
    options = parse(__doc__, size=224, seconds=2.0)
    side = (options.size, options.size)
    image = np.asarray(Pillow.fromarray(astronaut()).resize(side, Pillow.BILINEAR))
    wanted = track(names("video"), "timing", transient=True)
    rows = {name: measure(name, image, options.seconds) for name in wanted}
    others = [row for name, row in rows.items() if name != "glass_blur"]
    total = sum(row["plain"] for row in others) / sum(row["ours"] for row in others)
    gains = {
        "glass_blur": round(rows["glass_blur"]["gain"], 1),
        "others": round(float(np.mean([row["gain"] for row in others])), 2),
        "others_in_total": round(total, 2),
    }
    figures = {"times_the_plain_speed": gains, "by_corruption": rows}
    finish(options, "Frame corruptions against a plain implementation", figures)


if __name__ == "__main__":
    main()

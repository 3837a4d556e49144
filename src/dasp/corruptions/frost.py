"""Ice textures of the frost corruption: generated from a seed, or read from a directory."""

from functools import lru_cache
from math import cos, pi, sin
from pathlib import Path

import numpy as np

from dasp.core.errors import DataError
from dasp.core.extras import Pillow, extra
from dasp.core.seeding import numpy_generator
from dasp.corruptions.base import Image
from dasp.corruptions.kernels import Floats

TEXTURES = 5  # as many as the original draws from
_SIDE = 512
_FINE = 2  # crystals are drawn this many times larger, for smooth edges
_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp"}


def texture_window(
    height: int, width: int, generator: np.random.Generator, folder: str | Path | None = None
) -> Image:
    """Return a random window (H, W, 3) of a random texture.

    It is cropped at the scale of a shorter side of 224 and resized for others.
    """
    if folder is None:
        ice = grow_texture(int(generator.integers(TEXTURES)))
    else:
        files = _texture_files(folder)
        ice = _read_texture(files[generator.integers(len(files))])
    scale = max(min(height, width) / 224, height / ice.shape[0], width / ice.shape[1])
    tall, wide = round(height / scale), round(width / scale)
    top = int(generator.integers(ice.shape[0] - tall + 1))
    left = int(generator.integers(ice.shape[1] - wide + 1))
    window = ice[top : top + tall, left : left + wide]
    if (tall, wide) == (height, width):
        return window
    return np.asarray(Pillow.fromarray(window).resize((width, height), Pillow.Resampling.BILINEAR))


@lru_cache(maxsize=8)
def _texture_files(folder: str | Path) -> tuple[Path, ...]:
    """Return the pictures of `folder`, sorted by name."""
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"frost_dir '{root}' is not a directory: give one with pictures of ice.")
    files = sorted(path for path in root.iterdir() if path.suffix.lower() in _SUFFIXES)
    if not files:
        raise DataError(
            f"frost_dir '{root}' has no pictures ({', '.join(sorted(_SUFFIXES))}): "
            "put ImageNet-C's frost pictures there, or omit the option to generate ice."
        )
    return tuple(files)


@lru_cache(maxsize=16)
def _read_texture(path: Path) -> Image:
    try:
        with Pillow.open(path) as picture:
            ice = np.array(picture.convert("RGB"))
    except OSError as error:
        raise DataError(f"frost texture '{path}' cannot be read ({error}): replace it.") from error
    ice.flags.writeable = False
    return ice


@lru_cache(maxsize=TEXTURES)
def grow_texture(number: int) -> Image:
    """Generate texture `number` (512, 512, 3): feathers of ice on mist, always the same."""
    generator = numpy_generator(number, "frost texture")
    feathers = _feathers(generator)
    soft = _enlarged(Pillow.fromarray(feathers).resize((64, 64), Pillow.Resampling.BOX))
    light = feathers + 0.7 * soft + 0.08 * _mist(generator)
    light += 0.03 * generator.standard_normal(light.shape, dtype=np.float32)
    # In float64: the last digits of a large float32 mean depend on the processor.
    light = light.astype(np.float64)
    light = (light - light.mean()) / light.std()
    coloured = light[..., None] * (36, 34, 31) + (107, 119, 132)
    ice: Image = np.clip(coloured, 0, 255).astype(np.uint8)
    ice.flags.writeable = False
    return ice


def _mist(generator: np.random.Generator) -> Floats:
    """Return smooth noise (512, 512) of five scales, stronger for coarser scales."""
    total = np.zeros((_SIDE, _SIDE), np.float32)
    for cells in (4, 8, 16, 32, 64):
        noise = Pillow.fromarray(generator.standard_normal((cells, cells), dtype=np.float32))
        total += _enlarged(noise) * (4 / cells) ** 0.6
    total /= np.float32(total.std(dtype=np.float64))
    return total


def _enlarged(picture: "Pillow.Image") -> Floats:
    return np.asarray(picture.resize((_SIDE, _SIDE), Pillow.Resampling.BICUBIC))


def _feathers(generator: np.random.Generator) -> Floats:
    """Return ice feathers (512, 512) in 0…1, later ones brighter and on top."""
    canvas = Pillow.new("L", (_SIDE * _FINE, _SIDE * _FINE))
    draw = extra("PIL.ImageDraw").Draw(canvas)

    def branch(
        x: float, y: float, heading: float, length: float, bright: float, twigs: int
    ) -> None:
        """Draw a slightly bent branch with `twigs` orders of twigs at 60°, as in ice's lattice."""
        if not twigs:
            tip = (x + length * cos(heading), y + length * sin(heading))
            draw.line([x, y, *tip], fill=int(0.8 * bright), width=1)
            return
        step, travelled = 6 + 3 * twigs, 0.0
        bend = generator.normal(0, 0.02) if twigs == 2 else 0.0
        while travelled < length:
            heading += bend
            start, x, y = (x, y), x + step * cos(heading), y + step * sin(heading)
            fill = int(bright * (1 - 0.5 * travelled / length))
            draw.line([*start, x, y], fill=fill, width=1 + twigs)
            travelled += step
            left = max(length - travelled, 0.0)
            for turn in (-pi / 3, pi / 3):
                reach = min(0.35 * left + 6, 0.3 * length) * generator.uniform(0.4, 1)
                branch(x, y, heading + turn, reach, 0.85 * fill, twigs - 1)

    for depth in np.linspace(0.35, 1, 120):
        x, y = generator.uniform(-0.1, 1.1, 2) * canvas.width
        heading = generator.uniform(0, 2 * pi)
        branch(x, y, heading, generator.uniform(120, 480), 255 * depth, twigs=2)
    shrunk = np.asarray(canvas.resize((_SIDE, _SIDE), Pillow.Resampling.BOX), np.float32)
    return shrunk / np.float32(255)

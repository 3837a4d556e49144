"""Register corruptions and apply them by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import InputError, OptionError
from dasp.core.registry import Registry
from dasp.core.seeding import numpy_generator

Image = NDArray[np.uint8]  # (H, W, 3)
Wave = NDArray[np.float32]  # (samples,), full scale is ±1
Depth = NDArray[np.uint16]  # (H, W), millimetres, 0 without return
Apply = Callable[..., NDArray[Any]]


@dataclass(frozen=True)
class Corruption:
    """A corruption of frames, sounds or depth maps.

    `apply(image, severity, generator)` takes and returns an (H, W, 3) uint8 array for "video", an
    (H, W) uint16 array for "depth";
    `apply(wave, severity, generator, sample_rate)` takes and returns a (samples,) float32 array.
    With `takes_folder` it also takes `folder=`, a directory of the user's textures or recordings.
    """

    name: str
    modality: str
    family: str
    apply: Apply
    takes_folder: bool = False


_REGISTRIES = {
    "video": Registry[Corruption]("frame corruption"),
    "audio": Registry[Corruption]("sound corruption"),
    "depth": Registry[Corruption]("depth corruption"),
}


def corruption(
    modality: str, name: str, family: str, takes_folder: bool = False
) -> Callable[[Apply], Apply]:
    """Register a function as a corruption of `modality` ("video", "audio" or "depth")."""

    def add(apply: Apply) -> Apply:
        entry = Corruption(name, modality, family, apply, takes_folder)
        registry(modality).register(name)(entry)
        return apply

    return add


def registry(modality: str) -> Registry[Corruption]:
    """Return the registry of the corruptions of one modality."""
    if modality not in _REGISTRIES:
        raise OptionError(
            f"no corruptions for modality '{modality}': use 'video', 'audio' or 'depth'."
        )
    return _REGISTRIES[modality]


def names(modality: str) -> list[str]:
    """Return the names of all corruptions of a modality, in the order of the papers."""
    return list(registry(modality))


def corrupt_frame(
    image: Image,
    name: str,
    severity: int,
    seed: int = 0,
    sample_id: str = "",
    frost_dir: str | Path | None = None,
) -> Image:
    """Corrupt one frame: (H, W, 3) uint8 in and out; severity 0 returns a copy.

    The result depends only on (seed, name, severity, sample_id) and the image.
    """
    if not _is_frame(image):
        found = f"{image.shape} {image.dtype}" if isinstance(image, np.ndarray) else type(image)
        raise InputError(
            f"a frame must be an (H, W, 3) uint8 array, not {found}: convert it to RGB first."
        )
    entry = registry("video")[name]
    if _is_identity(severity):
        return image.copy()
    generator = numpy_generator(seed, f"video/{name}/{severity}", sample_id)
    extra = {"folder": frost_dir} if entry.takes_folder else {}
    return np.asarray(entry.apply(image, severity, generator, **extra), dtype=np.uint8)


def corrupt_sound(
    wave: Wave,
    name: str,
    severity: int,
    seed: int = 0,
    sample_id: str = "",
    sample_rate: int = 16000,
    noise_dir: str | Path | None = None,
) -> Wave:
    """Corrupt one sound: (samples,) float32 in [-1, 1] in and out; severity 0 returns a copy.

    The result depends only on (seed, name, severity, sample_id) and the wave.
    """
    if wave.dtype != np.float32 or wave.ndim != 1 or wave.size == 0:
        raise InputError(
            f"a sound must be a non-empty (samples,) float32 array, not {wave.shape} {wave.dtype}: "
            "mix it to mono and scale it to [-1, 1] first."
        )
    entry = registry("audio")[name]
    if _is_identity(severity):
        return wave.copy()
    generator = numpy_generator(seed, f"audio/{name}/{severity}", sample_id)
    extra = {"folder": noise_dir} if entry.takes_folder else {}
    return np.asarray(entry.apply(wave, severity, generator, sample_rate, **extra), np.float32)


def corrupt_depth(
    depth: Depth, name: str, severity: int, seed: int = 0, sample_id: str = ""
) -> Depth:
    """Corrupt one depth map: (H, W) uint16 in and out; severity 0 returns a copy.

    The result depends only on (seed, name, severity, sample_id) and the map.
    """
    if depth.dtype != np.uint16 or depth.ndim != 2 or depth.size == 0:
        raise InputError(
            f"a depth map must be a non-empty (H, W) uint16 array (mm), not {depth.shape} "
            f"{depth.dtype}: convert it first."
        )
    entry = registry("depth")[name]
    if _is_identity(severity):
        return depth.copy()
    generator = numpy_generator(seed, f"depth/{name}/{severity}", sample_id)
    return np.asarray(entry.apply(depth, severity, generator), dtype=np.uint16)


def _is_frame(image: object) -> bool:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        return False
    return image.ndim == 3 and image.shape[2] == 3 and image.size > 0


def _is_identity(severity: int) -> bool:
    if isinstance(severity, bool) or severity not in range(6):
        raise OptionError(f"severity must be 0 (clean) to 5, not {severity!r}.")
    return severity == 0

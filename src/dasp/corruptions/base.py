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
from dasp.core.sensors import INERTIAL

Image = NDArray[np.uint8]  # (H, W, 3)
Wave = NDArray[np.float32]  # (samples,), full scale is ±1
Depth = NDArray[np.uint16]  # (H, W), millimetres, 0 without return
Apply = Callable[..., NDArray[Any]]
Folder = str | Path | None  # of the user's textures or recordings


@dataclass(frozen=True)
class Corruption:
    """A corruption of frames, sounds, depth maps or inertial signals.

    `apply(sample, severity, generator)`, for sounds also with the sample rate and for inertial
    signals with what they are worn on, returns an array like the sample. With `takes_folder` it
    takes `folder=`, a directory of the user's files.
    """

    name: str
    modality: str
    family: str
    apply: Apply
    takes_folder: bool = False


_SENSED = {"video": "frame", "audio": "sound", "depth": "depth", "inertial": "inertial"}
_REGISTRIES = {m: Registry[Corruption](f"{what} corruption") for m, what in _SENSED.items()}


def corruption(
    modality: str, name: str, family: str, takes_folder: bool = False
) -> Callable[[Apply], Apply]:
    """Register a function as a corruption of "video", "audio", "depth" or "inertial"."""

    def add(apply: Apply) -> Apply:
        entry = Corruption(name, modality, family, apply, takes_folder)
        registry(modality).register(name)(entry)
        return apply

    return add


def registry(modality: str) -> Registry[Corruption]:
    """Return the registry of the corruptions of one modality."""
    kind = "inertial" if modality in INERTIAL else modality
    if kind not in _REGISTRIES:
        known = f"use 'video', 'audio' or 'depth', or one of {', '.join(INERTIAL)}"
        raise OptionError(f"no corruptions for modality '{modality}': {known}.")
    return _REGISTRIES[kind]


def names(modality: str) -> list[str]:
    """Return the names of all corruptions of a modality, in the order of the papers."""
    return list(registry(modality))


def corrupt_frame(
    image: Image,
    name: str,
    severity: int,
    seed: int = 0,
    sample_id: str = "",
    frost_dir: Folder = None,
) -> Image:
    """Corrupt an (H, W, 3) uint8 frame by (seed, name, severity, sample_id); severity 0 copies."""
    check_array(image, np.uint8, 3, "a frame must be an (H, W, 3) uint8", "convert it to RGB first")
    return corrupt("video", image, name, severity, seed, sample_id, folder=frost_dir)


def corrupt_sound(
    wave: Wave,
    name: str,
    severity: int,
    seed: int = 0,
    sample_id: str = "",
    sample_rate: int = 16000,
    noise_dir: Folder = None,
) -> Wave:
    """Corrupt a (samples,) float32 sound in [-1, 1] by (seed, name, severity, sample_id)."""
    remedy = "mix it to mono and scale it to [-1, 1] first"
    check_array(wave, np.float32, 1, "a sound must be a non-empty (samples,) float32", remedy)
    return corrupt("audio", wave, name, severity, seed, sample_id, sample_rate, folder=noise_dir)


def corrupt_depth(
    depth: Depth, name: str, severity: int, seed: int = 0, sample_id: str = ""
) -> Depth:
    """Corrupt an (H, W) uint16 depth map by (seed, name, severity, sample_id)."""
    wanted = "a depth map must be a non-empty (H, W) uint16"
    check_array(depth, np.uint16, 2, wanted, "convert it to millimetres first")
    return corrupt("depth", depth, name, severity, seed, sample_id)


def check_array(array: NDArray[Any], dtype: type, axes: int, wanted: str, remedy: str) -> None:
    """Refuse an array of another type or shape; three axes end with three values, as of colours."""
    given = isinstance(array, np.ndarray)
    fits = given and array.dtype == dtype and array.ndim == axes and array.size > 0
    if not fits or (axes == 3 and array.shape[2] != 3):
        found = f"{array.shape} {array.dtype}" if given else type(array).__name__
        raise InputError(f"{wanted} array, not {found}: {remedy}.")


def corrupt(
    modality: str,
    array: NDArray[Any],
    name: str,
    severity: int,
    seed: int,
    sample_id: str,
    *more: Any,
    folder: Folder = None,
) -> NDArray[Any]:
    """Corrupt an array by name; `more` and `folder` are what its modality's corruptions take."""
    entry = registry(modality)[name]
    if isinstance(severity, bool) or severity not in range(6):
        raise OptionError(f"severity must be 0 (clean) to 5, not {severity!r}.")
    if severity == 0:
        return array.copy()
    generator = numpy_generator(seed, f"{modality}/{name}/{severity}", sample_id)
    options = {"folder": folder} if entry.takes_folder else {}
    return np.asarray(entry.apply(array, severity, generator, *more, **options), array.dtype)

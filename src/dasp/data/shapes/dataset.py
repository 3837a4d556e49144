"""The data set: frames, sounds and depth maps of the same object."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

from dasp.core.errors import OptionError
from dasp.core.seeding import check_seed, numpy_generator
from dasp.data.features import log_mel, normalised
from dasp.data.loading import MODALITIES, Damage, Sample, damaged
from dasp.data.shapes.classes import CLASSES, FRAMES, KINDS, SENSORS, SPLITS, Kind, flavour_named
from dasp.data.shapes.scene import NO_RETURN, DepthMap, Picture, draw_depth, draw_frame
from dasp.data.shapes.sounds import RATE, Wave, draw_wave

HOP_MS = 20.0  # of the log-mel picture
NEAREST = 250.0  # millimetres; smaller distances are clipped in the model's input
NEAR_MEAN, NEAR_STD = 0.52, 0.25  # of clean inverse distances, 1 / metre
STEEPEST, SLOPE_STD = 40.0, 15.0  # millimetres per pixel


class Content(NamedTuple):
    """The label of a sample, and the classes that are seen and heard, None if absent."""

    label: int  # the class of the good modality
    seen: int | None
    heard: int | None


class SoundingShapes(Dataset[Sample]):
    """Objects of 36 classes that are seen and heard, generated on access.

    Sample i depends only on (seed, flavour, split, i). In the flavour "sound" the sound is more
    informative than the frame, as in VGGSound. In a fifth of the samples one modality is bad:
    absent, or dubbed from another class. `damage` corrupts one modality, see `dasp.streams`.

    >>> {name: tuple(value.shape) for name, value in SoundingShapes("test", 72)[0].inputs.items()}
    {'audio': (64, 128), 'video': (3, 64, 64)}
    """

    def __init__(
        self,
        split: str = "test",
        size: int = 1024,
        flavour: str = "balanced",
        seed: int = 0,
        damage: Damage | None = None,
        modalities: tuple[str, ...] = MODALITIES,
    ) -> None:
        if split not in SPLITS:
            raise OptionError(f"split must be one of {', '.join(SPLITS)}, not {split!r}.")
        if size < 1:
            raise OptionError(f"size must be at least 1, not {size}.")
        if not modalities or not set(modalities) <= set(SENSORS):
            raise OptionError(f"modalities must be some of {SENSORS}, not {modalities!r}.")
        check_seed(seed)
        self.split, self.size, self.flavour, self.seed = split, size, flavour, seed
        self.damage, self.modalities = damage, modalities
        self._ranges = flavour_named(flavour)
        self._purpose = f"sounding_shapes/{flavour}/{split}"

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Sample:
        inputs = {}
        if "audio" in self.modalities:
            inputs["audio"] = audio_input(self.wave(index))
        if "video" in self.modalities:
            inputs["video"] = video_input(self.frame(index))
        if "depth" in self.modalities:
            inputs["depth"] = depth_input(self.depth(index))
        return Sample(inputs, self.label(index), self.sample_id(index))

    def label(self, index: int) -> int:
        """Return the class of a sample, 0 to 35; each block of 36 samples has each class once."""
        if not 0 <= index < self.size:
            raise IndexError(f"sample {index} is out of range: the set has {self.size} samples.")
        return int(_labels(self.seed, self._purpose, index // CLASSES)[index % CLASSES])

    def sample_id(self, index: int) -> str:
        """Return the name that seeds the corruption of this sample."""
        return f"{self.flavour}/{self.split}/{self.seed}/{index:06d}"

    def content(self, index: int) -> Content:
        """Return the classes that are actually seen and heard in a sample."""
        return draw_content(self._generator(index, "content"), self.label(index), self._ranges.bad)

    def frame(self, index: int) -> Picture:
        """Return the (64, 64, 3) uint8 frame, corrupted if this domain corrupts video."""
        kind = _kind(self.content(index).seen)
        frame = draw_frame(self._generator(index, "frame"), kind, self._ranges)
        return damaged(self.damage, "video", frame, self.sample_id(index))

    def wave(self, index: int) -> Wave:
        """Return the (20480,) float32 sound at 16 kHz, corrupted if this domain corrupts audio."""
        kind = _kind(self.content(index).heard)
        wave = draw_wave(self._generator(index, "wave"), kind, self._ranges)
        return damaged(self.damage, "audio", wave, self.sample_id(index))

    def depth(self, index: int) -> DepthMap:
        """Return the (32, 32) uint16 millimetres, 0 without return, corrupted if depth is."""
        depth = draw_depth(self._generator(index, "depth"), _kind(self.ranged(index)))
        return damaged(self.damage, "depth", depth, self.sample_id(index))

    def ranged(self, index: int) -> int | None:
        """Return the class that the depth sensor measures, None for an empty scene."""
        draws = self._generator(index, "ranged")
        return draw_ranged(draws, self.content(index), self._ranges.bad)

    def _generator(self, index: int, part: str) -> np.random.Generator:
        return numpy_generator(self.seed, self._purpose, str(index), part)


def _kind(number: int | None) -> Kind | None:
    return None if number is None else KINDS[number]


def draw_content(generator: np.random.Generator, label: int, bad: float) -> Content:
    """Draw the content of a sample of class `label`; one modality is bad with probability `bad`."""
    chance, picture, absent = generator.random(3)
    other = int((label + generator.integers(1, CLASSES)) % CLASSES)
    if chance >= bad:
        return Content(label, label, label)
    wrong = None if absent < 0.5 else other
    return Content(label, wrong, label) if picture < 0.5 else Content(label, label, wrong)


def draw_ranged(generator: np.random.Generator, content: Content, bad: float) -> int | None:
    """Draw the class that the depth sensor measures, given what is seen and heard.

    It is bad with probability `bad` / 2, and only if those are good: two of three always agree.
    """
    chance, absent = generator.random(2)
    other = int((content.label + generator.integers(1, CLASSES)) % CLASSES)
    good = content.seen == content.heard == content.label
    if not good or chance * (1 - bad) >= bad / 2:
        return content.label
    return None if absent < 0.5 else other


def audio_input(waves: NDArray[np.float32] | Tensor) -> Tensor:
    """Return the log-mel input of a model: (..., 20480) → (..., 64, 128)."""
    return log_mel(waves, RATE, FRAMES, HOP_MS)


def video_input(frames: NDArray[np.uint8] | Tensor) -> Tensor:
    """Return the normalised frame input of a model: (..., H, W, 3) bytes → (..., 3, H, W)."""
    return normalised(frames).contiguous()


def depth_input(maps: NDArray[np.uint16] | Tensor) -> Tensor:
    """Return the model's input: (..., 32, 32) millimetres → (..., 3, 32, 32).

    Normalised inverse distance, and the slopes to the right and downwards; 0 without return.
    """
    distance = torch.as_tensor(maps).float()
    near = torch.where(distance > NO_RETURN, 1000 / distance.clamp_min(NEAREST), 0.0)
    slopes = (_slope(distance, axis) for axis in (-1, -2))
    return torch.stack([(near - NEAR_MEAN) / NEAR_STD, *slopes], dim=-3)


def _slope(distance: Tensor, axis: int) -> Tensor:
    """Return half the difference of the next and the previous neighbour; 0 at the border."""
    inner = distance.shape[axis] - 2
    before, behind = (distance.narrow(axis, start, inner) for start in (0, 2))
    steps = ((behind - before) / 2).clamp(-STEEPEST, STEEPEST) / SLOPE_STD
    known = torch.where((before > NO_RETURN) & (behind > NO_RETURN), steps, 0.0)
    return functional.pad(known, (1, 1) if axis == -1 else (0, 0, 1, 1))


@lru_cache(maxsize=4096)
def _labels(seed: int, purpose: str, block: int) -> NDArray[np.int64]:
    return numpy_generator(seed, purpose, "labels", str(block)).permutation(CLASSES)

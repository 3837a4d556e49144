"""The set as a user sees it: frames, sounds and range pictures that belong together."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from dasp.core.errors import OptionError
from dasp.core.seeding import check_seed, numpy_generator
from dasp.data.audio import FbankOptions, log_mel
from dasp.data.dataset import MODALITIES, Damage, Sample
from dasp.data.shapes.classes import CLASSES, FORMS, LOOKS, VOICES, flavour_named
from dasp.data.shapes.depth import DepthMap, depth_input, draw_depth
from dasp.data.shapes.room import Wave, draw_wave
from dasp.data.shapes.scene import Picture, draw_frame
from dasp.data.shapes.voices import RATE
from dasp.data.video import MEAN, STD

SENSORS = (*MODALITIES, "depth")
SPLITS = ("train", "validation", "test")
FRAMES = 64  # of the log-mel picture: 1.28 s in hops of 20 ms
FILTERBANK = FbankOptions(hop_ms=20.0)


class Content(NamedTuple):
    """What one sample is made of: the class seen and the class heard, None where absent.

    The label is that of the good modality; in a good sample both are the label.
    """

    label: int
    seen: int | None
    heard: int | None


class SoundingShapes(Dataset[Sample]):
    """Things that have a look and a sound, 36 classes, made when asked for.

    Sample i depends on (seed, flavour, split, i) alone. `flavour` is "balanced" (the frame tells
    about as much as the sound) or "sound" (the sound tells more, as in VGGSound). In a fifth of
    the samples one modality is bad: absent, or dubbed from another class. `damage` corrupts one
    modality on the way, see `dasp.streams`; `modalities` leaves out what is not needed, or adds
    the third sensor, "depth".

    >>> shapes = SoundingShapes("test", 72)
    >>> shapes.frame(0).shape, shapes.wave(0).shape, shapes.sample_id(0)
    ((64, 64, 3), (20480,), 'balanced/test/0/000000')
    >>> {name: tuple(value.shape) for name, value in shapes[0].inputs.items()}
    {'audio': (64, 128), 'video': (3, 64, 64)}
    """

    num_classes = CLASSES

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
            raise OptionError(f"split is one of {', '.join(SPLITS)}, not {split!r}.")
        if size < 1:
            raise OptionError(f"a set needs at least one sample, not {size}.")
        if not modalities or not set(modalities) <= set(SENSORS):
            raise OptionError(f"modalities are some of {SENSORS}, not {modalities!r}.")
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
        """Return the class of a sample, 0 to 35; each 36 samples in a row hold each class once."""
        if not 0 <= index < self.size:
            raise IndexError(f"sample {index} of a set of {self.size}.")
        return int(_labels(self.seed, self._purpose, index // CLASSES)[index % CLASSES])

    def sample_id(self, index: int) -> str:
        """Return the name that seeds what happens to this sample, such as its corruption."""
        return f"{self.flavour}/{self.split}/{self.seed}/{index:06d}"

    def content(self, index: int) -> Content:
        """Return what is really seen and heard in a sample."""
        return draw_content(self._generator(index, "content"), self.label(index), self._ranges.bad)

    def frame(self, index: int) -> Picture:
        """Return the (64, 64, 3) uint8 frame, damaged where this domain does so."""
        seen = self.content(index).seen
        look = None if seen is None else LOOKS[seen]
        frame = draw_frame(self._generator(index, "frame"), look, self._ranges)
        if self.damage is not None and self.damage.modality == "video":
            return self.damage.frame(frame, self.sample_id(index))
        return frame

    def wave(self, index: int) -> Wave:
        """Return the (20480,) float32 sound at 16 kHz, damaged where this domain does so."""
        heard = self.content(index).heard
        voice = None if heard is None else VOICES[heard]
        wave = draw_wave(self._generator(index, "wave"), voice, self._ranges)
        if self.damage is not None and self.damage.modality == "audio":
            return self.damage.sound(wave, self.sample_id(index))
        return wave

    def ranged(self, index: int) -> int | None:
        """Return the class that the depth sensor has before it, None for an empty scene."""
        draws = self._generator(index, "ranged")
        return draw_ranged(draws, self.content(index), self._ranges.bad)

    def depth(self, index: int) -> DepthMap:
        """Return the (32, 32) uint16 distances in millimetres, damaged where this domain does so.

        A pixel from which nothing came back is 0.
        """
        ranged = self.ranged(index)
        depth = draw_depth(
            self._generator(index, "depth"), None if ranged is None else FORMS[ranged]
        )
        if self.damage is not None and self.damage.modality == "depth":
            return self.damage.depth(depth, self.sample_id(index))
        return depth

    def _generator(self, index: int, part: str) -> np.random.Generator:
        return numpy_generator(self.seed, self._purpose, str(index), part)


def draw_content(generator: np.random.Generator, label: int, bad: float) -> Content:
    """Draw what a sample of class `label` shows and plays, one of them bad with odds `bad`."""
    chance, picture, absent = generator.random(3)
    other = int((label + generator.integers(1, CLASSES)) % CLASSES)
    if chance >= bad:
        return Content(label, label, label)
    wrong = None if absent < 0.5 else other
    return Content(label, wrong, label) if picture < 0.5 else Content(label, label, wrong)


def draw_ranged(generator: np.random.Generator, content: Content, bad: float) -> int | None:
    """Draw what the depth sensor has before it, given what is seen and heard.

    It is bad as often as the frame and as the sound are, with odds `bad` / 2, but only where
    those are good: two of three sensors always agree.
    """
    chance, absent = generator.random(2)
    other = int((content.label + generator.integers(1, CLASSES)) % CLASSES)
    good = content.seen == content.heard == content.label
    if not good or chance * (1 - bad) >= bad / 2:
        return content.label
    return None if absent < 0.5 else other


def audio_input(waves: NDArray[np.float32] | Tensor) -> Tensor:
    """Return the log-mel picture a model takes: (..., 20480) → (..., 64, 128)."""
    return log_mel(waves, RATE, FRAMES, FILTERBANK)


def video_input(frames: NDArray[np.uint8] | Tensor) -> Tensor:
    """Return the normalised frame a model takes: (..., H, W, 3) bytes → (..., 3, H, W)."""
    pixels = torch.as_tensor(frames).float() / 255
    return ((pixels - torch.tensor(MEAN)) / torch.tensor(STD)).movedim(-1, -3).contiguous()


@lru_cache(maxsize=4096)
def _labels(seed: int, purpose: str, block: int) -> NDArray[np.int64]:
    return numpy_generator(seed, purpose, "labels", str(block)).permutation(CLASSES)

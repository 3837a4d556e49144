"""Clips as tensors: clean, damaged on the way, or from a corrupted tree made before."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from dasp.core.errors import OptionError
from dasp.data.audio import log_mel
from dasp.data.manifest import Manifest
from dasp.data.media import SAMPLE_RATE, read_wave
from dasp.data.video import corruption_image, frame_tensor, read_frame

MODALITIES = ("audio", "video")


class Damage(Protocol):
    """What happens to the clips of one domain while they are loaded; see `dasp.streams`."""

    @property
    def modality(self) -> str:
        """Return the one modality that is damaged: "audio", "video" or "depth"."""

    def frame(self, image: NDArray[np.uint8], sample_id: str) -> NDArray[np.uint8]:
        """Damage a (224, 224, 3) image."""

    def sound(self, wave: NDArray[np.float32], sample_id: str) -> NDArray[np.float32]:
        """Damage a (samples,) wave."""

    def depth(self, depth: NDArray[np.uint16], sample_id: str) -> NDArray[np.uint16]:
        """Damage an (H, W) map of distances in millimetres."""


class Sample(NamedTuple):
    """One clip as a model takes it: audio (1024, 128) log-mel, video (3, 224, 224) frame."""

    inputs: dict[str, Tensor]
    label: int
    id: str


class ClipDataset(Dataset[Sample]):
    """The clips of a manifest, in order; a file that cannot be used raises a DataError.

    `frame` chooses the frame (by default the middle one); `damage` corrupts while loading;
    `modalities` leaves out what is not needed. For corrupted files made before, pass
    `premade(manifest, ...)`.
    """

    def __init__(
        self,
        manifest: Manifest,
        frame: int | None = None,
        damage: Damage | None = None,
        modalities: tuple[str, ...] = MODALITIES,
    ) -> None:
        if not modalities or not set(modalities) <= set(MODALITIES):
            raise OptionError(f"modalities are some of {MODALITIES}, not {modalities!r}.")
        if damage is not None and damage.modality not in MODALITIES:
            raise OptionError(f"clips have no {damage.modality} to damage: use {MODALITIES}.")
        manifest.clips[0].frame_index(frame)
        self.manifest, self.frame, self.damage = manifest, frame, damage
        self.modalities = modalities

    def __len__(self) -> int:
        return len(self.manifest.clips)

    def __getitem__(self, index: int) -> Sample:
        clip = self.manifest.clips[index]
        inputs = {}
        if "audio" in self.modalities:
            inputs["audio"] = log_mel(self.wave(index), SAMPLE_RATE)
        if "video" in self.modalities:
            inputs["video"] = frame_tensor(self.picture(index))
        return Sample(inputs, clip.label, clip.id)

    def wave(self, index: int) -> NDArray[np.float32]:
        """Return the sound of a clip, (samples,), damaged where this domain does so."""
        clip = self.manifest.clips[index]
        wave = read_wave(clip.wav)
        if self.damage is not None and self.damage.modality == "audio":
            return self.damage.sound(wave, clip.id)
        return wave

    def picture(self, index: int) -> Image.Image:
        """Return the chosen frame of a clip, damaged where this domain does so."""
        clip = self.manifest.clips[index]
        number = clip.frame_index(self.frame)
        picture = read_frame(clip.frames[number])
        if self.damage is not None and self.damage.modality == "video":
            damaged = self.damage.frame(corruption_image(picture), clip.frame_id(number))
            return Image.fromarray(damaged)
        return picture

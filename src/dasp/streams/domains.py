"""Domains (modality, corruption, severity), and how they corrupt the samples of a data set."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import OptionError
from dasp.core.sound import from_pcm16, pcm16
from dasp.corruptions import corrupt_depth, corrupt_frame, corrupt_sound, names
from dasp.corruptions.base import registry
from dasp.data.clips import Manifest, premade
from dasp.data.loading import ClipDataset
from dasp.data.media import jpeg, read_frame

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Domain:
    """One (modality, corruption, severity), written "video/fog/3". Clean data has no Domain."""

    modality: str
    corruption: str
    severity: int

    def __post_init__(self) -> None:
        registry(self.modality)[self.corruption]
        if isinstance(self.severity, bool) or self.severity not in SEVERITIES:
            raise OptionError(
                f"severity of {self.corruption} must be 1 to 5, not {self.severity!r}."
            )

    def __str__(self) -> str:
        return f"{self.modality}/{self.corruption}/{self.severity}"


def all_domains(
    modalities: Sequence[str] = ("video", "audio"),
    corruptions: Sequence[str] = (),
    severities: Sequence[int] = SEVERITIES,
) -> list[Domain]:
    """Return the domains of some modalities, corruptions (by default all) and severities."""
    known = {name for modality in modalities for name in names(modality)}
    for name in corruptions:
        if name not in known:
            for modality in modalities:
                registry(modality)[name]  # raises an error that names the closest one
    return [
        Domain(modality, name, severity)
        for modality in modalities
        for name in names(modality)
        if not corruptions or name in corruptions
        for severity in severities
    ]


@dataclass(frozen=True)
class DomainDamage:
    """The corruption of clips by one domain, with the loss of saving: JPEG frames, 16-bit sounds.

    A clip corrupted while loading therefore equals one read from a corrupted tree, bit for bit.
    Depth maps, which only the built-in set has, are integers anyway.
    """

    domain: Domain
    seed: int = 0
    frost_dir: Path | None = None
    noise_dir: Path | None = None

    @property
    def modality(self) -> str:
        """Return the corrupted modality."""
        return self.domain.modality

    def frame_file(self, image: NDArray[np.uint8], sample_id: str) -> bytes:
        """Corrupt an (H, W, 3) image and return it as a JPEG file."""
        name, severity = self.domain.corruption, self.domain.severity
        return jpeg(corrupt_frame(image, name, severity, self.seed, sample_id, self.frost_dir))

    def frame(self, image: NDArray[np.uint8], sample_id: str) -> NDArray[np.uint8]:
        """Corrupt an (H, W, 3) image as if it had been saved and read again."""
        return np.array(read_frame(BytesIO(self.frame_file(image, sample_id)), sample_id))

    def sound_pcm(self, wave: NDArray[np.float32], sample_id: str) -> NDArray[np.int16]:
        """Corrupt a 16 kHz (samples,) wave and return its 16-bit samples."""
        name, severity = self.domain.corruption, self.domain.severity
        return pcm16(
            corrupt_sound(wave, name, severity, self.seed, sample_id, noise_dir=self.noise_dir)
        )

    def sound(self, wave: NDArray[np.float32], sample_id: str) -> NDArray[np.float32]:
        """Corrupt a 16 kHz (samples,) wave as if it had been saved and read again."""
        return from_pcm16(self.sound_pcm(wave, sample_id))

    def depth(self, depth: NDArray[np.uint16], sample_id: str) -> NDArray[np.uint16]:
        """Corrupt an (H, W) depth map in millimetres."""
        name, severity = self.domain.corruption, self.domain.severity
        return corrupt_depth(depth, name, severity, self.seed, sample_id)

    def fingerprint(self) -> str:
        """Return a hash of a fixed corrupted sample; it depends on seed, textures and code."""
        ramp = np.arange(64 * 64 * 3) * 7 % 251
        if self.modality == "video":
            image = ramp.reshape(64, 64, 3).astype(np.uint8)
            name, severity = self.domain.corruption, self.domain.severity
            damaged = corrupt_frame(image, name, severity, self.seed, "probe", self.frost_dir)
            return hashlib.sha256(damaged.tobytes()).hexdigest()[:16]
        if self.modality == "depth":
            depth = (ramp[: 32 * 32] * 8 + 500).reshape(32, 32).astype(np.uint16)
            return hashlib.sha256(self.depth(depth, "probe").tobytes()).hexdigest()[:16]
        wave = (ramp / 502 - 0.25).astype(np.float32)
        return hashlib.sha256(self.sound_pcm(wave, "probe").tobytes()).hexdigest()[:16]


def domain_dataset(
    manifest: Manifest,
    domain: Domain | None,
    seed: int = 0,
    frame: int | None = None,
    frost_dir: Path | None = None,
    noise_dir: Path | None = None,
    on_disk: bool = False,
    out: Path | None = None,
) -> ClipDataset:
    """Return the clips of a domain (None: clean), corrupted while loading.

    With `on_disk` they are read from the tree written by `dasp corrupt` or READ's scripts, beside
    the clean files or in `out`.
    """
    if domain is None:
        return ClipDataset(manifest, frame)
    if on_disk:
        moved = premade(manifest, domain.modality, domain.corruption, domain.severity, out)
        return ClipDataset(moved, frame)
    return ClipDataset(manifest, frame, DomainDamage(domain, seed, frost_dir, noise_dir))

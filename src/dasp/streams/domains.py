"""Domains (modality, corruption, severity), and how they corrupt the samples of a data set."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import OptionError, unknown_name
from dasp.core.extras import Pillow
from dasp.core.sensors import INERTIAL
from dasp.core.sound import on_grid, pcm16
from dasp.corruptions import (
    corrupt_clip,
    corrupt_depth,
    corrupt_frame,
    corrupt_inertial,
    corrupt_sound,
    names,
)
from dasp.corruptions.base import registry
from dasp.data.clips import Manifest
from dasp.data.loading import ClipDataset
from dasp.data.media import jpeg

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
            fault = f"must be 1 to 5, not {self.severity!r}"
            raise OptionError(f"severity of {self.corruption} {fault}.")

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
            raise OptionError(unknown_name("corruption", name, known))
    return [
        Domain(modality, name, severity)
        for modality in modalities
        for name in names(modality)
        if not corruptions or name in corruptions
        for severity in severities
    ]


@dataclass(frozen=True)
class DomainDamage:
    """The corruption of samples by one domain, with the loss of saving: JPEG frames, 16-bit sounds.

    A clip corrupted while loading therefore equals one read from a corrupted tree, bit for bit.
    """

    domain: Domain
    seed: int = 0
    frost_dir: Path | None = None
    noise_dir: Path | None = None

    @property
    def modality(self) -> str:
        """Return the corrupted modality."""
        return self.domain.modality

    def __call__(self, sample: NDArray[Any], sample_id: str) -> NDArray[Any]:
        """Corrupt a sample as if it had been saved and read again."""
        damaged = self.unsaved(sample, sample_id)
        if self.modality == "video":
            return _saved(damaged) if damaged.ndim == 3 else np.stack([_saved(f) for f in damaged])
        return on_grid(damaged) if self.modality == "audio" else damaged

    def unsaved(self, sample: NDArray[Any], sample_id: str) -> NDArray[Any]:
        """Corrupt an image (H, W, 3), a clip (frames, H, W, 3), a 16 kHz wave (samples,), a depth
        map (H, W) in mm, an inertial signal (steps, triads, 3), or a body unit with others behind
        it (n, steps, 3, 3).
        """
        settings = (self.domain.corruption, self.domain.severity, self.seed, sample_id)
        if self.modality in INERTIAL:
            alone = sample.ndim == 3
            signal, others = (sample, None) if alone else (sample[0], sample[1:])
            return corrupt_inertial(signal, self.modality, *settings, others)
        if self.modality == "video":
            apply = corrupt_frame if sample.ndim == 3 else corrupt_clip
            return apply(sample, *settings, frost_dir=self.frost_dir)
        if self.modality == "audio":
            return corrupt_sound(sample, *settings, noise_dir=self.noise_dir)
        return corrupt_depth(sample, *settings)

    def fingerprint(self) -> str:
        """Return a hash of a fixed corrupted sample; it depends on seed, textures and code."""
        ramp = np.arange(64 * 64 * 3) * 7 % 251
        probes: dict[str, NDArray[Any]] = {
            "video": ramp.reshape(64, 64, 3).astype(np.uint8),
            "audio": (ramp / 502 - 0.25).astype(np.float32),
            "depth": (ramp[: 32 * 32] * 8 + 500).reshape(32, 32).astype(np.uint16),
            "inertial": (ramp[: 5 * 125 * 9] / 25 - 5).reshape(5, 125, 3, 3).astype(np.float32),
        }
        kind = "inertial" if self.modality in INERTIAL else self.modality
        damaged = self.unsaved(probes[kind], "probe")
        stored = pcm16(damaged) if self.modality == "audio" else damaged
        return hashlib.sha256(stored.tobytes()).hexdigest()[:16]


def _saved(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an (H, W, 3) image as it is read from a JPEG."""
    return np.array(Pillow.open(BytesIO(jpeg(image))))


def domain_dataset(manifest: Manifest, domain: Domain | None, seed: int = 0) -> ClipDataset:
    """Return the clips of a domain (None: clean), corrupted while loading."""
    return ClipDataset(manifest, None if domain is None else DomainDamage(domain, seed))

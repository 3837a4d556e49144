"""Synthetic sensor data: one pattern per class plus noise, and an offset per shifted sensor.

Used by the contract check and the tests; it says nothing about real data.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from dasp.core.seeding import batch_seed
from dasp.core.types import Batch

CLEAN = "clean"
STEPS, FEATURES = 4, 12


class SyntheticWorld:
    """Paired samples (B, 4, 12) per modality, drawn around one pattern per class.

    >>> world = SyntheticWorld(("audio", "video"), classes=4)
    >>> batch = next(world.stream(["audio"], batches=1, size=2))
    >>> batch.domain, tuple(batch.inputs["video"].shape)
    ('audio', (2, 4, 12))
    """

    def __init__(
        self, modalities: tuple[str, ...] = ("audio", "video"), classes: int = 8, noise: float = 3.0
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        self.classes, self.noise = classes, noise
        self.patterns = {
            name: torch.randn(classes, STEPS, FEATURES, generator=generator) for name in modalities
        }
        self.offsets = {name: torch.randn(FEATURES, generator=generator) for name in modalities}

    def draw(self, size: int, seed: int, shift: Mapping[str, float] | None = None) -> Batch:
        """Draw one labelled batch; `shift` is the strength of each modality's offset."""
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(self.classes, (size,), generator=generator)
        inputs: dict[str, Tensor] = {}
        for name, patterns in self.patterns.items():
            clean = patterns[labels]
            noisy = clean + self.noise * torch.randn(clean.shape, generator=generator)
            inputs[name] = noisy + (shift or {}).get(name, 0.0) * self.offsets[name]
        return Batch(inputs, labels, domain="+".join(shift) if shift else CLEAN)

    def stream(
        self, domains: list[str], batches: int, size: int = 64, strength: float = 2.0
    ) -> Iterator[Batch]:
        """Yield `batches` batches of each domain in turn; a domain is "clean" or a modality."""
        for place, domain in enumerate(domains):
            shift = None if domain == CLEAN else {domain: strength}
            for index in range(batches):
                yield self.draw(size, batch_seed(1, place * batches + index), shift)

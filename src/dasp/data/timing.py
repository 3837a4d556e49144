"""Samples that say how long they took: what is reading or drawing them, what is damaging them."""

import copy
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dasp.core.clock import Clock
from dasp.data.dataset import Damage, Sample


class Indexed(Protocol):
    """A data set of samples by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...


class TimedSamples:
    """The samples of a data set; `clock` counts "decode" (making tensors of them) and "corrupt"."""

    def __init__(self, dataset: Indexed) -> None:
        self.clock = Clock()
        self._dataset = copy.copy(dataset)
        damage: Damage | None = getattr(dataset, "damage", None)
        if damage is not None:
            self._dataset.damage = _TimedDamage(damage, self.clock)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Sample:
        with self.clock.on("decode"):
            return self._dataset[index]


class _TimedDamage:
    """A domain's damage, counted as "corrupt"."""

    def __init__(self, damage: Damage, clock: Clock) -> None:
        self._damage, self._clock = damage, clock

    @property
    def modality(self) -> str:
        """Return the one modality that is damaged."""
        return self._damage.modality

    def frame(self, image: NDArray[np.uint8], sample_id: str) -> NDArray[np.uint8]:
        """Damage an image."""
        with self._clock.on("corrupt"):
            return self._damage.frame(image, sample_id)

    def sound(self, wave: NDArray[np.float32], sample_id: str) -> NDArray[np.float32]:
        """Damage a wave."""
        with self._clock.on("corrupt"):
            return self._damage.sound(wave, sample_id)

    def depth(self, depth: NDArray[np.uint16], sample_id: str) -> NDArray[np.uint16]:
        """Damage a map of distances."""
        with self._clock.on("corrupt"):
            return self._damage.depth(depth, sample_id)

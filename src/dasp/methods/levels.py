"""What indicators show on clean batches, and how far a batch deviates from that."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dasp.core.errors import InputError
from dasp.methods.indicators import COMBINATIONS, INDICATORS, Indicator, Look, Values

DRAWS = 200  # of clean batches
LEAST = 1e-6  # deviation of an indicator that never varies on clean batches


@dataclass(frozen=True)
class Level:
    """Mean and standard deviation of an indicator over clean batches of one size."""

    mean: float
    std: float

    def deviation(self, value: float, two_sided: bool) -> float:
        """Return by how many standard deviations a value lies above the mean, or off it.

        >>> level = Level(mean=1.0, std=0.5)
        >>> level.deviation(0.0, two_sided=False), level.deviation(0.0, two_sided=True)
        (-2.0, 2.0)
        """
        z = (value - self.mean) / max(self.std, LEAST)
        return abs(z) if two_sided else z


Levels = Mapping[str, Mapping[str, Level]]
"""By indicator and modality."""


def clean_levels(
    clean: Look, size: int, generator: np.random.Generator, draws: int = DRAWS
) -> dict[str, dict[str, Level]]:
    """Return the level of every indicator, for batches of `size` samples.

    Batches are drawn with replacement from the clean samples, the same ones for all indicators.
    """
    if len(clean.joint) < 2 or size < 1 or draws < 2:
        raise InputError(
            f"levels need 2 clean samples, batches of 1 and 2 draws, not {len(clean.joint)}, "
            f"{size} and {draws}: give more."
        )
    batches = [
        torch.from_numpy(generator.integers(len(clean.joint), size=size)) for _ in range(draws)
    ]
    return {name: _level(indicator, clean, batches) for name, indicator in INDICATORS.items()}


def deviations(batch: Look, clean: Look, levels: Levels) -> dict[str, Values]:
    """Return by how much each modality of a batch deviates, by indicator and combination.

    `levels` are those of batches of its size. A modality whose deviation exceeds a threshold is
    flagged.
    """
    found = {}
    for name, indicator in INDICATORS.items():
        found[name] = {
            modality: levels[name][modality].deviation(value, indicator.two_sided)
            for modality, value in indicator(batch, clean).items()
        }
    for name, parts in COMBINATIONS.items():
        found[name] = {m: max(found[part][m] for part in parts) for m in batch.seen}
    return found


def _level(indicator: Indicator, clean: Look, batches: Sequence[Tensor]) -> dict[str, Level]:
    values = [indicator(clean[rows], clean) for rows in batches]
    found = {name: [value[name] for value in values] for name in clean.seen}
    return {n: Level(statistics.fmean(v), statistics.stdev(v)) for n, v in found.items()}

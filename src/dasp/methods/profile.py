"""What a sample looks like to the model, in two numbers, and how far a stream is from clean ones.

Statistics of whole batches (means, spreads, redundancies) move with the classes that happen to be
in a batch. These two belong to a sample: how long its embedding is, and how unsure the model is
of it. Their averages depend less on which classes come (docs/diagnosis.md says how much), and a few
dozen clean samples are enough to know them.
"""

import torch
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Fused
from dasp.methods.losses import entropy

NUMBERS = 2
SHARPEST = 128  # clean samples of another day differ a little: beyond this many, more do not count
RECENT = 8  # samples that are enough to see that the stream has changed


def profile(alone: Fused) -> Tensor:
    """Return log ‖embedding‖ and the entropy of the prediction of each sample: → (B, 2).

    >>> alone = Fused(torch.ones(3, 4), torch.zeros(3, 5))
    >>> profile(alone)[0].tolist() == [torch.tensor(2.0).log(), torch.tensor(5.0).log()]
    True
    """
    length = alone.embedding.norm(dim=1).clamp(min=1e-12).log()
    return torch.stack([length, entropy(alone.logits)], dim=1)


class CleanProfile(nn.Module):
    """The profile of clean samples of one modality: mean (2,), inverse covariance (2, 2)."""

    mean: Tensor
    precision: Tensor
    count: Tensor  # how many samples it was learnt from; 0: none yet

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(NUMBERS))
        self.register_buffer("precision", torch.eye(NUMBERS))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def fit(self, rows: Tensor) -> None:
        """Learn from the profiles (n, 2) of clean samples."""
        if len(rows) <= 2 * NUMBERS:
            raise InputError(f"{len(rows)} clean samples are too few to know them by: give 32.")
        rows = rows.to(self.mean)
        centred = rows - rows.mean(dim=0)
        # The floor is for a model that is equally sure of every sample.
        spread = centred.T @ centred / (len(rows) - 1) + 1e-6 * torch.eye(NUMBERS).to(rows)
        self.mean.copy_(rows.mean(dim=0))
        self.precision.copy_(torch.linalg.inv(spread))
        self.count.fill_(len(rows))

    def distance(self, rows: Tensor) -> Tensor:
        """How far the mean of rows (n, 2) is from clean, in units of what chance makes of it.

        Hotelling's statistic, (x̄ − μ)ᵀ Σ⁻¹ (x̄ − μ) / (1/n + 1/N) for N clean samples: about χ²
        with two degrees of freedom if the rows are clean, whatever n is.
        """
        known = self.count.clamp(max=SHARPEST)
        return self._apart(rows.mean(dim=0) - self.mean) / (1 / len(rows) + 1 / known)

    def since_change(self, rows: Tensor, newest: int, limit: float) -> Tensor:
        """Drop the older of rows (n, 2), in the order they came, if the last ones are unlike them.

        The last `newest`, but at least 8, are held against all before them by the same statistic.
        """
        newest = max(newest, RECENT)
        if len(rows) <= newest:
            return rows
        last, before = rows[-newest:], rows[:-newest]
        apart = self._apart(last.mean(dim=0) - before.mean(dim=0))
        changed = apart / (1 / len(last) + 1 / len(before)) > limit
        return last if changed else rows

    def _apart(self, difference: Tensor) -> Tensor:
        return difference @ self.precision @ difference

"""The collapse guard: adapters that drive the predictions into few classes are taken back.

How many classes a stream shows is not known, so the adapted predictions are held against those
of single modalities, made by the source model from the same samples: what the stream itself lacks
in classes is missing in both.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

WINDOW = 256  # samples over which predictions are averaged
FALLEN, GOOD = 0.5, 0.8  # shares of the running level
EVERY = 16  # batches between two copies of good weights
PATIENCE = 0.02  # how fast the running level follows, a batch


class CollapseGuard(nn.Module):
    """Watches the number of classes predicted, and keeps the last weights that were good.

    All it knows are buffers, so resets, states and the refusal of a batch cover it.
    """

    adapted: Tensor  # (C,) running mean of the adapted predictions
    steady: Tensor  # (C,) of the source model's, by single modalities
    level: Tensor  # () running ratio of the two effective numbers of classes
    age: Tensor  # () batches seen

    def __init__(self, classes: int, weights: Iterable[nn.Parameter]) -> None:
        super().__init__()
        even = torch.full((classes,), 1 / classes)
        self.register_buffer("adapted", even.clone())
        self.register_buffer("steady", even.clone())
        self.register_buffer("level", torch.ones(()))
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))
        self._names = []
        for place, weight in enumerate(weights):
            self._names.append(f"good_{place}")
            self.register_buffer(self._names[-1], weight.detach().clone())

    @torch.no_grad()
    def judge(self, logits: Tensor, steady: Tensor, weights: Iterable[nn.Parameter]) -> str | None:
        """Take in a batch's adapted logits (B, C) and steady probabilities (B, C).

        Returns why the weights that made them should be taken back, or None; then, every few
        batches, they are kept as good ones.
        """
        share = min(1.0, len(logits) / WINDOW)
        self.adapted.lerp_(logits.softmax(dim=1).mean(dim=0).to(self.adapted), share)
        self.steady.lerp_(steady.mean(dim=0).to(self.steady), share)
        ratio = effective_classes(self.adapted) / effective_classes(self.steady)
        if ratio < FALLEN * self.level:
            why = (
                f"predictions fell into {effective_classes(self.adapted):.1f} classes where single "
                f"modalities see {effective_classes(self.steady):.1f}"
            )
            self.adapted.copy_(self.steady)
            return why
        if self.age % EVERY == 0 and ratio >= GOOD * self.level:
            for name, weight in zip(self._names, weights, strict=True):
                getattr(self, name).copy_(weight)
        self.level.lerp_(ratio, PATIENCE)
        self.age += 1
        return None

    @torch.no_grad()
    def give_back(self, weights: Iterable[nn.Parameter]) -> None:
        """Put the last good weights in place."""
        for name, weight in zip(self._names, weights, strict=True):
            weight.copy_(getattr(self, name))


def effective_classes(share: Tensor) -> Tensor:
    """Return exp H of shares (C,): how many classes, equally frequent, would be as varied.

    >>> round(float(effective_classes(torch.tensor([0.5, 0.5, 0.0]))), 3)
    2.0
    """
    return torch.exp(-torch.xlogy(share, share).sum())

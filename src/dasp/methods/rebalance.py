"""Marginal rebalancing, the idea of FIRM: a shifted model favours some classes; undo that.

It works with any method: `dasp.adapt(model, "dasp", rebalance=0.8)`. A bounded number of the
stream's predictions is remembered, and a batch's reported logits are its own plus one bias per
class, under which all of them together spread over the classes more evenly. Losses use the
method's own logits. Where classes are not about equally frequent over a few hundred samples,
accuracy falls, on clean data too (docs/own_model.md).
"""

import math

import torch
from torch import Tensor, nn

from dasp.core.errors import OptionError
from dasp.methods.base import Method, device_of, whole
from dasp.methods.losses import predicted_rows

MEMORY = 8  # remembered predictions per class; chosen on validation data, see docs/own_model.md
ITERATIONS, TOLERANCE = 100, 1e-4


def rebalance(
    logits: Tensor, memory: Tensor, strength: float, target: Tensor | None = None
) -> Tensor:
    """Return the logits (B, C) of a batch after rebalancing them together with a memory (M, C).

    With the rows l of memory and batch, n = M + B, and m(b) the mean of softmax(l + b), the bias
    is the one solution of

        b = λ·log(target / m̃(b)),   m̃ = (n·m + C·target) / (n + C),   1/λ = (1 − s)/s + C/n

    found by damped Sinkhorn iterations, each at most λ/(1 + λ) times as far from it as the last.
    Strength s = 0 changes nothing, s = 1 asks for the target as firmly as n samples allow. The C
    imagined uninformative samples keep a short stream from being spread over classes that it had no
    time to show. −inf rules a class out. `target` (C,) are the classes' frequencies; None: equal.

    >>> logits = torch.tensor([[3.0, 0.0], [0.2, 0.0], [2.0, 0.0], [0.1, 0.0]])
    >>> logits.argmax(dim=1).tolist(), rebalance(logits, logits[:0], 0.8).argmax(dim=1).tolist()
    ([0, 0, 0, 0], [0, 1, 0, 1])
    """
    if strength == 0:
        return logits
    rows = torch.cat([memory.to(logits), logits]).log_softmax(dim=1)
    count, classes = rows.shape
    even = torch.full((classes,), 1 / classes).to(rows)
    wanted = (even if target is None else target.to(rows)).log()
    pull = 1 / ((1 - strength) / strength + classes / count)
    seen = math.log(count / (count + classes))
    imagined = wanted + math.log(classes / (count + classes))
    bias = torch.zeros_like(wanted)
    for _ in range(ITERATIONS):
        mean = (rows + bias).log_softmax(dim=1).logsumexp(dim=0) - math.log(count)
        marginal = torch.logaddexp(mean + seen, imagined)
        step = pull / (1 + pull) * (bias + wanted - marginal) - bias
        bias = bias + step
        if step.max() - step.min() < TOLERANCE:  # a constant changes no distribution
            break
    return logits + bias


class Rebalancer(nn.Module):
    """The log-probabilities of a stream's last rows, as a buffer of the method: resets cover it."""

    rows: Tensor  # (rows so far, at most `capacity`, C), oldest first

    def __init__(self, strength: float, capacity: int, like: Tensor) -> None:
        super().__init__()
        self.strength, self.capacity = strength, capacity
        self.register_buffer("rows", like)

    @torch.no_grad()
    def forward(self, logits: Tensor) -> Tensor:
        """Return the rebalanced logits (B, C), changing nothing; rows with NaN stay as they are."""
        usable = predicted_rows(logits)
        result = logits.detach().clone()
        if usable.any():
            result[usable] = rebalance(result[usable], self.rows, self.strength)
        return result

    @torch.no_grad()
    def remember(self, logits: Tensor) -> None:
        """Add the rows of a batch (B, C) and drop the oldest."""
        new = logits.detach()[predicted_rows(logits)].log_softmax(dim=1).to(self.rows)
        rows = torch.cat([self.rows, new])
        self.rows = rows[max(len(rows) - self.capacity, 0) :].clone()


def build_rebalancer(method: Method, strength: float, memory: int) -> Rebalancer | None:
    """Add a rebalancer to a method, or None at strength 0; `memory` is in rows per class."""
    if isinstance(strength, bool) or not (isinstance(strength, int | float) and 0 <= strength <= 1):
        raise OptionError(f"rebalance must be a number from 0 (off) to 1, not {strength!r}.")
    whole(0, rebalance_memory=memory)
    if strength == 0:
        return None
    classes = method.model.num_classes
    empty = torch.empty(0, classes, device=device_of(method.model))
    method.rebalancer = rebalancer = Rebalancer(strength, memory * classes, empty)
    return rebalancer

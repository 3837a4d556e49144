"""lr="auto": the rate at which a first update changes the logits by a set share of their spread.

A good rate of one model says little about another model: it depends on the widths and on what is
trained. How much one update changes the answers is comparable. So the first update of a stream is
tried out, its effect on the same batch is measured, and the rate is scaled until that effect is
`Method.auto_change`. No label, no clean sample and no random number takes part.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from dasp.core.errors import OptionError
from dasp.methods.base import Method, device_of

LearningRate = float | Literal["auto"]
IN_STATE = "buffer/chosen_lr"
SPAN = 100.0  # an automatic rate is between default_lr / SPAN and default_lr * SPAN
TRIALS = 2  # the second corrects the first, which may be far from the rate that is found


def check_rate(lr: object) -> None:
    """Refuse a learning rate that is neither "auto" nor a number above 0."""
    number = isinstance(lr, int | float) and not isinstance(lr, bool) and 0 < lr < math.inf
    if lr != "auto" and not number:
        raise OptionError(f"lr must be a number above 0 and finite, or 'auto', not {lr!r}.")


def relative_change(before: Tensor, after: Tensor) -> float:
    """Return by what share of their spread over the classes logits (B, C) changed."""
    old, new = (logits - logits.mean(dim=1, keepdim=True) for logits in (before, after))
    return float((new - old).square().mean().sqrt() / old.square().mean().sqrt())


class Rate:
    """The learning rate of an adaptation: a number, or one that its first update decides.

    An automatic one is a buffer of the method, and thus part of its state: NaN until it is chosen.
    """

    def __init__(self, method: Method, lr: LearningRate) -> None:
        self.method, self.fixed = method, None if lr == "auto" else float(lr)
        if self.fixed is None and not method.auto_change:
            self.fixed = method.default_lr
        if self.fixed is None:
            unknown = torch.full((), torch.nan, device=device_of(method.model))
            method.register_buffer("chosen_lr", unknown)

    @property
    def value(self) -> float | None:
        """The rate; None if it is not yet chosen."""
        if self.fixed is not None:
            return self.fixed
        chosen = float(self.method.get_buffer("chosen_lr"))
        return None if math.isnan(chosen) else _rounded(chosen)  # the buffer has single precision

    def choose(self, lr: float) -> None:
        """Keep a rate until the next reset."""
        self.method.get_buffer("chosen_lr").fill_(lr)

    def in_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a loaded state with a rate as this adaptation has it: a given one stays."""
        others = {name: value for name, value in tensors.items() if name != IN_STATE}
        unknown = torch.tensor(torch.nan)
        return others if self.fixed else others | {IN_STATE: tensors.get(IN_STATE, unknown)}

    def next_trial(self, tried: float, change: float) -> float:
        """Return the rate that should have the wanted effect, given the effect of another one."""
        usual = self.method.default_lr
        if not (change > 0 and math.isfinite(change)):
            return usual
        wanted = tried * self.method.auto_change / change
        return _rounded(min(max(wanted, usual / SPAN), usual * SPAN))

    def __str__(self) -> str:
        return "chosen at the first update" if self.value is None else f"{self.value:g}"


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")  # coarser than what kinds of processors differ by

"""What is set once for the whole of an adaptation, whatever the method."""

from dataclasses import dataclass

from dasp.core.errors import OptionError
from dasp.methods.base import Predict
from dasp.methods.rebalance import MEMORY


@dataclass(frozen=True)
class Options:
    """The options of the loop, checked; `dasp.adapt` says what each does."""

    lr: float
    predict: Predict
    steps: int = 1
    autocast: bool = False
    rebalance: float = 0.0
    rebalance_memory: int = MEMORY

    def __post_init__(self) -> None:
        if not (isinstance(self.steps, int) and self.steps >= 1):
            raise OptionError(f"steps must be a whole number from 1, not {self.steps!r}.")
        if self.predict not in ("before", "after"):
            raise OptionError(f"predict is 'before' or 'after' the update, not {self.predict!r}.")
        if not isinstance(self.autocast, bool):
            raise OptionError(f"autocast is True (bfloat16) or False, not {self.autocast!r}.")
        if not (isinstance(self.lr, int | float) and 0 < self.lr < float("inf")):
            raise OptionError(f"lr must be above 0 and finite, not {self.lr!r}.")

"""Who shares a stream: one process alone, or the ranks of a group (`dasp.methods.ranks`).

A stream that is sharded over ranks gives what one process gives on the joined batch. Three things
make it so, and no method has to know of them:

- `Method.forward` runs the model on this rank's samples and returns the logits of all ranks'
  samples, in the order of the ranks. So losses, filters, averages and guards see the joined batch,
  and each rank computes the same numbers from the same bytes.
- A loss of all samples, taken on each rank, has gradients there through the rank's own samples
  alone; the sum over the ranks is the gradient of the joined batch, whatever the loss. It is taken
  as the mean of gradients that `gather` has multiplied by the number of ranks, so that a term that
  holds no samples (a penalty on the weights), which every rank has in full, counts once.
- What a call decides (to refuse a batch, to go back) is decided from the same numbers, and an
  error on one rank is told to the others at the next exchange, so that none waits for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from dasp.core.errors import RankError
from dasp.core.types import Inputs, Tokens


class PeerError(RankError):
    """Another rank failed; it raises its own error."""


class Group(Protocol):
    """Those who share a stream. All of them make the same calls in the same order."""

    rank: int
    size: int

    def together(self) -> AbstractContextManager[None]:
        """Within this block an error of this rank is told to the others, which get `PeerError`."""

    def meet(self, facts: Callable[[], Mapping[str, object]], rows: int) -> None:
        """Begin a call on so many samples of this rank; refuse it if the ranks' facts differ."""

    def settle(self) -> None:
        """Wait until all ranks have come so far: from here on none fails."""

    def gather(self, rows: Tensor) -> Tensor:
        """Return all ranks' rows (b, …) → (B, …), differentiable where `average` follows."""

    def own(self, rows: Tensor) -> Tensor:
        """Return this rank's part of rows (B, …) of all samples of the call → (b, …)."""

    def gathers(self, width: int) -> bool:
        """Whether to gather rows of so many numbers, rather than to add up their moments."""

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Make each tensor the sum of all ranks'; one message for all of them."""

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Make each gradient the mean of all ranks'; one message for all of them."""

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Make each tensor that of the first rank."""

    def join(self, batches: Iterable[Inputs]) -> Iterable[Inputs]:
        """Give the ranks' first batches joined, then their second, and so on."""


class Alone:
    """One process, which has nobody to ask."""

    rank, size = 0, 1

    def together(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def meet(self, facts: Callable[[], Mapping[str, object]], rows: int) -> None:
        """Do nothing."""

    def settle(self) -> None:
        """Do nothing."""

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows."""
        return rows

    def own(self, rows: Tensor) -> Tensor:
        """Return the rows."""
        return rows

    def gathers(self, width: int) -> bool:  # noqa: ARG002
        """Gather: it costs nothing."""
        return True

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Do nothing."""

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Do nothing."""

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Do nothing."""

    def join(self, batches: Iterable[Inputs]) -> Iterable[Inputs]:
        """Return the batches."""
        return batches


ALONE: Group = Alone()


class HasGroup(Protocol):
    """Anything that shares a stream."""

    group: Group


def with_stand_in(batch: Tokens) -> dict[str, Tensor]:
    """Give a rank without samples one of zeros (0, …) → (1, …): few models run on nothing.

    What it leads to is cut off again, so that its gradients are there, and zero.
    """
    return {
        name: value if len(value) else torch.cat([value, value.new_zeros(1, *value.shape[1:])])
        for name, value in batch.items()
    }


@contextmanager
def apart(method: HasGroup) -> Iterator[None]:
    """Within this block, a method looks at this rank's samples alone."""
    company, method.group = method.group, ALONE
    try:
        yield
    finally:
        method.group = company

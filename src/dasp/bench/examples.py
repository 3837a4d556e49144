"""Data to train on: anything that gives ({modality: tensor}, label) by number."""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.core.seeding import numpy_generator


class Examples(Protocol):
    """Any data set whose items begin with ({modality: tensor}, label)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Any, ...]: ...


@runtime_checkable
class Batched(Protocol):
    """Examples that can also give many samples at once."""

    def batch(self, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the stacked inputs and labels of these samples."""


@runtime_checkable
class Renewed(Protocol):
    """Examples that are others in each epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Become the examples of this epoch."""


def epoch_batches(
    examples: Examples, epoch: int, batch: int, seed: int
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Give the batches of an epoch in the order that (seed, epoch) decides."""
    if isinstance(examples, Renewed):
        examples.set_epoch(epoch)
    order = numpy_generator(seed, "order", str(epoch)).permutation(len(examples))
    for part in slices(len(examples), batch):
        yield take(examples, order[part])


def slices(size: int, batch: int) -> Iterator[slice]:
    """Give whole batches only, unless there is not even one."""
    for start in range(0, max(size - batch, 0) + 1, batch):
        yield slice(start, start + batch)


def take(examples: Examples, indices: NDArray[np.int64]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the stacked inputs, each (n, ...), and labels (n,) of some samples."""
    if isinstance(examples, Batched):
        return examples.batch(indices)
    items = [examples[int(index)] for index in indices]
    inputs = {name: torch.stack([item[0][name] for item in items]) for name in items[0][0]}
    return inputs, torch.tensor([int(item[1]) for item in items])

"""Copies of a model's weights, constant or averaged: anchors and teachers."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn


class WeightCopy(nn.Module):
    """Values for some weights of a model, beside the values that the model holds.

    An averaged copy changes, so its values are buffers, under the names of the weights with "/"
    for "." (reset and save then cover them). A constant one holds the source weights, which belong
    to the model and are not saved again.
    """

    def __init__(
        self, model: nn.Module, weights: Iterable[nn.Parameter], constant: bool = False
    ) -> None:
        super().__init__()
        names = {id(weight): name.replace(".", "/") for name, weight in model.named_parameters()}
        self._weights = {names[id(weight)]: weight for weight in weights}  # not registered twice
        self._constants: dict[str, Tensor] = {}
        for name, weight in self._weights.items():
            value = weight.detach().clone()
            if constant:
                self._constants[name] = value
            else:
                self.register_buffer(name, value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert constants too, when the module is moved."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._constants = {name: fn(value) for name, value in self._constants.items()}
        return self

    def values(self) -> list[Tensor]:
        """Return the values, in the order of the weights."""
        return [*self._constants.values()] or list(self.buffers())

    def of(self, weight: nn.Parameter) -> Tensor:
        """Return the value for one weight; change it in place to set it."""
        pairs = zip(self._weights.values(), self.values(), strict=True)
        return next(value for mine, value in pairs if mine is weight)

    @torch.no_grad()
    def take(self) -> None:
        """Copy the weights as they are."""
        for value, weight in zip(self.values(), self._weights.values(), strict=True):
            value.copy_(weight)

    @torch.no_grad()
    def follow(self, rate: float) -> None:
        """Move towards the weights: value ← (1 − rate)·value + rate·weight."""
        for value, weight in zip(self.values(), self._weights.values(), strict=True):
            value.mul_(1 - rate).add_(weight, alpha=rate)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model run with these values in this block, without gradient."""
        kept = [weight.data for weight in self._weights.values()]
        try:
            with torch.no_grad():
                for weight, value in zip(self._weights.values(), self.values(), strict=True):
                    weight.data = value
                yield
        finally:
            for weight, value in zip(self._weights.values(), kept, strict=True):
                weight.data = value

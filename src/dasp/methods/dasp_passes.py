"""DASP's passes through the fusion: a few samples at a time, with what they share done once.

Samples meet in the loss alone, so the fusion may take them in pieces; only the joint pass must
keep all of them until the loss is known. The passes of single modalities begin with the same work
as the joint one, on the same tokens (`HasSharedFusion`), forward and backward.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dasp.core.types import Fused, Tokens
from dasp.methods.base import Method

AT_ONCE = (
    2**23
)  # numbers in the tokens of one piece: 15 samples of ViT-B, which keep two cores busy

Adapt = Callable[[Tokens], Tokens]
"""Puts the adapters on tokens {name: (B, N, D)}."""
Divergence = Callable[[str, Tensor, slice], Tensor]
"""Takes a modality, what it says alone (b, C), and of which samples; gives the mean of a term."""


def pieces(batch: Tokens) -> Iterator[tuple[slice, Tokens]]:
    """Cut a batch {name: (B, N, D)} into pieces of some samples, all of nearly one size."""
    samples = len(next(iter(batch.values())))
    numbers = sum(tokens.numel() for tokens in batch.values())
    most = max(1, samples * AT_ONCE // numbers)
    size = -(-samples // -(-samples // most))  # as many pieces as that makes, of even size
    for start in range(0, samples, size):
        rows = slice(start, min(start + size, samples))
        yield rows, {name: tokens[rows] for name, tokens in batch.items()}


class SourcePasses:
    """What the source model says of each modality alone, `alone` {name: Fused of (B, …)}."""

    @torch.no_grad()
    def __init__(self, method: Method, batch: Tokens) -> None:
        self._method = method
        self._prepared: list[Mapping[str, Any]] = []
        parts: dict[str, list[Fused]] = {name: [] for name in batch}
        for _, piece in pieces(batch):
            self._prepared.append(method.prepare_fusion(piece))
            for name, own in self._prepared[-1].items():
                parts[name].append(method.fuse_prepared({name: own}))
        self.alone = {name: joined(own) for name, own in parts.items()}

    @torch.no_grad()
    def joint(self) -> Tensor:
        """Return what it says of all modalities together: logits (B, C)."""
        return torch.cat([self._method.fuse_prepared(piece).logits for piece in self._prepared])


class LearningPasses:
    """The joint pass with adapters, and then the gradient of a loss of it and of further passes."""

    def __init__(self, method: Method, batch: Tokens, adapt: Adapt) -> None:
        self._method = method
        self._pieces = []
        for rows, piece in pieces(batch):
            prepared = method.prepare_fusion(adapt(piece))
            self._pieces.append((rows, prepared, method.fuse_prepared(prepared).logits))
        self.logits = torch.cat([logits.detach() for *_, logits in self._pieces])
        self.logits.requires_grad_()

    def gradients(
        self,
        loss: Tensor,
        weights: Mapping[str, float],
        divergence: Divergence,
        parameters: Sequence[nn.Parameter],
    ) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """Return the whole loss () and its gradients, None where a parameter takes no part.

        `loss` is that of `logits`; added to it is, for each modality with a weight, this weight
        times a divergence of what the modality says alone. It can be called once.
        """
        (from_logits,) = torch.autograd.grad(loss, self.logits)
        total = loss.detach()
        found: list[Tensor | None] = [None] * len(parameters)
        for rows, prepared, logits in _taken(self._pieces):
            outputs, gradients = [logits], [from_logits[rows].to(logits)]
            share = len(logits) / len(self.logits)
            for name, weight in weights.items():
                now = self._method.fuse_prepared({name: prepared[name]}).logits
                outputs.append(weight * share * divergence(name, now, rows))
                gradients.append(torch.ones_like(outputs[-1]))
                total = total + outputs[-1].detach()
            with torch.autocast(logits.device.type, enabled=False):  # it is for forward passes
                own = torch.autograd.grad(outputs, parameters, gradients, allow_unused=True)
            found = [_sum(sum_, new) for sum_, new in zip(found, own, strict=True)]
        return total, tuple(found)


def joined(parts: Sequence[Fused]) -> Fused:
    """Put the samples of several passes into one."""
    embedding = torch.cat([part.embedding for part in parts])
    return Fused(embedding, torch.cat([part.logits for part in parts]))


def _taken(items: list[Any]) -> Iterator[Any]:
    """Give the items and forget each, so that what it held is freed before the next."""
    while items:
        yield items.pop(0)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other

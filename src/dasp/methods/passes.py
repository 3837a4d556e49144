"""DASP's passes through the fusion: a few samples at a time, computing once what they share.

Samples meet only in the loss, so the fusion may process them in pieces; only the joint pass must
keep all of them until the loss is known. Passes of single modalities begin with the same work as
the joint pass, on the same tokens (`HasSharedFusion`), forward and backward.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from dasp.core.contract import HasSharedFusion, check_fused
from dasp.core.types import Fused, Tokens
from dasp.methods.base import Method, in_float32
from dasp.methods.distributed import with_stand_in

# Numbers in the tokens of one piece: 7 samples of ViT-B, which keep two cores busy.
AT_ONCE = 2**22

Adapt = Callable[[Tokens], Tokens]
"""Applies the adapters to tokens {name: (B, N, D)}."""
Divergence = Callable[[Tensor, Tensor], Tensor]
"""Takes logits (b, C) of a modality alone, source and adapted; returns the mean of a term."""


def pieces(batch: Tokens) -> Iterator[tuple[slice, Tokens]]:
    """Split a batch {name: (B, N, D)} into pieces of nearly equal size.

    For a batch without samples (see `with_stand_in`) there is one piece, of which nothing counts.
    """
    samples = len(next(iter(batch.values())))
    if samples == 0:
        yield slice(0, 0), with_stand_in(batch)
        return
    numbers = sum(tokens.numel() for tokens in batch.values())
    most = max(1, samples * AT_ONCE // numbers)
    size = -(-samples // -(-samples // most))  # as many pieces as that makes, of even size
    for start in range(0, samples, size):
        rows = slice(start, min(start + size, samples))
        yield rows, {name: tokens[rows] for name, tokens in batch.items()}


class Piece:
    """Some rows of a batch, ready for several passes through the fusion."""

    def __init__(self, method: Method, rows: slice, tokens: Tokens) -> None:
        self._method, self.rows = method, rows
        self._shares = isinstance(method.model, HasSharedFusion)
        self._prepared = method.model.prepare_fusion(tokens) if self._shares else tokens

    def fuse(self, names: Iterable[str]) -> Fused:
        """Run the fusion on some of the modalities."""
        model, names = self._method.model, tuple(names)
        if self._shares:
            fused = model.fuse_prepared(self._prepared, names)
            fused = check_fused(fused, len(fused.logits), model)
        else:
            fused = self._method.fuse({name: self._prepared[name] for name in names})
        return in_float32(fused, self.rows.stop - self.rows.start)


class SourcePasses:
    """What the source model predicts from each modality alone: `alone` {name: Fused of (B, …)}."""

    @torch.no_grad()
    def __init__(self, method: Method, batch: Tokens) -> None:
        self._method, self._names = method, tuple(batch)
        self._pieces = [Piece(method, *piece) for piece in pieces(batch)]
        self.alone = {name: self._fused([name]) for name in batch}

    @torch.no_grad()
    def joint(self) -> Tensor:
        """Return its logits (B, C) from all modalities together, for all ranks' samples."""
        return self._method.group.gather(self._fused(self._names).logits)

    def _fused(self, names: Iterable[str]) -> Fused:
        return joined([piece.fuse(names) for piece in self._pieces])


@torch.no_grad()
def adapted_logits(method: Method, batch: Tokens, adapt: Adapt) -> Tensor:
    """Return the logits (B, C) from adapted tokens, for all ranks' samples."""
    own = [Piece(method, rows, adapt(piece)).fuse(batch).logits for rows, piece in pieces(batch)]
    return method.group.gather(torch.cat(own))


class LearningPasses:
    """The joint pass with adapters, and then the gradient of a loss of it and of further passes.

    `logits` (B, C) are those of all ranks' samples, `alone` what the source model predicts from
    each modality of this rank's. Gradients come from this rank's samples, times the number of
    ranks, because the loop takes the mean over ranks.
    """

    def __init__(
        self, method: Method, batch: Tokens, adapt: Adapt, alone: Mapping[str, Fused]
    ) -> None:
        self._method, self.alone = method, alone
        adapted = (Piece(method, rows, adapt(piece)) for rows, piece in pieces(batch))
        self._pieces = [(piece, piece.fuse(batch).logits) for piece in adapted]
        own = torch.cat([logits.detach() for _, logits in self._pieces])
        self.logits = method.group.gather(own).requires_grad_()

    def gradients(
        self, loss: Tensor, weights: Mapping[str, float], divergence: Divergence
    ) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """Return the whole loss () and its gradients, None for parameters that take no part.

        `loss` is a function of `logits`. For each modality with a weight, this weight times a
        divergence of the modality's own prediction is added to it. May be called only once.
        """
        group, parameters = self._method.group, list(self._method.trainable())
        (from_logits,) = torch.autograd.grad(loss, self.logits)
        from_logits = group.own(from_logits) * group.size
        total = loss.detach()
        found: list[Tensor | None] = [None] * len(parameters)
        while self._pieces:  # each is freed before the next
            piece, logits = self._pieces.pop(0)
            outputs, gradients = [logits], [from_logits[piece.rows].to(logits)]
            share = len(logits) * group.size / len(self.logits)
            for name, weight in weights.items() if len(logits) else ():
                term = divergence(self.alone[name].logits[piece.rows], piece.fuse([name]).logits)
                outputs.append(weight * share * term)
                gradients.append(torch.ones_like(outputs[-1]))
                total = total + outputs[-1].detach()
            with torch.autocast(logits.device.type, enabled=False):  # it is for forward passes
                own = torch.autograd.grad(outputs, parameters, gradients, allow_unused=True)
            pairs = zip(found, own, strict=True)
            found = [
                new if old is None else old if new is None else old + new for old, new in pairs
            ]
        group.average([total])
        return total, tuple(found)


def joined(parts: Sequence[Fused]) -> Fused:
    """Concatenate the samples of several passes."""
    embedding = torch.cat([part.embedding for part in parts])
    return Fused(embedding, torch.cat([part.logits for part in parts]))

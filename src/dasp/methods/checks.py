"""Checks of the batches that a user gives to an adaptation."""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from dasp.core.contract import check_batch
from dasp.core.errors import ContractError, InputError
from dasp.core.types import Inputs
from dasp.methods.base import Method


def checked(batch: Inputs, method: Method, kind: str) -> dict[str, Tensor]:
    """Refuse what the method cannot take as "inputs" or "tokens"; return a batch that it can."""
    _check_kind(method, kind)
    check_batch(batch, method.model, kind, part=True, no_samples=method.group.size > 1)
    # A tensor created in inference mode cannot take part in training, its copy can; and nothing
    # may reach the caller's own graph.
    return {name: v.clone() if v.is_inference() else v.detach() for name, v in batch.items()}


def _check_kind(method: Method, kind: str) -> None:
    if kind == "tokens" and method.tunes_encoder:
        raise ContractError(f"{type(method).__name__} tunes the encoder: call it with raw inputs.")


def clean_batches(source: Iterable[Inputs], method: Method, kind: str) -> Iterator[Inputs]:
    """Yield the batches of "inputs" or "tokens" given to `fit`; refuse what would spoil all."""
    _check_kind(method, kind)
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise InputError(
            f"fit() takes batches such as [{{name: tensor}}, …], not {type(source).__name__}: "
            "put a single batch into a list."
        )
    for batch in source:
        if not isinstance(batch, Mapping):
            raise InputError(
                f"a batch of fit() is a dict of tensors by modality, not {type(batch).__name__}: "
                "leave the labels out."
            )
        check_batch(batch, method.model, kind)
        finite = finite_rows(batch)
        if not finite.all():
            raise InputError(f"clean samples must be finite: {not_finite(batch, finite)}.")
        yield {name: value.detach() for name, value in batch.items()}


def finite_rows(batch: Inputs) -> Tensor:
    """Tell for each sample whether all its values are finite: (B,) bool."""
    rows = [torch.isfinite(value).flatten(1).all(dim=1) for value in batch.values()]
    return torch.stack(rows).all(dim=0)


def not_finite(batch: Inputs, finite: Tensor, everywhere: Tensor | None = None) -> str:
    """Say which samples of which modalities hold NaN or Inf; arguments as for `which`."""
    names = [name for name, value in batch.items() if not torch.isfinite(value).all()]
    where = f"in {' and '.join(names)}, " if names else ""
    return f"NaN or Inf {where}{which(finite, everywhere)}"


def which(good: Tensor, everywhere: Tensor | None = None) -> str:
    """Say which samples are not good: (b,) of this rank; `everywhere` (B,) are all ranks'."""
    if everywhere is not None and good.all():
        return f"on another rank, {int((~everywhere).sum())} of all {len(everywhere)} samples"
    rows = (~good).nonzero().flatten().tolist()
    shown = ", ".join(map(str, rows[:8])) + (", …" if len(rows) > 8 else "")
    return f"{len(rows)} of {len(good)} samples: {shown}"

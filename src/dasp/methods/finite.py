"""Which samples of a batch can be used at all."""

import torch
from torch import Tensor

from dasp.core.types import Inputs


def finite_rows(batch: Inputs) -> Tensor:
    """Tell for each sample whether all its values are finite: (B,) bool."""
    rows = [torch.isfinite(value).flatten(1).all(dim=1) for value in batch.values()]
    return torch.stack(rows).all(dim=0)


def predicted_rows(logits: Tensor) -> Tensor:
    """Tell which rows of logits (B, C) are distributions: (B,) bool.

    −inf rules a class out and is well; NaN, +inf, and −inf for every class are not.
    """
    return ~logits.detach().log_softmax(dim=1).isnan().any(dim=1)


def spoilt(batch: Inputs, finite: Tensor, everywhere: Tensor | None = None) -> str:
    """Say which samples of which modalities hold NaN or Inf; see `overflown`."""
    names = [name for name, value in batch.items() if not torch.isfinite(value).all()]
    where = f"in {' and '.join(names)}, " if names else ""
    return f"NaN or Inf {where}{_counted(finite, everywhere)}"


def overflown(predicted: Tensor, everywhere: Tensor | None = None) -> str:
    """Say for which samples the model made no distribution of finite inputs.

    `predicted` (b,) are this rank's, `everywhere` (B,) all ranks', in their order.
    """
    return f"the model's prediction is NaN or Inf, {_counted(predicted, everywhere)}"


def _counted(good: Tensor, everywhere: Tensor | None) -> str:
    if everywhere is not None and good.all():
        return f"on another rank, {int((~everywhere).sum())} of all {len(everywhere)} samples"
    rows = (~good).nonzero().flatten().tolist()
    shown = ", ".join(map(str, rows[:8])) + (", …" if len(rows) > 8 else "")
    return f"{len(rows)} of {len(good)} samples: {shown}"

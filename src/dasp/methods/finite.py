"""Which samples of a batch can be used at all."""

import torch
from torch import Tensor

from dasp.core.types import Inputs


def finite_rows(batch: Inputs) -> Tensor:
    """Tell for each sample whether all its values are finite: (B,) bool."""
    rows = [torch.isfinite(value).flatten(1).all(dim=1) for value in batch.values()]
    return torch.stack(rows).all(dim=0)


def spoilt(batch: Inputs, finite: Tensor) -> str:
    """Say which samples of which modalities hold NaN or Inf."""
    names = [name for name, value in batch.items() if not torch.isfinite(value).all()]
    rows = (~finite).nonzero().flatten().tolist()
    shown = ", ".join(map(str, rows[:8])) + (", …" if len(rows) > 8 else "")
    return f"NaN or Inf in {' and '.join(names)}, {len(rows)} of {len(finite)} samples: {shown}"

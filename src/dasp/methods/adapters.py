"""The two adapters of DASP and the pair of them that each modality gets."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

Kinds = Literal["both", "stable", "plastic"]
Role = Literal["source", "stable", "plastic", "both"]


class StableAdapter(nn.Module):
    """h = x + up(relu(down(x))): low rank, starts as the identity."""

    def __init__(self, dim: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        # skip_init: nn.Linear's own initial draw would disturb the global generator.
        self.down = skip_init(nn.Linear, dim, rank, bias=False)  # type: ignore[no-untyped-call]
        self.up = skip_init(nn.Linear, rank, dim, bias=False)  # type: ignore[no-untyped-call]
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(3), generator=generator)
        nn.init.zeros_(self.up.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, N, D) → (B, N, D)."""
        out: Tensor = tokens + self.up(self.down(tokens).relu())
        return out


class PlasticAdapter(nn.Linear):
    """h = x + Wx: full rank, starts as the identity."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, bias=False)

    def reset_parameters(self) -> None:
        """Start at zero."""
        nn.init.zeros_(self.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, N, D) → (B, N, D)."""
        return tokens + super().forward(tokens)


class AdapterPair(nn.Module):
    """The stable and the plastic adapter of one modality, or one of them where `kinds` says so."""

    def __init__(
        self, dim: int, rank: int, generator: torch.Generator, kinds: Kinds = "both"
    ) -> None:
        super().__init__()
        self.has_both = kinds == "both"
        self.stable = nn.Identity() if kinds == "plastic" else StableAdapter(dim, rank, generator)
        self.plastic = nn.Identity() if kinds == "stable" else PlasticAdapter(dim)

    def forward(self, tokens: Tensor, role: Role) -> Tensor:
        """Apply (B, N, D) → (B, N, D) what the role calls for.

        "source": nothing. "stable": stable alone, and it learns. "plastic": stable, then plastic,
        and only plastic learns. "both": stable, then plastic, and both learn. A pair with one
        adapter applies it, and lets it learn, in each role but "source".
        """
        if role == "source":
            return tokens
        if role == "stable" and self.has_both:
            stable: Tensor = self.stable(tokens)
            return stable
        keeps_stable = role == "plastic" and self.has_both
        with torch.set_grad_enabled(torch.is_grad_enabled() and not keeps_stable):
            steady = self.stable(tokens)
        plastic: Tensor = self.plastic(steady)
        return plastic

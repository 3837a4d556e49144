"""Transformer layers shared by the models: attention, block, 2-D sin-cos positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.types import Layered


class SelfAttention(nn.Module):
    """Multi-head self-attention with one fused query-key-value map."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) → (B, N, D), with the fused kernel."""
        return self.attend(self.qkv(x))

    def attend(self, qkv: Tensor) -> Tensor:
        """Attend with queries, keys and values (B, N, 3D) → (B, N, D)."""
        return self._join(F.scaled_dot_product_attention(*self._split(qkv)))

    def with_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N, D) → (B, N, D) and the post-softmax weights (B, heads, N, N)."""
        q, k, v = self._split(self.qkv(x))
        weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(dim=-1)
        return self._join(weights @ v), weights

    def _split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, count, _ = qkv.shape
        parts = qkv.view(batch, count, 3, self.num_heads, -1).unbind(2)  # each (B, N, H, D/H)
        q, k, v = (part.transpose(1, 2) for part in parts)  # each (B, H, N, D/H)
        return q, k, v

    def _join(self, x: Tensor) -> Tensor:
        projected: Tensor = self.proj(x.transpose(1, 2).flatten(2))  # (B, H, N, D/H) → (B, N, D)
        return projected


class Mlp(nn.Module):
    """Two linear maps with a GELU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) → (B, N, D)."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) → (B, N, D)."""
        return self.finish(x, self.start(x))

    def start(self, x: Tensor) -> Tensor:
        """Return queries, keys and values (B, N, 3D); each depends only on its own token."""
        qkv: Tensor = self.attn.qkv(self.norm1(x))
        return qkv

    def finish(self, x: Tensor, qkv: Tensor) -> Tensor:
        """(B, N, D) and its queries, keys and values (B, N, 3D) → (B, N, D)."""
        x = x + self.attn.attend(qkv)
        out: Tensor = x + self.mlp(self.norm2(x))
        return out

    def with_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N, D) → (B, N, D) and the attention weights (B, heads, N, N)."""
        mixed, weights = self.attn.with_weights(self.norm1(x))
        x = x + mixed
        return x + self.mlp(self.norm2(x)), weights


@dataclass(frozen=True)
class Prepared:
    """Tokens x (B, N, D) of all modalities with queries, keys and values qkv (B, N, 3D).

    They are stored once: the part of one modality (`spans`), or of all, is a view.
    """

    x: Tensor
    qkv: Tensor
    spans: Mapping[str, slice]

    def of(self, modalities: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return x (B, n, D) and qkv (B, n, 3D) of some modalities, in the model's order."""
        spans = [span for name, span in self.spans.items() if name in modalities]
        if len(spans) == len(self.spans):
            return self.x, self.qkv
        if len(spans) == 1:
            return self.x[:, spans[0]], self.qkv[:, spans[0]]
        x, qkv = (torch.cat([t[:, span] for span in spans], dim=1) for t in (self.x, self.qkv))
        return x, qkv


def run_prompted(
    blocks: Sequence[Block], last_norm: nn.Module, x: Tensor, prompts: Tensor | None
) -> Layered:
    """Run L blocks on (B, N, D), with prompts (L, P, D) prepended to each block's input.

    The features after a block are the token means of its output, normalised by the next block's
    first norm, or by `last_norm` after the last block.
    """
    norms = [*(block.norm1 for block in blocks[1:]), last_norm]
    features = []
    for place, (block, norm) in enumerate(zip(blocks, norms, strict=True)):
        if prompts is None:
            x = block(x)
        else:
            prompt = prompts[place].expand(len(x), -1, -1)  # (P, D) → (B, P, D)
            x = block(torch.cat([prompt, x], dim=1))[:, prompt.shape[1] :]
        features.append(norm(x).mean(dim=1))
    return Layered(x, torch.stack(features))


def sincos_positions(rows: int, columns: int, dim: int) -> Tensor:
    """Return fixed 2-D positions (1, rows·columns, dim): half encodes the column, half the row."""
    if dim % 4:
        raise ValueError(f"sin-cos positions need a width divisible by 4, not {dim}.")
    rates = 10000.0 ** -(torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    y, x = torch.meshgrid(
        torch.arange(rows, dtype=torch.float64),
        torch.arange(columns, dtype=torch.float64),
        indexing="ij",
    )
    waves = [axis.flatten()[:, None] * rates for axis in (x, y)]  # each (rows·columns, dim/4)
    parts = [part for wave in waves for part in (wave.sin(), wave.cos())]
    return torch.cat(parts, dim=1).float()[None]

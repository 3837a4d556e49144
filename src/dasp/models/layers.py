"""What the models share: attention, block, sin-cos positions, and the path through a model."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasp.core.errors import InputError
from dasp.core.types import Attention, Fused, Inputs, Layered, Layers, Tokens


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
        return self.proj(x.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float) -> None:
        super().__init__()
        hidden = int(dim * mlp_ratio)
        self.norm1 = nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        fc1, fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.mlp = nn.Sequential(OrderedDict(fc1=fc1, gelu=nn.GELU(), fc2=fc2))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) → (B, N, D)."""
        return self.finish(x, self.start(x))

    def start(self, x: Tensor) -> Tensor:
        """Return queries, keys and values (B, N, 3D); each depends only on its own token."""
        return self.attn.qkv(self.norm1(x))  # type: ignore[no-any-return]

    def finish(self, x: Tensor, qkv: Tensor) -> Tensor:
        """(B, N, D) and its queries, keys and values (B, N, 3D) → (B, N, D)."""
        x = x + self.attn.attend(qkv)
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]

    def with_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N, D) → (B, N, D) and the attention weights (B, heads, N, N)."""
        mixed, weights = self.attn.with_weights(self.norm1(x))
        x = x + mixed
        return x + self.mlp(self.norm2(x)), weights

    def in_order(self) -> list[nn.Module]:
        """Return its parts in the published order of their weights."""
        return [self.norm1, self.attn, self.norm2, self.mlp]

    def alone(self, x: Tensor, name: str) -> Tensor:  # noqa: ARG002
        """(B, N, D) → (B, N, D) of one modality, with its own norms if the block has any."""
        return self(x)  # type: ignore[no-any-return]


def own_norms(dim: int, names: Iterable[str]) -> nn.ModuleDict:
    """Return one norm per modality."""
    return nn.ModuleDict({name: nn.LayerNorm(dim) for name in names})


class TokenModel(nn.Module):
    """A model of the contract made of blocks, with optional parts for methods that need them."""

    modalities: tuple[str, ...]
    blocks: nn.ModuleDict  # of each encoder
    shared_blocks: Sequence[Block]  # of the fusion
    own_norm: nn.ModuleDict  # of each modality
    norm: nn.Module
    head: nn.Module

    def embed(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tokens (B, N, D) that enter the first block of each encoder."""
        raise NotImplementedError

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode any subset of the modalities to tokens (B, N, D)."""
        tokens = self.embed(inputs)
        for name in tokens:
            for block in self.blocks[name]:  # type: ignore[attr-defined]
                tokens[name] = block(tokens[name])
        return tokens

    def fuse(self, tokens: Tokens) -> Fused:
        """Fuse any non-empty subset, in the order of `modalities`, with the shared blocks."""
        x, _ = self._join(tokens)
        for block in self.shared_blocks:
            x = block(x)
        return self._classify(x)

    def fuse_with_attention(self, tokens: Tokens) -> Fused:
        """Fuse, and return the attention weights of the last shared block, differentiable."""
        x, spans = self._join(tokens)
        for block in self.shared_blocks[:-1]:
            x = block(x)
        x, weights = self.shared_blocks[-1].with_weights(x)
        return self._classify(x, attention=Attention(weights, spans))

    def fuse_own_norm(self, tokens: Tokens) -> Fused:
        """Fuse one modality with its own norms, as in CAV-MAE's pre-training."""
        ((name, x),) = tokens.items()
        for block in self.shared_blocks:
            x = block.alone(x, name)
        return self._classify(x, self.own_norm[name])

    def fuse_top_norm(self, tokens: Tokens) -> Fused:
        """Fuse one modality with the shared norms inside the blocks and its own norm on top."""
        ((name, x),) = tokens.items()
        for block in self.shared_blocks:
            x = block(x)
        return self._classify(x, self.own_norm[name])

    def linear_head(self) -> tuple[nn.Module, nn.Linear]:
        """Return what precedes the last linear layer of the head, and that layer."""
        before = self.head[:-1] if isinstance(self.head, nn.Sequential) else nn.Identity()
        last = self.head[-1] if isinstance(self.head, nn.Sequential) else self.head
        assert isinstance(last, nn.Linear)
        return before, last

    def layers(self) -> Layers:
        """Return the blocks of each encoder and of the fusion, and norm and head."""
        encoders = {name: list(self.blocks[name]) for name in self.modalities}  # type: ignore[call-overload]
        return Layers(encoders, list(self.shared_blocks), [self.norm, self.head])

    def encoder_depth(self) -> dict[str, int]:
        """Return the number of blocks of each encoder."""
        return {name: len(self.blocks[name]) for name in self.modalities}  # type: ignore[arg-type]

    def encode_prompted(self, embedded: Tokens, prompts: Tokens) -> dict[str, Layered]:
        """Encode embedded tokens with prompts (L, P, D) before each block, removed after it.

        The features after a block are the means of its tokens after the next block's first norm.
        """
        layered = {}
        for name, x in embedded.items():
            features = []
            blocks: list[Block] = [*self.blocks[name], self.shared_blocks[0]]  # type: ignore[misc]
            for place, (block, following) in enumerate(pairwise(blocks)):
                if name in prompts:
                    prompt = prompts[name][place].expand(len(x), -1, -1)  # (P, D) → (B, P, D)
                    x = block(torch.cat([prompt, x], dim=1))[:, prompt.shape[1] :]
                else:
                    x = block(x)
                features.append(following.norm1(x).mean(dim=1))
            layered[name] = Layered(x, torch.stack(features))
        return layered

    def encode_carrying(
        self, embedded: Tokens, prompts: Mapping[str, Tensor]
    ) -> dict[str, Layered]:
        """Encode with prompts {name: (P, D)} in front of the tokens, and return both."""
        layered = {}
        for name, x in embedded.items():
            prompt = prompts[name].expand(len(x), -1, -1)  # (P, D) → (B, P, D)
            x, own = torch.cat([prompt, x], dim=1), slice(prompt.shape[1], None)
            features = [x.new_empty(0, len(x), x.shape[2])]
            blocks: list[Block] = [*self.blocks[name], self.shared_blocks[0]]  # type: ignore[misc]
            for block, following in pairwise(blocks):
                x = block(x)
                features.append(following.norm1(x[:, own]).mean(dim=1)[None])
            layered[name] = Layered(x, torch.cat(features))
        return layered

    def fuse_carrying(self, tokens: Tokens, prompts: int) -> Fused:
        """Fuse, and leave the first `prompts` tokens of each modality out of the mean."""
        x, spans = self._join(tokens)
        for block in self.shared_blocks:
            x = block(x)
        own = [x[:, span.start + prompts : span.stop] for span in spans.values()]
        return self._classify(torch.cat(own, dim=1))

    def fusion_qkv(self) -> list[nn.Parameter]:
        """Return weight and bias of the fused query-key-value map of each shared block."""
        return [part for block in self.shared_blocks for part in block.attn.qkv.parameters()]

    def forward(self, inputs: Inputs) -> Tensor:
        """Predict: {name: raw} → logits (B, C)."""
        return self.fuse(self.encode(inputs)).logits

    def _join(self, tokens: Tokens) -> tuple[Tensor, dict[str, slice]]:
        """Concatenate tokens to (B, N, D) and return the span of each modality."""
        names = [name for name in self.modalities if name in tokens]
        if not names:
            raise InputError(f"fuse() needs tokens of at least one of {self.modalities}.")
        ends = [0, *accumulate(tokens[name].shape[1] for name in names)]
        spans = {name: slice(*ends[i : i + 2]) for i, name in enumerate(names)}
        return torch.cat([tokens[name] for name in names], dim=1), spans

    def _classify(
        self, x: Tensor, norm: nn.Module | None = None, attention: Attention | None = None
    ) -> Fused:
        embedding = (norm or self.norm)(x).mean(dim=1)  # (B, N, D) → (B, D)
        return Fused(embedding, self.head(embedding), attention)


@dataclass(frozen=True)
class Prepared:
    """Tokens x (B, N, D) of all modalities with queries, keys and values qkv (B, N, 3D)."""

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


def sincos_positions(rows: int, columns: int, dim: int) -> Tensor:
    """Return fixed 2-D positions (1, rows·columns, dim): half encodes the column, half the row."""
    if dim % 4:
        raise ValueError(f"sin-cos positions need a width divisible by 4, not {dim}.")
    rates = 10000.0 ** -(torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    place = torch.arange(rows * columns, dtype=torch.float64)[:, None]
    waves = [axis * rates for axis in (place % columns, place // columns)]  # (rows·columns, dim/4)
    parts = [part for wave in waves for part in (wave.sin(), wave.cos())]
    return torch.cat(parts, dim=1).float()[None]

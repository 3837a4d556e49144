"""Find the attention maps of a fusion, in models that do not return them.

Every attention that runs in `fuse` passes through one of three functions of torch, whoever wrote
the module: `multi_head_attention_forward`, `scaled_dot_product_attention`, or a softmax over
scores. They are watched while `fuse` runs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dasp.core.contract import fuse_checked
from dasp.core.errors import ContractError
from dasp.core.types import Attention, Fused, Tokens
from dasp.methods.attention import example_tokens
from dasp.methods.turns import evaluating

SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
FEW = 2  # samples on which the places of tokens are looked for


@dataclass(frozen=True)
class _Map:
    """One attention that ran."""

    weights: Tensor  # (B, heads, N, N) after the softmax
    places: Tensor  # (B, N, ...): what depends on the token of each place and on no other


class _Watching(TorchFunctionMode):
    """Keep the maps of self-attention that run in this block, in order."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch, self.maps = batch, list[_Map]()

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.multi_head_attention_forward:
            return self._of_module(function, *args, **kwargs)
        result = function(*args, **kwargs)
        if function is F.scaled_dot_product_attention:
            self._of_product(*args, **kwargs)
        elif function in SOFTMAX and result.ndim > 2:
            self._keep(result, args[0].diagonal(dim1=-2, dim2=-1))
        return result

    def _of_module(self, function: Callable[..., Any], query: Tensor, *args: Any, **kw: Any) -> Any:
        wanted = kw.get("need_weights", True), kw.get("average_attn_weights", True)
        kw |= {"need_weights": True, "average_attn_weights": False}
        output, weights = function(query, *args, **kw)
        self._keep(weights, query.movedim(0, -1))  # (N, B, D) → (B, D, N)
        shown = weights.mean(dim=1) if wanted[1] else weights
        return output, shown if wanted[0] else None

    def _of_product(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,  # noqa: ARG002
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,  # noqa: ARG002
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        if enable_gqa:
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
        scores = query @ key.mT * (scale or 1 / math.sqrt(query.shape[-1]))
        if is_causal:
            attn_mask = torch.ones_like(scores, dtype=torch.bool).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        self._keep(scores.softmax(dim=-1), query.mT)

    def _keep(self, weights: Tensor, places: Tensor) -> None:
        """Keep (B, heads, N, N) or (B·heads, N, N), and places (..., N) of the same rows."""
        if weights.ndim > 2 and weights.shape[-1] == weights.shape[-2] > 1:
            count = weights.shape[-1]
            weights = weights.reshape(self.batch, -1, count, count)
            places = places.detach().reshape(self.batch, -1, count).mT
            self.maps.append(_Map(weights, places))


def watched_fuse(model: Any, tokens: Tokens) -> tuple[Fused, list[_Map]]:
    """Run `fuse`; return its output and the maps of the self-attention that ran."""
    with _Watching(len(next(iter(tokens.values())))) as watching:
        return fuse_checked(model, tokens), watching.maps


def find_spans(model: nn.Module, tokens: Tokens) -> dict[str, slice]:
    """Return where the tokens of each modality are in the first attention over all of them.

    Found by changing one modality at a time: what belongs to its places changes, and only that.
    """
    few = {name: value[:FEW].detach() for name, value in tokens.items()}
    draw = torch.Generator().manual_seed(0)
    with evaluating(model), torch.enable_grad():
        before = watched_fuse(model, _learning(few))[1]
        changed: dict[str, list[_Map]] = {}
        for name, value in few.items():
            noise = torch.randn(value.shape, generator=draw).to(value)
            changed[name] = watched_fuse(model, _learning({**few, name: value + noise}))[1]
    for index, own in enumerate(before):
        found = {name: _moved(own, maps[index]) for name, maps in changed.items()}
        if all(len(places) > 1 for places in found.values()):
            return {name: _slice(name, places) for name, places in found.items()}
    raise ContractError("fuse() runs no self-attention over two or more tokens of each modality")


def _learning(tokens: Tokens) -> dict[str, Tensor]:
    """Return tokens that need a gradient: without, torch may skip the functions watched."""
    return {name: value.clone().requires_grad_() for name, value in tokens.items()}


def _moved(before: _Map, after: _Map) -> list[int]:
    if before.places.shape != after.places.shape:
        return []
    moved = (before.places != after.places).flatten(2).any(dim=2).any(dim=0)
    return [int(place) for place in moved.nonzero()]


def _slice(name: str, places: list[int]) -> slice:
    if places != list(range(places[0], places[-1] + 1)):
        raise ContractError(f"the tokens of '{name}' do not lie side by side in the attention")
    return slice(places[0], places[-1] + 1)


def why_no_maps(model: nn.Module) -> str | None:
    """Say why the attention maps of a fusion cannot be found, or None if they can."""
    try:
        spans = find_spans(model, example_tokens(model))
        places = [place for span in spans.values() for place in range(span.start, span.stop)]
        if len(places) != len(set(places)):
            return "modalities are mixed before the first attention over their tokens"
    except ContractError as error:
        return str(error)
    except Exception as error:
        return f"fuse() could not be tried on a few tokens ({type(error).__name__}: {error})"
    return None


def fuse_with_found_attention(model: nn.Module, tokens: Tokens, spans: dict[str, slice]) -> Fused:
    """Fuse as `fuse` does, with the last map over all tokens in `attention`, differentiable."""
    fused, maps = watched_fuse(model, tokens)
    last = max(span.stop for span in spans.values())
    whole = [own.weights for own in maps if own.weights.shape[-1] >= last]
    return replace(fused, attention=Attention(whole[-1], spans))

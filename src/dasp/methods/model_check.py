"""Try a model on one batch: the contract, and the optional parts that a method needs."""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from dasp.core.contract import (
    HasAttentionMaps,
    HasFusionQkv,
    HasOwnNorms,
    HasPrompts,
    HasSharedFusion,
    MultiModalModel,
    check_batch,
    check_logits,
    check_parts,
    checked_attention,
    encode_checked,
    fuse_checked,
    name_of,
)
from dasp.core.errors import ContractError
from dasp.core.types import Fused, Inputs, Tokens
from dasp.methods.base import Method
from dasp.methods.needs import lacking, method_class


@torch.no_grad()
def check_model(model: nn.Module, inputs: Inputs, method: str | type[Method] | None = None) -> None:
    """Check the whole contract on one batch: every subset of modalities, shapes, finite logits.

    Call it once on a model of your own; a `ContractError` says what to fix. With a method, also
    try everything that this method needs of the model beyond the contract.
    """
    check_parts(model)
    assert isinstance(model, MultiModalModel)
    check_batch(inputs, model)
    tokens = encode_checked(model, inputs)
    names = model.modalities
    subsets = [part for n in range(len(names), 0, -1) for part in combinations(names, n)]
    fused: dict[tuple[str, ...], Fused] = {}
    for subset in subsets:
        encode_checked(model, {name: inputs[name] for name in subset})
        fused[subset] = fuse_checked(model, {name: tokens[name] for name in subset})
        if not torch.isfinite(fused[subset].logits).all():
            raise ContractError(f"fuse() of {subset} returned logits that are not finite.")
    check_logits(fused[tuple(names)].logits, model)
    if isinstance(model, HasSharedFusion):
        for subset in subsets:
            wanted = {part: fused[part] for part in subsets if set(part) <= set(subset)}
            _check_prepared(model, {name: tokens[name] for name in subset}, wanted)
    if method is not None:
        _check_needs(model, method_class(method), inputs, tokens)


def _check_needs(model: Any, method: type[Method], inputs: Inputs, tokens: Tokens) -> None:
    """Try the optional parts that a method needs; say everything that is wrong at once."""
    faults = lacking(method, model)
    for need in method.needs:
        if isinstance(model, need) and need in TRIALS:
            try:
                faults += TRIALS[need](model, inputs, tokens)
            except Exception as error:
                faults.append(f"{type(error).__name__}: {error}".removeprefix("ContractError: "))
    if faults:
        said = "; ".join(fault.rstrip(".") for fault in faults)
        raise ContractError(
            f"{method.__name__} cannot adapt {name_of(model)}: {said}. See docs/own_model.md."
        )


def _try_qkv(model: Any, _: Inputs, __: Tokens) -> Iterator[str]:
    found, own = list(model.fusion_qkv()), set(map(id, model.parameters()))
    if not found or any(id(parameter) not in own for parameter in found):
        yield "fusion_qkv() must return a list of parameters of the model"


def _try_attention(model: Any, _: Inputs, tokens: Tokens) -> Iterator[str]:
    fused = fuse_checked(model, tokens, "fuse_with_attention")
    weights = checked_attention(fused, tokens).weights
    if not _close(fused.logits, fuse_checked(model, tokens).logits):
        yield "fuse_with_attention() returns other logits than fuse()"
    if not _close(weights.sum(dim=3), torch.ones_like(weights[..., 0])):
        yield "rows of the attention must sum to 1: return it after the softmax"


def _try_own_norms(model: Any, _: Inputs, tokens: Tokens) -> Iterator[str]:
    for name, own in tokens.items():
        longer = torch.cat([own, own[:, :1]], dim=1)  # any number of tokens
        for value in (own, longer):
            try:
                fuse_checked(model, {name: value}, "fuse_own_norm")
            except Exception as error:
                yield f"fuse_own_norm() of '{name}' {tuple(value.shape)}: {error}"


def _try_prompts(model: Any, inputs: Inputs, tokens: Tokens) -> Iterator[str]:
    depth = model.encoder_depth()
    shallow = [name for name in tokens if depth[name] < 1]
    if shallow:
        yield f"encoder_depth() of {' and '.join(shallow)} is below 1: there is nothing to prompt"
        return
    layered = model.encode_prompted(model.embed(inputs), {})
    for name, own in tokens.items():
        if len(layered[name].features) != depth[name]:
            yield f"features of '{name}' are of {len(layered[name].features)} layers"
        if not _close(layered[name].tokens, own):
            yield f"encode_prompted() of '{name}' without prompts differs from encode()"


TRIALS: dict[type, Callable[[Any, Inputs, Tokens], Iterator[str]]] = {
    HasFusionQkv: _try_qkv,
    HasAttentionMaps: _try_attention,
    HasOwnNorms: _try_own_norms,
    HasPrompts: _try_prompts,
}


def _check_prepared(
    model: HasSharedFusion, tokens: Tokens, wanted: Mapping[tuple[str, ...], Fused]
) -> None:
    """Prepare once, fuse every subset as a step does, and compare with the output of `fuse`."""
    remedy = "or omit prepare_fusion() and fuse_prepared(). See docs/own_model.md."
    try:
        prepared = model.prepare_fusion(tokens)
        found = {names: model.fuse_prepared(prepared, names) for names in wanted}
    except Exception as error:
        raise ContractError(
            f"prepare_fusion() and fuse_prepared() failed on {tuple(tokens)} "
            f"({type(error).__name__}: {error}): they must accept any non-empty subset, and the "
            f"same prepared object several times, {remedy}"
        ) from error
    for names, fused in found.items():
        for part in ("embedding", "logits"):
            value, right = getattr(fused, part, None), getattr(wanted[names], part)
            if not isinstance(value, Tensor) or value.shape != right.shape:
                raise ContractError(f"fuse_prepared() of {names} must return the same as fuse().")
            if not _close(value, right):
                raise ContractError(
                    f"{part} of fuse_prepared() of {names} differs from fuse(): both must agree "
                    f"and must not change the prepared object, {remedy}"
                )


def _close(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.allclose(first, second, rtol=1e-3, atol=1e-4)

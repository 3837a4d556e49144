"""The contract with a model as protocols, and checks that report what is missing.

A model has `modalities`, `embed_dim`, `num_classes`, and two methods: `encode` and `fuse`. The
other protocols are optional and needed by some methods only.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from dasp.core.errors import ContractError, DaspError, InputError, unknown_name
from dasp.core.types import Fused, Inputs, Layered, Tokens


@runtime_checkable
class MultiModalModel(Protocol):
    """Any number of encoders and one fusion."""

    modalities: tuple[str, ...]
    embed_dim: int | Mapping[str, int]
    num_classes: int

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode any subset: {name: raw (B, ...)} → {name: (B, N, D)}."""

    def fuse(self, tokens: Tokens) -> Fused:
        """Fuse any non-empty subset: {name: (B, N, D)} → embedding (B, D), logits (B, C)."""


@runtime_checkable
class HasFusionQkv(Protocol):
    """fusion_qkv() must return the query, key and value parameters of the fusion's attention."""

    def fusion_qkv(self) -> list[nn.Parameter]:
        """Return weights and biases of the query, key and value maps of the fusion."""


@runtime_checkable
class HasAttentionMaps(Protocol):
    """fuse_with_attention() must fuse as fuse() does and fill in `attention`."""

    def fuse_with_attention(self, tokens: Tokens) -> Fused:
        """Fuse as `fuse` does, with `attention` filled in, differentiable."""


@runtime_checkable
class HasOwnNorms(Protocol):
    """fuse_own_norm() must fuse one modality by norms that belong to it alone."""

    def fuse_own_norm(self, tokens: Tokens) -> Fused:
        """Fuse {one name: (B, N, D)}, any N, with this modality's norms instead of the shared."""


@runtime_checkable
class HasSharedFusion(Protocol):
    """These must split fuse() into a part per modality, computed once, and the rest."""

    def prepare_fusion(self, tokens: Tokens) -> Any:
        """Compute the part of the fusion that each modality of {name: (B, N, D)} needs alone."""

    def fuse_prepared(self, prepared: Any, modalities: Sequence[str]) -> Fused:
        """Fuse some of the prepared modalities as `fuse` does, without changing `prepared`."""


@runtime_checkable
class HasPrompts(Protocol):
    """These must run the encoders layer by layer."""

    def encoder_depth(self) -> dict[str, int]:
        """Return the number L of layers of each encoder, at least 1."""

    def embed(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tokens (B, N, D) that enter the first layer of each encoder."""

    def encode_prompted(
        self, embedded: Tokens, prompts: Mapping[str, Tensor]
    ) -> dict[str, Layered]:
        """Run the layers on embedded tokens (B, n, D), any n; without prompts this is `encode`.

        Before layer l the prompts (L, P, D)[l] are prepended to the tokens, and removed after it.
        `features` are token means, normalised as the next layer (after the last one: the fusion)
        normalises its input. Differentiable.
        """


_PARTS = {
    "modalities": "a tuple of names such as ('audio', 'video')",
    "embed_dim": "the width D of tokens and embedding, or the tokens' widths by modality",
    "num_classes": "the number of classes C",
    "encode": "encode(inputs) -> {name: (B, N, D)}",
    "fuse": "fuse(tokens) -> Fused(embedding, logits)",
}


def check_parts(model: nn.Module) -> None:
    """Raise an error that lists the parts of the contract a model lacks."""
    absent = [name for name in _PARTS if getattr(model, name, None) is None]
    if absent:
        missing = "; no ".join(f"{name} ({_PARTS[name]})" for name in absent)
        raise ContractError(f"{type(model).__name__} cannot be adapted: it has no {missing}.")
    names = model.modalities
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ContractError(f"modalities must be a non-empty tuple of names, not {names!r}.")
    if len(set(names)) != len(names):
        raise ContractError(f"modalities lists a name twice: {names!r}.")
    width = model.embed_dim
    if not isinstance(width, int) and not (isinstance(width, Mapping) and {*names} <= {*width}):
        raise ContractError(f"embed_dim must be a width, or one per modality, not {width!r}.")


def token_width(model: MultiModalModel, modality: str) -> int:
    """Return the width D of the tokens (B, N, D) of a modality."""
    width = model.embed_dim
    return width if isinstance(width, int) else width[modality]


def check_need(model: nn.Module, need: type, method: str) -> None:
    """Raise an error if a model lacks the protocol `need` that a method requires."""
    if not isinstance(model, need):
        wanted = ", ".join(f"{name}()" for name in vars(need) if not name.startswith("_"))
        raise ContractError(
            f"{method} cannot adapt {type(model).__name__}, which has no {wanted}: "
            f"{need.__doc__} See docs/own_model.md."
        )


def check_batch(
    batch: Inputs, model: Any, kind: str = "inputs", part: bool = False, no_samples: bool = False
) -> None:
    """Check a batch of "inputs" or "tokens": modalities, shapes, and the model's dtype and device.

    With `part` modalities may be missing, but not all of them. With `no_samples` B may be 0.
    """
    if not hasattr(batch, "keys"):
        raise InputError(
            f"{kind} must be a dict of tensors by modality, not {type(batch).__name__}."
        )
    for name in batch:
        if name not in model.modalities:
            raise InputError(unknown_name("modality", str(name), model.modalities))
    missing = [name for name in model.modalities if name not in batch]
    if missing and not (part and batch):
        raise InputError(f"{kind} lack {', '.join(missing)}: the model has {model.modalities}.")
    for name, value in batch.items():
        if not isinstance(value, Tensor):
            absent = f" Omit '{name}' if it is missing." if value is None else ""
            raise InputError(f"'{name}' must be a tensor, not {type(value).__name__}.{absent}")
        shape = tuple(value.shape)
        if len(shape) < 2 or 0 in shape[1 if no_samples else 0 :]:
            raise InputError(f"'{name}' has shape {shape}: expected (B, ...) without empty axes.")
        if kind == "tokens" and (len(shape) != 3 or shape[2] != token_width(model, name)):
            raise InputError(
                f"tokens of '{name}' have shape {shape}, "
                f"expected (B, N, {token_width(model, name)})."
            )
        _check_placement(name, value, next(model.parameters(), value))
    sizes = {name: len(value) for name, value in batch.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"modalities differ in batch size: {sizes}.")


def _check_placement(name: str, value: Tensor, like: Tensor) -> None:
    if value.is_floating_point() and value.dtype != like.dtype:
        found, to = f"{value.dtype} and the model is {like.dtype}", f"{like.dtype}"
    elif value.device != like.device:
        found, to = f"on {value.device} and the model on {like.device}", f"'{like.device}'"
    else:
        return
    raise InputError(f"'{name}' is {found}: pass inputs['{name}'].to({to}).")


def encode_checked(model: MultiModalModel, inputs: Inputs) -> dict[str, Tensor]:
    """Run the encoders and check the shapes of their tokens; name the input if one fails."""
    try:
        tokens = model.encode(inputs)
    except (DaspError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        shapes = ", ".join(f"'{n}' {tuple(v.shape)} {v.dtype}" for n, v in inputs.items())
        raise InputError(f"encode() failed on {shapes}: {type(error).__name__}: {error}") from error
    if set(tokens) != set(inputs):
        raise ContractError(f"encode() of {tuple(inputs)} returned tokens of {tuple(tokens)}.")
    for name, value in tokens.items():
        batch, width, shape = len(inputs[name]), token_width(model, name), tuple(value.shape)
        if len(shape) != 3 or (shape[0], shape[2]) != (batch, width):
            raise ContractError(
                f"encode() returned {shape} for '{name}', expected ({batch}, N, {width})."
            )
    return tokens


def fuse_checked(model: MultiModalModel, tokens: Tokens, by: str = "fuse") -> Fused:
    """Run the fusion and check its output; explain a failure on a subset of the modalities."""
    try:
        fused = getattr(model, by)(tokens)
    except Exception as error:
        if len(tokens) == len(model.modalities):
            raise
        raise ContractError(
            f"{by}() failed on {tuple(tokens)} alone ({type(error).__name__}: {error}): "
            "it must accept any non-empty subset of the modalities."
        ) from error
    return check_fused(fused, len(next(iter(tokens.values()))), model)


def check_fused(fused: object, batch: int, model: MultiModalModel) -> Fused:
    """Return the output of `fuse` if its type and shapes fulfil the contract."""
    if not isinstance(fused, Fused):
        raise ContractError(
            f"fuse() must return dasp.Fused(embedding, logits), not {type(fused).__name__}."
        )
    # With a width per modality, that of the embedding is the fusion's own affair.
    common = model.embed_dim if isinstance(model.embed_dim, int) else fused.embedding.shape[-1]
    for name, width in (("embedding", common), ("logits", model.num_classes)):
        found = tuple(getattr(fused, name).shape)
        if found != (batch, width):
            raise ContractError(f"fuse() returned {name} {found}, expected {(batch, width)}.")
    return fused


@torch.no_grad()
def check_model(model: nn.Module, inputs: Inputs) -> None:
    """Check the whole contract on one batch: every subset of modalities, shapes, finite logits.

    Call it once on a model of your own; a `ContractError` says what to fix.
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
    if isinstance(model, HasSharedFusion):
        for subset in subsets:
            wanted = {part: fused[part] for part in subsets if set(part) <= set(subset)}
            _check_prepared(model, {name: tokens[name] for name in subset}, wanted)


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
            if not torch.allclose(value, right, rtol=1e-3, atol=1e-4):
                raise ContractError(
                    f"{part} of fuse_prepared() of {names} differs from fuse(): both must agree "
                    f"and must not change the prepared object, {remedy}"
                )

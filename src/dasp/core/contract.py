"""The contract with a model as protocols, and checks that report what is missing.

A model has `modalities`, `embed_dim`, `num_classes`, and two methods: `encode` and `fuse`. The
other protocols are optional and needed by some methods only.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from dasp.core.errors import ContractError, DaspError, InputError, unknown_name
from dasp.core.types import Attention, Fused, Inputs, Layered, Layers, Tokens


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
    """fuse_own_norm() must fuse one modality by norms that belong to it alone; a model without such
    norms can return fuse(tokens)."""

    def fuse_own_norm(self, tokens: Tokens) -> Fused:
        """Fuse {one name: (B, N, D)}, any N, with this modality's norms instead of the shared."""


@runtime_checkable
class HasTopNorms(Protocol):
    """fuse_top_norm() must fuse one modality as fuse() does, but with a last norm of its own."""

    def fuse_top_norm(self, tokens: Tokens) -> Fused:
        """Fuse {one name: (B, N, D)} with the shared blocks and this modality's last norm."""


@runtime_checkable
class HasLinearHead(Protocol):
    """linear_head() must return the last linear layer of the head and what comes before it."""

    def linear_head(self) -> tuple[nn.Module, nn.Linear]:
        """Return (before, linear) such that the logits are linear(before(embedding))."""


@runtime_checkable
class HasLayers(Protocol):
    """layers() must return the blocks of the encoders and of the fusion, and what follows."""

    def layers(self) -> Layers:
        """Return the parts of the model, for methods that train some of them."""


@runtime_checkable
class HasWeightOrder(Protocol):
    """weight_order() must return the model's weights and biases in a fixed order."""

    def weight_order(self) -> list[nn.Parameter]:
        """Return what a published release draws random numbers for, in its order."""


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


@runtime_checkable
class HasCarriedPrompts(Protocol):
    """These must run the model with prompts that stay in front of the tokens to the end."""

    def embed(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tokens (B, N, D) that enter the first layer of each encoder."""

    def encode_carrying(
        self, embedded: Tokens, prompts: Mapping[str, Tensor]
    ) -> dict[str, Layered]:
        """Run the layers with prompts {name: (P, D)} in front; the result still has them.

        `features` are those of `HasPrompts`, of the tokens alone.
        """

    def fuse_carrying(self, tokens: Tokens, prompts: int) -> Fused:
        """Fuse tokens of which the first `prompts` of each modality count in no mean."""


TASK = "classification"  # of one label per sample; a model with another `task` is refused

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
        raise ContractError(
            f"{type(model).__name__} cannot be adapted: it has no {missing}. To adapt a model as "
            "it is: dasp.inspect(model, inputs) prints the line with dasp.wrap that makes it fit."
        )
    names = model.modalities
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ContractError(f"modalities must be a non-empty tuple of names, not {names!r}.")
    if len(set(names)) != len(names):
        raise ContractError(f"modalities lists a name twice: {names!r}.")
    width = model.embed_dim
    if not isinstance(width, int) and not (isinstance(width, Mapping) and {*names} <= {*width}):
        raise ContractError(f"embed_dim must be a width, or one per modality, not {width!r}.")
    _check_head(model)


def check_logits(logits: Tensor, model: nn.Module) -> None:
    """Refuse probabilities in the place of logits (B, C): a loss would take their softmax again."""
    sums = logits.float().sum(dim=1)
    if (logits >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
        raise ContractError(
            f"{name_of(model)} returns probabilities, each row sums to 1: return the logits before "
            "the softmax, or probabilities.log(), whose softmax they are. With dasp.wrap: "
            "call=lambda model, inputs: model(**inputs).log()."
        )


def name_of(model: nn.Module) -> str:
    """Return what messages call a model: its class, unless it has a name that says more."""
    return getattr(model, "told_as", None) or type(model).__name__


def token_width(model: MultiModalModel, modality: str) -> int:
    """Return the width D of the tokens (B, N, D) of a modality."""
    width = model.embed_dim
    return width if isinstance(width, int) else width[modality]


def missing_part(model: nn.Module, need: type) -> str | None:
    """Say what a model lacks of the protocol `need`, or None."""
    if isinstance(model, need):
        return None
    wanted = ", ".join(f"{name}()" for name in vars(need) if not name.startswith("_"))
    about = " ".join(str(need.__doc__).split())
    return f"the model has no {wanted}: {about.rstrip('.')}"


def _check_head(model: Any) -> None:
    """Refuse heads for which the losses, all of a softmax over the classes, would be wrong."""
    classes, task = model.num_classes, getattr(model, "task", TASK)
    if task != TASK:
        raise ContractError(
            f"{name_of(model)} has task={task!r}: every loss here is of a softmax over classes "
            f"that exclude each other, so only task={TASK!r} can be adapted."
        )
    if classes < 2:
        raise ContractError(
            f"{name_of(model)} has num_classes={classes}, which leaves nothing to learn "
            "from: the softmax of one logit is always 1. A binary head with one logit x: return "
            "the logits (0, x), num_classes=2. Regression cannot be adapted."
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
            convert, omit = f"pass torch.as_tensor(inputs['{name}'])", "omit it if it is missing"
            remedy = omit if value is None else convert
            raise InputError(f"'{name}' must be a tensor, not {type(value).__name__}: {remedy}.")
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


def checked_attention(fused: Fused, tokens: Tokens) -> Attention:
    """Return the attention that `fuse_with_attention` filled in, if it is what it must be."""
    found, batch = fused.attention, len(next(iter(tokens.values())))
    if not isinstance(found, Attention):
        raise ContractError(
            "fuse_with_attention() must return Fused(…, attention=dasp.Attention(weights, spans)), "
            f"but attention is {type(found).__name__}."
        )
    shape = tuple(found.weights.shape)
    if len(shape) != 4 or shape[0] != batch or shape[2] != shape[3]:
        raise ContractError(
            f"fuse_with_attention() returned attention {shape}, expected ({batch}, heads, N, N)."
        )
    if set(found.spans) != set(tokens):
        raise ContractError(
            f"fuse_with_attention() of {tuple(tokens)} returned spans of {tuple(found.spans)}."
        )
    return found


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

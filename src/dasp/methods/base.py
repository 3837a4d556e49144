"""What a method is: which parameters it trains and what it computes from one batch.

`dasp.methods.loop` freezes the model, calls `step` and guards the update, once for all methods.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from dasp.core.contract import (
    HasAttentionMaps,
    HasFusionQkv,
    check_parts,
    checked_attention,
    encode_checked,
    fuse_checked,
)
from dasp.core.errors import ContractError, OptionError
from dasp.core.registry import Registry
from dasp.core.seeding import check_seed
from dasp.core.types import Attention, Fused, Inputs, Prediction, Step, Tokens
from dasp.methods.attention import find_fusion_qkv
from dasp.methods.attention_maps import find_spans, fuse_with_found_attention
from dasp.methods.distributed import ALONE, Ranks, with_stand_in
from dasp.methods.norms import batch_statistics, norms_of

Predict = Literal["before", "after"]
AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Method(nn.Module, ABC):
    """Base class of all methods. A new method is one file with one subclass, which has:

    1. keyword-only arguments of `__init__`: its hyper-parameters (the command line, plan files and
       result files read them from the signature), each kept as an attribute of the same name;
    2. `trainable()`, which returns the parameters it changes, if not those of `self.adapters`;
    3. `step(batch)`, which returns the prediction and the loss;
    4. `version`, an integer.

    State that changes from batch to batch (an average, a counter) must be a registered buffer;
    reset, save, load and the rejection of a batch then cover it without further code.
    """

    version: ClassVar[int]
    """Results are stored under it: increase it when an edit changes the method's numbers. Every
    class states its own."""

    published: ClassVar[str] = ""
    """Year and month of the paper's venue, such as "2025-07": the order of tables."""

    tunes_encoder: ClassVar[bool] = False
    """False: `step` receives encoded tokens. True: it receives raw inputs."""

    needs: ClassVar[tuple[type, ...]] = ()
    """Further protocols that the model must implement."""

    needs_source: ClassVar[bool] = False
    """True: `fit` must be called with clean source samples before the first batch."""

    exactly_two_modalities: ClassVar[bool] = False

    learns_from_part: ClassVar[bool] = True
    """False: a batch that lacks a modality is predicted from the others and teaches nothing, as it
    always is for methods of two modalities or of the fusion's attention (`loop.learns_from`)."""

    sharded: ClassVar[bool | str] = False
    """True: `step` learns only through logits of `forward` and a loss that the loop descends, so
    ranks may share a stream (`dasp.methods.distributed`). A text says why not. Not inherited."""

    default_lr: ClassVar[float] = 1e-4
    """The rate of the paper: of benchmarks that name no other, and where `lr="auto"` begins."""

    auto_change: ClassVar[float] = 0.0
    """How much the first update shall change the logits, as a share of their spread over the
    classes, if `lr="auto"` (`dasp.methods.rate`); 0: the method keeps `default_lr`. Give another
    value only if it was measured on long streams, too: entropy alone may collapse on them."""

    default_predict: ClassVar[Predict] = "before"

    model: Any
    """The model being adapted: a `MultiModalModel` that is an `nn.Module`."""

    group: Ranks = ALONE
    """The processes that share the stream; set by `dasp.adapt`."""

    encodes_again: bool = False
    """True: `step` receives tokens, but may encode `inputs` in another way."""

    inputs: Inputs | None = None
    """The raw inputs of the present call, if it was given them; set by the loop."""

    frozen = False  # whether the present call is one inside `frozen()`, which learns nothing

    batch_norms: Sequence[Any] = ()
    """The BatchNorms that the method trains; they normalise by the statistics of each batch."""

    follows: Set[str] = frozenset()
    """Which next pass, "encode" or "fuse", moves running statistics: the first ones of a batch."""

    def __init__(self, model: nn.Module, *, seed: int = 0) -> None:
        super().__init__()
        check_parts(model)
        check_encoders(type(self), model)
        check_seed(seed)
        self.model, self.seed = model, seed
        self._found_qkv: list[nn.Parameter] = []
        self._found_spans: dict[tuple[tuple[str, int], ...], dict[str, slice]] = {}
        self.generator = torch.Generator().manual_seed(seed)
        self.adapters = nn.ModuleDict()

    def trainable(self) -> Iterable[nn.Parameter]:
        """Return the parameters that this method changes: by default, its adapters'."""
        return self.adapters.parameters()

    @abstractmethod
    def step(self, batch: Tokens) -> Step:
        """Return prediction and loss for a batch of tokens (raw inputs if `tunes_encoder`)."""

    @classmethod
    def reads_inputs(cls, _model: nn.Module, /, **_options: Any) -> bool:
        """Tell whether raw inputs tell a method with these options more than tokens of a model."""
        return cls.tunes_encoder

    @property
    def takes_inputs(self) -> bool:
        """Whether raw inputs tell it more than their tokens."""
        return self.tunes_encoder or self.encodes_again

    def predict(self, batch: Tokens) -> Prediction:
        """Predict with the current state, without changing it."""
        return Prediction(self.forward(batch).logits)

    def predicting(self) -> AbstractContextManager[None]:
        """Return the block in which the model has the weights that predict, if it has others."""
        return nullcontext()

    def adapted_tokens(self, batch: Tokens) -> dict[str, Tensor]:
        """Return the tokens {name: (B, N, D)} that the fusion receives in the current state."""
        return self.encode(batch) if self.tunes_encoder else dict(batch)

    @property
    def fitted(self) -> bool | None:
        """Whether `fit` has been called; None for methods that do not use source samples."""
        return None

    def fit(self, source: Iterable[Inputs]) -> None:  # noqa: ARG002
        """Learn from clean source batches, of the kind that `step` receives, if it uses them."""
        why = "does not use source data in this configuration: don't call fit()."
        raise ContractError(f"{type(self).__name__} {why}")

    def begin(self) -> None:
        """Prepare once, before anything else, with the model in its source state."""

    def after_update(self) -> None:
        """Follow an update that the loop has made, such as by averaging the weights."""

    def roll_back(self) -> None:
        """Restore the last good weights, for methods whose steps may ask for it."""
        raise ContractError(f"{type(self).__name__} keeps no good weights to roll back to.")

    def optimizer(self, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        """Return the optimizer of the method."""
        return torch.optim.Adam(parameters, lr=lr)

    def forward(self, batch: Tokens) -> Fused:
        """Run the model on a batch as `step` receives it; the logits are of all ranks' samples."""
        fused = self.fuse(self.adapted_tokens(batch))
        return replace(fused, logits=self.group.gather(fused.logits))

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Run the encoders and check the result against the contract."""
        with self._statistics("encode", inputs):
            encoded = encode_checked(self.model, with_stand_in(inputs))
        return {name: tokens[: len(inputs[name])] for name, tokens in encoded.items()}

    def fuse(self, tokens: Tokens, own_norm: bool = False) -> Fused:
        """Fuse any subset of the modalities; return its result, checked, in float32."""
        by, count = "fuse_own_norm" if own_norm else "fuse", len(next(iter(tokens.values())))
        with self._statistics("fuse", tokens):
            return in_float32(fuse_checked(self.model, with_stand_in(tokens), by), count)

    def fuse_with_attention(self, tokens: Tokens) -> tuple[Tensor, Attention]:
        """Run the fusion: return its logits and the attention maps that the model returns, or
        those found in it."""
        told = isinstance(self.model, HasAttentionMaps)
        with self._statistics("fuse", tokens):
            if told:
                fused = fuse_checked(self.model, tokens, "fuse_with_attention")
            else:
                fused = fuse_with_found_attention(self.model, tokens, self._spans(tokens))
        maps = checked_attention(fused, tokens)
        return at_least_float32(fused.logits), replace(maps, weights=at_least_float32(maps.weights))

    def _spans(self, tokens: Tokens) -> dict[str, slice]:
        """Return where the tokens are in the attention; looked for once per number of tokens."""
        counts = tuple((name, value.shape[1]) for name, value in tokens.items())
        if counts not in self._found_spans:
            self._found_spans[counts] = find_spans(self.model, tokens)
        return self._found_spans[counts]

    def follow_batch(self) -> None:
        """Let the first passes of the batch that comes move running statistics."""
        self.follows = {"encode", "fuse"}
        for norm in self.batch_norms:  # torch does not count this change; the state relies on it
            increment_version(norm.buffers(recurse=False))

    def _statistics(self, part: str, batch: Inputs) -> AbstractContextManager[None]:
        """Return the block in which trained BatchNorms see this batch."""
        follow, self.follows = part in self.follows, self.follows - {part}
        return batch_statistics(self.batch_norms, len(next(iter(batch.values()))), follow)

    def one_width(self) -> int:
        """Return the common width of tokens and embedding; refuse a model that has none."""
        width = self.model.embed_dim
        if isinstance(width, int):
            return width
        raise ContractError(
            f"{type(self).__name__} needs tokens and a fused embedding of one width; this model "
            f"has tokens of {dict(width)}, and an embedding whose width may differ."
        )

    def head_features(self, fused: Fused) -> Tensor:
        """Return the input of the last linear layer of a model that `HasLinearHead`: (B, F)."""
        before, _ = self.model.linear_head()
        return at_least_float32(before(fused.embedding))

    def fusion_qkv(self) -> list[nn.Parameter]:
        """Return the query, key and value maps of the fusion, named by the model or found."""
        if isinstance(self.model, HasFusionQkv):
            return list(self.model.fusion_qkv())
        self._found_qkv = self._found_qkv or find_fusion_qkv(self.model)
        return self._found_qkv

    def norms(self) -> list[nn.Parameter]:
        """Return the affine parameters of all norm layers of the model."""
        found = norms_of([self.model])
        if not found:
            raise ContractError(f"{type(self).__name__} trains norms; the model has none.")
        return found

    def module_like_model(self, module: AnyModule) -> AnyModule:
        """Move a new module to the device and dtype of the model."""
        return module.to(next(self.model.parameters(), torch.empty(0)))


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's parameters, the CPU if it has none."""
    return next(model.parameters(), torch.empty(0)).device


def full_precision(values: Tensor) -> torch.autocast:
    """Return a context without autocast, for arithmetic on these values that must be exact."""
    return torch.autocast(values.device.type, enabled=False)


def in_float32(fused: Fused, count: int) -> Fused:
    """Return the first `count` samples of a fused batch, in float32 or better."""
    return Fused(at_least_float32(fused.embedding[:count]), at_least_float32(fused.logits[:count]))


def at_least_float32(values: Tensor) -> Tensor:
    """Return values in float32, or as they are if that is more precise."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class MethodRegistry(Registry[type[Method]]):
    """The methods by name, in the order of their papers."""

    def register(self, name: str) -> Callable[[type[Method]], type[Method]]:
        """Return a decorator that registers a class under `name`; the class must have a version."""
        add = super().register(name)
        return lambda method: add(check_version(method))

    def __iter__(self) -> Iterator[str]:
        names = super().__iter__()
        return iter(sorted(names, key=lambda name: self[name].published or "later"))


METHODS = MethodRegistry("method")


def check_version(method: type[Method]) -> type[Method]:
    """Refuse a class without a `version` of its own: a subclass is different code."""
    version = vars(method).get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ContractError(
            f"{method.__name__} has no version of its own, which results are stored under: "
            "add `version = 1` to the class."
        )
    return method


def check_encoders(method: type[Method], model: nn.Module) -> None:
    """Refuse a method that tunes encoders for a model whose encoders cannot be tuned."""
    kind = getattr(model, "faster_encoders", None)
    if kind is not None and method.tunes_encoder:
        able = ", ".join(name for name in METHODS if not METHODS[name].tunes_encoder)
        raise ContractError(
            f"{method.__name__} tunes the encoders; those of this {type(model).__name__} are "
            f"{kind} and cannot be trained: pass the original model, or choose a method that "
            f"leaves the encoders frozen ({able})."
        )


def hyperparameters(method: type[Method]) -> dict[str, inspect.Parameter]:
    """Return the hyper-parameters of a method by name, read from its signature."""
    parameters, own = inspect.signature(method).parameters, inspect.Parameter.KEYWORD_ONLY
    return {name: p for name, p in parameters.items() if p.kind is own and name != "seed"}


def positive(**values: float) -> None:
    """Refuse hyper-parameters that are not above zero."""
    for name, value in values.items():
        if not (isinstance(value, int | float) and value > 0):
            raise OptionError(f"{name} must be a number above 0, not {value!r}.")


def not_negative(**values: float) -> None:
    """Refuse hyper-parameters below zero."""
    for name, value in values.items():
        if not (isinstance(value, int | float) and value >= 0):
            raise OptionError(f"{name} must be a number from 0, not {value!r}.")


def fraction(**values: float) -> None:
    """Refuse hyper-parameters that are not numbers from 0 to 1."""
    for name, value in values.items():
        if not (isinstance(value, int | float) and 0 <= value <= 1):
            raise OptionError(f"{name} must be a number from 0 to 1, not {value!r}.")


def whole(minimum: int = 1, **values: int) -> None:
    """Refuse hyper-parameters that are not integers from `minimum`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise OptionError(f"{name} must be an integer from {minimum}, not {value!r}.")


def one_of(name: str, value: object, *allowed: object) -> None:
    """Refuse a value that is not one of those allowed."""
    if not any(value == choice and type(value) is type(choice) for choice in allowed):
        raise OptionError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}.")

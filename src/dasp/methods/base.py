"""What a method is: which parameters it trains and what it makes of one batch.

A method holds no loop. `dasp.methods.engine.Engine` freezes the model, calls `step`, guards
the update, snapshots and restores; it is written once for all methods.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from dasp.core.contract import (
    HasSharedFusion,
    MultiModalModel,
    check_fused,
    check_need,
    check_parts,
    encode_checked,
    fuse_checked,
)
from dasp.core.errors import ContractError, OptionError, unknown_name
from dasp.core.registry import Registry
from dasp.core.seeding import check_seed
from dasp.core.types import Fused, Inputs, Prediction, Step, Tokens
from dasp.methods.group import ALONE, Group, with_stand_in

Predict = Literal["before", "after"]


class ModelModule(MultiModalModel, Protocol):
    """A model of the contract that is also an `nn.Module`; what `Method.model` is."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return all parameters."""

    def modules(self) -> Iterable[nn.Module]:
        """Return all modules."""


class Method(nn.Module, ABC):
    """Base of every method. A new one is one file:

    1. keyword arguments of `__init__` are its hyper-parameters (the command line, the plan files
       and the result files read them off the signature);
    2. `trainable()` names the parameters it changes;
    3. `step(batch)` gives the prediction and the loss.

    State of its own that changes from batch to batch (an average, a counter) is registered as a
    buffer: then reset, save, load and the rejection of a batch cover it without further code.
    """

    tunes_encoder: ClassVar[bool] = False
    """False: `step` receives encoded tokens. True: it receives raw inputs."""

    needs: ClassVar[tuple[type, ...]] = ()
    """Further protocols that the model must fulfil."""

    needs_source: ClassVar[bool] = False
    """True: `fit` must be given clean source samples before the first batch."""

    exactly_two_modalities: ClassVar[bool] = False

    learns_from_part: ClassVar[bool] = True
    """False: `step` wants every modality. A batch that lacks one is then predicted from the rest
    and teaches nothing, as `dasp.methods.missing` says. Nothing to say for a method of exactly
    two modalities or one that `needs` the fusion's attention: they never learn from a part."""

    sharded: ClassVar[bool] = False
    """True: `step` learns from samples only through logits that `forward` gave, and from those by a
    loss that the loop descends. Then a stream may be shared among ranks (`dasp.methods.sharding`):
    `forward` gives the logits of all ranks' samples."""

    version: ClassVar[int | None] = None
    """None: stored results know the method by its file, and any edit of it makes them stale. A
    number: they know it by this, which is raised whenever an edit changes its figures."""

    default_lr: ClassVar[float] = 1e-4
    default_predict: ClassVar[Predict] = "before"

    group: Group = ALONE
    """Those who share the stream; `dasp.adapt` sets it."""

    def __init__(self, model: nn.Module, *, seed: int = 0) -> None:
        super().__init__()
        check_parts(model)
        check_encoders(type(self), model)
        check_seed(seed)
        name = type(self).__name__
        if self.exactly_two_modalities and len(model.modalities) != 2:  # type: ignore[arg-type]
            raise ContractError(
                f"{name} is defined for two modalities; this model has {model.modalities}."
            )
        for need in self.needs:
            check_need(model, need, name)
        self._model = model
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)
        self.adapters = nn.ModuleDict()

    @property
    def model(self) -> ModelModule:
        """The model being adapted."""
        return self._model  # type: ignore[return-value]

    @abstractmethod
    def trainable(self) -> Iterable[nn.Parameter]:
        """Return the parameters that this method changes."""

    @abstractmethod
    def step(self, batch: Tokens) -> Step:
        """Predict and give the loss for one batch of tokens (raw inputs if `tunes_encoder`)."""

    def predict(self, batch: Tokens) -> Prediction:
        """Predict with the present state; changes nothing."""
        return Prediction(self.forward(batch).logits)

    def adapted_tokens(self, batch: Tokens) -> dict[str, Tensor]:
        """Return the tokens {name: (B, N, D)} that the fusion receives in the present state."""
        return self.encode(batch) if self.tunes_encoder else dict(batch)

    def fit(self, source: Iterable[Inputs]) -> None:
        """Learn from clean source batches, for methods that need some."""
        del source
        raise ContractError(
            f"{type(self).__name__} takes nothing from source data as it is set: leave fit out."
        )

    def roll_back(self) -> None:
        """Put the last good weights in place, for methods whose steps may ask for it."""
        raise ContractError(f"{type(self).__name__} keeps no good weights to go back to.")

    def optimizer(self, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        """Return the optimiser of the method."""
        return torch.optim.Adam(parameters, lr=lr)

    def forward(self, batch: Tokens) -> Fused:
        """Run the model on a batch as `step` receives it.

        Where ranks share the stream, the logits are those of all their samples (B, C); embedding
        and attention are those of this rank's own.
        """
        fused = self.fuse(self.adapted_tokens(batch))
        return replace(fused, logits=self.group.gather(fused.logits))

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Run the encoders, checked against the contract."""
        encoded = encode_checked(self.model, with_stand_in(inputs))
        return {name: tokens[: len(inputs[name])] for name, tokens in encoded.items()}

    def fuse(self, tokens: Tokens, attention: bool = False, own_norm: bool = False) -> Fused:
        """Run the fusion on any subset of the modalities, checked against the contract.

        What comes out of a pass in bfloat16 or float16 is raised to float32 here, once, so that
        losses and scores need not think of it.
        """
        fused = fuse_checked(self.model, with_stand_in(tokens), attention, own_norm)
        rows = slice(len(next(iter(tokens.values()))))
        maps = fused.attention
        if maps is not None:
            maps = replace(maps, weights=_raised(maps.weights))
        return Fused(_raised(fused.embedding[rows]), _raised(fused.logits[rows]), maps)

    def prepare_fusion(self, tokens: Tokens) -> Any:
        """Do what passes through the fusion have in common, for a model that can; else nothing."""
        model = self.model
        return model.prepare_fusion(tokens) if isinstance(model, HasSharedFusion) else tokens

    def fuse_prepared(self, prepared: Any, modalities: Sequence[str]) -> Fused:
        """Run the fusion on some modalities of what was prepared, as `fuse` does on tokens."""
        model = self.model
        if not isinstance(model, HasSharedFusion):
            return self.fuse({name: prepared[name] for name in modalities})
        fused = model.fuse_prepared(prepared, modalities)
        fused = check_fused(fused, len(fused.logits), model)
        return Fused(_raised(fused.embedding), _raised(fused.logits))

    def layer_norms(self) -> list[nn.Parameter]:
        """Return the affine parameters of every LayerNorm of the model."""
        found = [
            parameter
            for module in self.model.modules()
            if isinstance(module, nn.LayerNorm)
            for parameter in module.parameters(recurse=False)
        ]
        if not found:
            raise ContractError(f"{type(self).__name__} trains LayerNorms and the model has none.")
        return found

    def module_like_model(self, module: nn.Module) -> nn.Module:
        """Move a new module to the device and dtype of the model."""
        like = next(iter(self.model.parameters()), torch.empty(0))
        return module.to(device=like.device, dtype=like.dtype)


def _raised(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


METHODS: Registry[type[Method]] = Registry("method")


def check_encoders(method: type[Method], model: nn.Module) -> None:
    """Refuse a method that tunes the encoders of a model made by `dasp.models.faster`."""
    kind = getattr(model, "faster_encoders", None)
    if kind is not None and method.tunes_encoder:
        able = ", ".join(name for name in METHODS if not METHODS[name].tunes_encoder)
        raise ContractError(
            f"{method.__name__} tunes the encoders, and those of this {type(model).__name__} are "
            f"{kind} and learn nothing: give it the model that they were made of, or choose a "
            f"method that leaves encoders alone ({able})."
        )


def hyperparameters(method: type[Method]) -> dict[str, inspect.Parameter]:
    """Return the hyper-parameters of a method by name, read off its signature.

    >>> from dasp.methods import Dasp
    >>> hyperparameters(Dasp)["delta"].default
    0.05
    """
    parameters = inspect.signature(method).parameters
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "seed"
    }


def build_method(method: str | type[Method], model: nn.Module, seed: int, **hyper: Any) -> Method:
    """Build a method by name or class; an unknown hyper-parameter names the nearest right one."""
    build = METHODS[method] if isinstance(method, str) else method
    if not (isinstance(build, type) and issubclass(build, Method)):
        raise OptionError(f"a method is a name or a subclass of Method, not {method!r}.")
    known = hyperparameters(build)
    for name in hyper:
        if name not in known:
            raise OptionError(unknown_name(f"option of {build.__name__}", name, known))
    return build(model, seed=seed, **hyper)


def positive(**values: float) -> None:
    """Refuse hyper-parameters that are not above zero, by name."""
    for name, value in values.items():
        if not (isinstance(value, int | float) and value > 0):
            raise OptionError(f"{name} must be a number above 0, not {value!r}.")


def whole(**values: int) -> None:
    """Refuse hyper-parameters that are not whole numbers from 1, by name."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptionError(f"{name} must be a whole number from 1, not {value!r}.")


def not_negative(**values: float) -> None:
    """Refuse hyper-parameters below zero, by name."""
    for name, value in values.items():
        if not (isinstance(value, int | float) and value >= 0):
            raise OptionError(f"{name} must be a number from 0, not {value!r}.")

"""Faster frozen encoders: bfloat16, 8-bit whole numbers, or compiled; the fusion stays float32."""

import os
import shutil
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from dasp.core.contract import check_parts
from dasp.core.errors import ContractError, OptionError, unknown_name
from dasp.core.types import Inputs
from dasp.models.int8 import Int8Linears

Kind = Literal["bfloat16", "int8", "compiled"]
Encode = Callable[[Inputs], dict[str, Tensor]]
COMPILED_FORMS = 64  # models of one class, times sets of modalities, times fixed and any batch size


def faster(model: nn.Module, kind: Kind) -> nn.Module:
    """Return a model like `model` whose `encode` is faster; `model` itself stays as it is.

    It has every attribute and method of `model` and shares its weights (the same objects), its
    `encode` gives float32 tokens without gradient, all else is exact. docs/faster_encoders.md has
    speed and effect of each kind:

    - "bfloat16": matrix products and attention of the encoders in bfloat16 (`torch.autocast`).
    - "int8": their linear maps in 8-bit whole numbers, see `dasp.models.int8`.
    - "compiled": the same arithmetic, fused by `torch.compile`; the first batch takes long.

    >>> from dasp.models import Toy
    >>> fast = faster(Toy(), "int8")
    >>> tokens = fast.encode({"audio": torch.zeros(2, 6, 12)})
    >>> tokens["audio"].dtype, fast.fuse(tokens).logits.shape
    (torch.float32, torch.Size([2, 8]))
    """
    if kind not in WAYS:
        raise OptionError(unknown_name("kind of encoders", str(kind), WAYS))
    check_parts(model)
    _check_can_be_faster(model)
    own = type(model)
    made = type(own.__name__, (_Faster, own), {"faster_encoders": kind, "__doc__": own.__doc__})
    made.__qualname__ = f"{own.__qualname__}:{kind}"  # part of the digest of a model
    return _twin(model, made, _way=WAYS[kind](model))


class _Faster(nn.Module):
    """Put before a model's own class: the same model with another way to run its `encode`."""

    faster_encoders: str
    _way: Callable[[Encode, Inputs], dict[str, Tensor]]

    @torch.no_grad()
    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode any subset of the modalities to float32 tokens, whatever `autocast` is around."""
        encode: Encode = super().encode  # type: ignore[misc]
        with torch.autocast(_device(self).type, enabled=False):
            tokens = self._way(encode, inputs)
        return {name: value.float() for name, value in tokens.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the plain model, made faster again: its class has no name to find."""
        plain = _twin(self, type(self).__mro__[2])
        del vars(plain)["_way"]
        return faster, (plain, self.faster_encoders)


class Bfloat16:
    """Runs an `encode` in bfloat16 where torch holds that to be safe."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model  # moves to another device with the faster one: they share weights
        if not has_bfloat16(_device(model)):
            _warn_slow("bfloat16", "multiplies no bfloat16 numbers by itself")

    def __call__(self, encode: Encode, inputs: Inputs) -> dict[str, Tensor]:
        """Give the tokens, float32 or bfloat16."""
        with torch.autocast(_device(self._model).type, torch.bfloat16):
            return encode(inputs)


class Int8:
    """Runs the linear maps of an `encode` in 8 bits."""

    def __init__(self, model: nn.Module) -> None:
        if not any(isinstance(module, nn.Linear) for module in model.modules()):
            raise _no_linear(type(model).__name__)
        if not has_int8(_device(model)):
            _warn_slow("int8", "has no instructions for products of 8-bit numbers")
        self._name, self._linears = type(model).__name__, Int8Linears()

    def __call__(self, encode: Encode, inputs: Inputs) -> dict[str, Tensor]:
        """Give the tokens; refuse encoders in which nothing ran in 8 bits."""
        with self._linears:
            tokens = encode(inputs)
        if not self._linears.count:
            raise _no_linear(self._name)
        return tokens


class Compiled:
    """Runs an `encode` compiled by torch, made when it is first called."""

    def __init__(self, model: nn.Module) -> None:
        compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
        if _device(model).type == "cpu" and shutil.which(compiler) is None:
            raise OptionError(
                f"compiled encoders need a C++ compiler, and there is no {compiler} here: install "
                "one, name one in the environment variable CXX, or choose bfloat16 or int8."
            )
        self._compiled: Encode | None = None

    def __call__(self, encode: Encode, inputs: Inputs) -> dict[str, Tensor]:
        """Give the tokens."""
        if self._compiled is None:
            self._compiled = cast(Encode, torch.compile(encode))
        try:
            # Above its limit torch goes back to plain code, and says so in its log alone.
            with torch._dynamo.config.patch(recompile_limit=COMPILED_FORMS):
                return self._compiled(inputs)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise ContractError(
                f"these encoders cannot be compiled here: {str(error).splitlines()[0]} Choose "
                "bfloat16 or int8, or mend what torch.compile complains of."
            ) from error


WAYS: dict[str, Callable[[nn.Module], Callable[[Encode, Inputs], dict[str, Tensor]]]] = {
    "bfloat16": Bfloat16,
    "int8": Int8,
    "compiled": Compiled,
}


def has_bfloat16(device: torch.device) -> bool:
    """Tell whether a device multiplies bfloat16 numbers faster than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return _can("avx512_bf16", "amx_bf16", "bf16")


def has_int8(device: torch.device) -> bool:
    """Tell whether a device has instructions for products of 8-bit numbers."""
    return device.type == "cuda" or _can("avx512_vnni", "avx_vnni", "amx_int8", "dot", "i8mm")


def _can(*names: str) -> bool:
    read = getattr(torch.cpu, "get_capabilities", None)
    return read is None or any(read().get(name) for name in names)  # an older torch cannot tell


def _warn_slow(kind: str, why: str) -> None:
    warnings.warn(
        f"this processor {why}: {kind} encoders will be slower than float32 ones here.",
        RuntimeWarning,
        stacklevel=4,
    )


def _check_can_be_faster(model: nn.Module) -> None:
    name = type(model).__name__
    if isinstance(model, _Faster):
        raise OptionError(
            f"the encoders of this {name} are {model.faster_encoders} already: give faster() the "
            "model that it was made of."
        )
    if isinstance(model, torch.jit.ScriptModule) or "encode" in vars(model):
        raise ContractError(
            f"encode() of this {name} is not a method of its class but compiled or wrapped "
            "already: give faster() the model before that."
        )
    other = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if other:
        raise ContractError(
            f"faster() takes a model in float32 and {name} has {', '.join(map(str, other))}: pass "
            "model.float()."
        )


def _no_linear(name: str) -> ContractError:
    return ContractError(
        f"encode() of {name} runs no nn.Linear that could be int8: choose bfloat16 or compiled."
    )


def _twin(model: nn.Module, kind: type[nn.Module], **more: Any) -> nn.Module:
    """Return an object of another class with the same attributes: the same weights, not copies."""
    twin = kind.__new__(kind)
    vars(twin).update(vars(model), **more)
    return twin


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters(), torch.empty(0)).device

"""Faster frozen encoders: bfloat16, int8 or compiled; the fusion stays in float32.

The int8 products have one scale per output of a weight and one per token of the activations.
torch's own dynamic quantisation is deprecated and uses one scale per batch, so that a sample's
tokens would depend on the other samples. Here a sample gives the same tokens in any batch.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dasp.core.contract import check_parts
from dasp.core.errors import ContractError, OptionError, unknown_name
from dasp.core.types import Inputs

Kind = Literal["bfloat16", "int8", "compiled"]
Encode = Callable[[Inputs], dict[str, Tensor]]
COMPILED_FORMS = 64  # models of a class × sets of modalities × fixed and dynamic batch size
LARGEST = 127  # of a signed byte; -128 is not used, so that the range is symmetric
TINY = 1e-30  # avoids 0 / 0 for a token of zeros
CACHED_ROWS = 1024  # few enough that intermediate results stay in the processor's cache
CUDA_ROWS, CUDA_MULTIPLE = 17, 8  # required by the CUDA kernel


def faster(model: nn.Module, kind: Kind) -> nn.Module:
    """Return a model like `model` with a faster `encode`; `model` itself is not changed.

    It has every attribute and method of `model` and shares its weights (the same objects). Its
    `encode` returns float32 tokens without gradient; everything else is exact.
    docs/faster_encoders.md has the speed and effect of each kind:

    - "bfloat16": matrix products and attention of the encoders in bfloat16 (`torch.autocast`).
    - "int8": their linear layers in 8-bit integers.
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
    """Precedes a model's own class: the same model with another way to run its `encode`."""

    faster_encoders: str
    _way: Callable[[Encode, Inputs], dict[str, Tensor]]

    @torch.no_grad()
    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode any subset of the modalities to float32 tokens, regardless of `autocast`."""
        encode: Encode = super().encode  # type: ignore[misc]
        with torch.autocast(_device(self).type, enabled=False):
            tokens = self._way(encode, inputs)
        return {name: value.float() for name, value in tokens.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the plain model plus its kind: the class cannot be found by name."""
        plain = _twin(self, type(self).__mro__[2])
        del vars(plain)["_way"]
        return faster, (plain, self.faster_encoders)


class Bfloat16:
    """Runs an `encode` in bfloat16 where `torch.autocast` considers it safe."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model  # shares its weights, and so its device, with the faster one
        if not has_bfloat16(_device(model)):
            _warn_slow("bfloat16", "has no instructions for products of bfloat16 numbers")

    def __call__(self, encode: Encode, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tokens, float32 or bfloat16."""
        with torch.autocast(_device(self._model).type, torch.bfloat16):
            return encode(inputs)


class Int8:
    """Runs the linear layers of an `encode` in 8 bits."""

    def __init__(self, model: nn.Module) -> None:
        if not any(isinstance(module, nn.Linear) for module in model.modules()):
            raise _no_linear(type(model).__name__)
        if not has_int8(_device(model)):
            _warn_slow("int8", "has no instructions for products of 8-bit numbers")
        self._name, self._linears = type(model).__name__, Int8Linears()

    def __call__(self, encode: Encode, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tokens; raise an error if nothing ran in 8 bits."""
        with self._linears:
            tokens = encode(inputs)
        if not self._linears.count:
            raise _no_linear(self._name)
        return tokens


class Compiled:
    """Runs an `encode` compiled by torch on its first call."""

    def __init__(self, model: nn.Module) -> None:
        compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
        if _device(model).type == "cpu" and shutil.which(compiler) is None:
            raise OptionError(
                f"compiled encoders need a C++ compiler, and {compiler} is not installed: install "
                "it, set the environment variable CXX, or choose bfloat16 or int8."
            )
        self._compiled: Encode | None = None

    def __call__(self, encode: Encode, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tokens."""
        if self._compiled is None:
            self._compiled = cast(Encode, torch.compile(encode))
        try:
            # Above its limit torch silently falls back to plain code.
            with torch._dynamo.config.patch(recompile_limit=COMPILED_FORMS):
                return self._compiled(inputs)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise ContractError(
                f"these encoders cannot be compiled here: {str(error).splitlines()[0]} Choose "
                "bfloat16 or int8, or fix what torch.compile reports."
            ) from error


WAYS: dict[str, Callable[[nn.Module], Callable[[Encode, Inputs], dict[str, Tensor]]]] = {
    "bfloat16": Bfloat16,
    "int8": Int8,
    "compiled": Compiled,
}


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a device multiplies bfloat16 faster than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return _can("avx512_bf16", "amx_bf16", "bf16")


def has_int8(device: torch.device) -> bool:
    """Return whether a device has instructions for products of 8-bit numbers."""
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
            f"the encoders of this {name} are already {model.faster_encoders}: give faster() the "
            "original model."
        )
    if isinstance(model, torch.jit.ScriptModule) or "encode" in vars(model):
        raise ContractError(
            f"encode() of this {name} is already compiled or wrapped, not a method of its class: "
            "give faster() the original model."
        )
    other = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if other:
        raise ContractError(
            f"faster() takes a model in float32 and {name} has {', '.join(map(str, other))}: pass "
            "model.float()."
        )


def _no_linear(name: str) -> ContractError:
    return ContractError(
        f"encode() of {name} has no nn.Linear to run in int8: choose bfloat16 or compiled."
    )


def _twin(model: nn.Module, kind: type[nn.Module], **more: Any) -> nn.Module:
    """Return an object of another class that shares all attributes, weights included."""
    twin = kind.__new__(kind)
    vars(twin).update(vars(model), **more)
    return twin


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters(), torch.empty(0)).device


@dataclass(frozen=True)
class Int8Weight:
    """A weight (N, K) as integers, transposed for the product, with one scale per output."""

    values: Tensor  # (K, N) int8
    scales: Tensor  # (N,) float32
    made_of: tuple[int, int]  # version and address of the original weight


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row of (M, K) to integers up to ±127: int8 (M, K), and scales (M, 1).

    >>> quantise(torch.tensor([[0.5, -1.0], [0.0, 0.0]]))[0].tolist()
    [[64, -127], [0, 0]]
    """
    largest = values.abs().amax(dim=1, keepdim=True).clamp_min(TINY)
    return (values * (LARGEST / largest)).round_().to(torch.int8), largest / LARGEST


def quantise_weight(weight: Tensor) -> Int8Weight:
    """Round a weight (N, K) with one scale per output."""
    values, scales = quantise(weight.detach())
    return Int8Weight(values.t().contiguous(), scales.flatten(), _state(weight))


def int8_linear(x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
    """Map (..., K) → (..., N) by an exact product of integers; return float32.

    A token that is not finite stays so and does not affect the others.
    """
    flat = x.reshape(-1, x.shape[-1])  # (M, K)
    out = flat.new_empty(len(flat), len(weight.scales))
    step = len(flat) if x.is_cuda else CACHED_ROWS
    for start in range(0, len(flat), step):
        values, scales = quantise(flat[start : start + step])
        part = out[start : start + step]
        torch.mul(_product(values, weight.values), scales, out=part)
        if bias is None:
            part.mul_(weight.scales)
        else:
            torch.addcmul(bias, part, weight.scales, out=part)
    return out.view(*x.shape[:-1], -1)


def _product(values: Tensor, weight: Tensor) -> Tensor:
    """Multiply (M, K) and (K, N) integers: int32 (M, N)."""
    rows = len(values)
    if values.is_cuda and rows < CUDA_ROWS:
        values = F.pad(values, (0, 0, 0, CUDA_ROWS - rows))
    return torch._int_mm(values, weight)[:rows]


class Int8Linears(TorchFunctionMode):
    """Inside this context, every linear layer with a float32 parameter runs in 8 bits.

    Weights are rounded on first use, and again after a change. Other maps (with computed weights,
    inside `nn.MultiheadAttention`, convolutions) are not affected.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        """The number of layers run in 8 bits so far."""
        self._known: dict[nn.Parameter, Int8Weight] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        if func is F.linear:
            return self._linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if not (isinstance(weight, nn.Parameter) and _fits(input, weight)):
            return F.linear(input, weight, bias)
        known = self._known.get(weight)  # tensors are compared by identity
        if known is None or known.made_of != _state(weight):
            known = self._known[weight] = quantise_weight(weight)
        self.count += 1
        return int8_linear(input, known, bias)


def _state(weight: Tensor) -> tuple[int, int]:
    """Return what changes when a parameter is modified in place or moved."""
    return -1 if weight.is_inference() else weight._version, weight.data_ptr()


def _fits(x: Tensor, weight: Tensor) -> bool:
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or x.numel() == 0:
        return False
    return not x.is_cuda or not any(size % CUDA_MULTIPLE for size in weight.shape)

"""Faster frozen encoders: bfloat16, int8 or compiled; the fusion stays in float32.

The int8 products have one scale per output of a weight and one per token of the activations.
torch's own dynamic quantisation is deprecated and uses one scale per batch, so that a sample's
tokens would depend on the other samples. Here a sample gives the same tokens in any batch.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dasp.core.contract import check_parts
from dasp.core.errors import ContractError, OptionError, unknown_name
from dasp.core.types import Inputs

Kind = Literal["bfloat16", "int8", "compiled"]
Encode = Callable[[Inputs], dict[str, Tensor]]
Int8Weight = tuple[Tensor, Tensor]  # (K, N) int8 of a weight (N, K), and its (N,) scales
Way = Callable[[Encode, Inputs], dict[str, Tensor]]  # runs an `encode` on inputs
Maker = Callable[[nn.Module], Way]
COMPILED_FORMS = 64  # models of a class × sets of modalities × fixed and dynamic batch size
LARGEST = 127  # of a signed byte; -128 is not used, so that the range is symmetric
TINY = 1e-30  # avoids 0 / 0 for a token of zeros
CACHED_ROWS = 1024  # few enough that intermediate results stay in the processor's cache
CUDA_ROWS, CUDA_MULTIPLE = 17, 8  # smallest number of rows, and factor of widths, on CUDA


def faster(model: nn.Module, kind: Kind) -> nn.Module:
    """Return a model like `model` with a faster `encode`; `model` itself is not changed.

    It shares every attribute and weight of `model`. Its `encode` returns float32 tokens without
    gradient: "bfloat16" by `torch.autocast`, "int8" with its linear layers in 8-bit integers,
    "compiled" by `torch.compile`. docs/faster_encoders.md has the speed and effect of each.

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
    _way: Way

    @torch.no_grad()
    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode any subset of the modalities to float32 tokens, regardless of `autocast`."""
        with torch.autocast(_device(self).type, enabled=False):
            tokens = self._way(super().encode, inputs)  # type: ignore[misc]
        return {name: value.float() for name, value in tokens.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the plain model plus its kind: the class cannot be found by name."""
        plain = _twin(self, type(self).__mro__[2])
        del vars(plain)["_way"]
        return faster, (plain, self.faster_encoders)


def _bfloat16(model: nn.Module) -> Way:
    """Run `encode` in bfloat16 where `torch.autocast` considers it safe."""
    _warn_if_slow("bfloat16", _device(model), "avx512_bf16", "amx_bf16", "bf16")

    def run(encode: Encode, inputs: Inputs) -> dict[str, Tensor]:
        with torch.autocast(_device(model).type, torch.bfloat16):
            return encode(inputs)

    return run


def _int8(model: nn.Module) -> Way:
    """Run the linear layers of `encode` in 8 bits; raise an error if it has none."""
    fault = f"encode() of {type(model).__name__} has no nn.Linear: choose bfloat16 or compiled."
    if not any(isinstance(module, nn.Linear) for module in model.modules()):
        raise ContractError(fault)
    _warn_if_slow("int8", _device(model), "avx512_vnni", "avx_vnni", "amx_int8", "dot", "i8mm")
    linears = Int8Linears()

    def run(encode: Encode, inputs: Inputs) -> dict[str, Tensor]:
        with linears:
            tokens = encode(inputs)
        if not linears.count:
            raise ContractError(fault)
        return tokens

    return run


def _compiled(model: nn.Module) -> Way:
    """Run `encode` compiled by torch on its first call."""
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if _device(model).type == "cpu" and shutil.which(compiler) is None:
        raise OptionError(
            f"compiled encoders need a C++ compiler, and {compiler} is not installed: install "
            "it, set the environment variable CXX, or choose bfloat16 or int8."
        )
    compile_once = lru_cache(torch.compile)

    def run(encode: Encode, inputs: Inputs) -> dict[str, Tensor]:
        try:
            # Above its limit torch silently falls back to plain code.
            with torch._dynamo.config.patch(recompile_limit=COMPILED_FORMS):
                return compile_once(encode)(inputs)  # type: ignore[no-any-return]
        except torch._dynamo.exc.TorchDynamoException as error:
            raise ContractError(
                f"these encoders cannot be compiled here: {str(error).splitlines()[0]} Choose "
                "bfloat16 or int8, or fix what torch.compile reports."
            ) from error

    return run


WAYS: dict[str, Maker] = {"bfloat16": _bfloat16, "int8": _int8, "compiled": _compiled}


def _warn_if_slow(kind: str, device: torch.device, *instructions: str) -> None:
    """Warn on a processor without any of the instructions that make a kind fast."""
    if device.type == "cuda":
        able = kind == "int8" or torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        read = getattr(torch.cpu, "get_capabilities", None)  # an older torch cannot tell
        able = read is None or any(read().get(name) for name in instructions)
    if not able:
        fault = f"this processor has no instructions for products of {kind} numbers"
        warnings.warn(f"{fault}: float32 is faster here.", RuntimeWarning, stacklevel=4)


def _check_can_be_faster(model: nn.Module) -> None:
    name = type(model).__name__
    if isinstance(model, _Faster):
        fault = f"the encoders of this {name} are already {model.faster_encoders}"
        raise OptionError(f"{fault}: give faster() the original model.")
    if isinstance(model, torch.jit.ScriptModule) or "encode" in vars(model):
        fault = f"encode() of this {name} is already compiled or wrapped"
        raise ContractError(f"{fault}: give faster() the original model.")
    other = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if other:
        fault = f"faster() takes a model in float32 and {name} has {', '.join(map(str, other))}"
        raise ContractError(f"{fault}: pass model.float().")


def _twin(model: nn.Module, kind: type[nn.Module], **more: Any) -> nn.Module:
    """Return an object of another class that shares all attributes, weights included."""
    twin = kind.__new__(kind)
    vars(twin).update(vars(model), **more)
    return twin


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters(), torch.empty(0)).device


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row of (M, K) to integers up to ±127: int8 (M, K), and scales (M, 1).

    >>> quantise(torch.tensor([[0.5, -1.0], [0.0, 0.0]]))[0].tolist()
    [[64, -127], [0, 0]]
    """
    largest = values.abs().amax(dim=1, keepdim=True).clamp_min(TINY)
    return (values * (LARGEST / largest)).round_().to(torch.int8), largest / LARGEST


def quantise_weight(weight: Tensor) -> Int8Weight:
    """Round a weight (N, K) with one scale per output, transposed for the product."""
    values, scales = quantise(weight.detach())
    return values.t().contiguous(), scales.flatten()


def int8_linear(x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
    """Map (..., K) → (..., N) by an exact product of integers; return float32."""
    integers, outputs = weight
    flat = x.reshape(-1, x.shape[-1])  # (M, K)
    out = flat.new_empty(len(flat), len(outputs))
    step = len(flat) if x.is_cuda else CACHED_ROWS
    for part, rows in zip(torch.split(out, step), torch.split(flat, step), strict=True):
        values, scales = quantise(rows)
        if x.is_cuda and len(rows) < CUDA_ROWS:
            values = F.pad(values, (0, 0, 0, CUDA_ROWS - len(rows)))
        product = torch._int_mm(values, integers)[: len(rows)]  # int32 (m, N)
        torch.mul(product, scales, out=part)
        if bias is None:
            part.mul_(outputs)
        else:
            torch.addcmul(bias, part, outputs, out=part)
    return out.view(*x.shape[:-1], -1)


class Int8Linears(TorchFunctionMode):
    """Inside this context, every linear layer with a float32 parameter runs in 8 bits.

    Weights are rounded on first use, and again after a change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0  # of layers run in 8 bits so far
        self._known: dict[nn.Parameter, tuple[tuple[int, int], Int8Weight]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (self._linear if func is F.linear else func)(*args, **(kwargs or {}))

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        single = input.dtype == weight.dtype == torch.float32 and input.numel() > 0
        odd = input.is_cuda and any(size % CUDA_MULTIPLE for size in weight.shape)
        if not isinstance(weight, nn.Parameter) or not single or odd:
            return F.linear(input, weight, bias)
        # What changes when a parameter is modified in place or moved:
        state = -1 if weight.is_inference() else weight._version, weight.data_ptr()
        if weight not in self._known or self._known[weight][0] != state:  # compared by identity
            self._known[weight] = state, quantise_weight(weight)
        self.count += 1
        return int8_linear(input, self._known[weight][1], bias)

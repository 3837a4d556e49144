"""Linear maps in 8-bit whole numbers: weights a scale each output, activations a scale each token.

torch's own dynamic quantisation is deprecated and takes one scale for a whole batch, so that a
sample's tokens would depend on its neighbours. Here every token has its own scale: a sample gives
the same tokens in any batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

LARGEST = 127  # of a signed byte, -128 left out so that both signs reach equally far
TINY = 1e-30  # a scale of zero would make 0 / 0 of a token of zeros
CACHED_ROWS = 1024  # few enough that what lies between two steps stays in the processor's cache
CUDA_ROWS, CUDA_MULTIPLE = 17, 8  # what the kernel there asks for


@dataclass(frozen=True)
class Int8Weight:
    """A weight (N, K) as whole numbers, laid out for the product, with a scale each output."""

    values: Tensor  # (K, N) int8
    scales: Tensor  # (N,) float32
    made_of: tuple[int, int]  # version and address of the weight at that time


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row of (M, K) to whole numbers up to ±127: int8 (M, K), and scales (M, 1).

    >>> quantise(torch.tensor([[0.5, -1.0], [0.0, 0.0]]))[0].tolist()
    [[64, -127], [0, 0]]
    """
    largest = values.abs().amax(dim=1, keepdim=True).clamp_min(TINY)
    return (values * (LARGEST / largest)).round_().to(torch.int8), largest / LARGEST


def quantise_weight(weight: Tensor) -> Int8Weight:
    """Round a weight (N, K), each output by itself."""
    values, scales = quantise(weight.detach())
    return Int8Weight(values.t().contiguous(), scales.flatten(), _state(weight))


def int8_linear(x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
    """Map (..., K) → (..., N) by a product of whole numbers, summed exactly; float32 again after.

    A token that is not finite stays so and leaves the others alone.
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
    """Multiply (M, K) and (K, N) whole numbers: int32 (M, N)."""
    rows = len(values)
    if values.is_cuda and rows < CUDA_ROWS:
        values = F.pad(values, (0, 0, 0, CUDA_ROWS - rows))
    return torch._int_mm(values, weight)[:rows]


class Int8Linears(TorchFunctionMode):
    """Within this, every linear map by a float32 parameter runs in 8 bits.

    Weights are rounded when first met, and again if they have changed since. Other maps (by
    weights that are computed, inside `nn.MultiheadAttention`, convolutions) stay as they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        """How many maps have run in 8 bits so far."""
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
        known = self._known.get(weight)  # tensors are told apart by identity
        if known is None or known.made_of != _state(weight):
            known = self._known[weight] = quantise_weight(weight)
        self.count += 1
        return int8_linear(input, known, bias)


def _state(weight: Tensor) -> tuple[int, int]:
    """Tell apart the values that one parameter has had: changed in place, or moved."""
    return -1 if weight.is_inference() else weight._version, weight.data_ptr()


def _fits(x: Tensor, weight: Tensor) -> bool:
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or x.numel() == 0:
        return False
    return not x.is_cuda or not any(size % CUDA_MULTIPLE for size in weight.shape)

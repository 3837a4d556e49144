"""Encode a damaged modality again, with BatchNorms that know the samples of its condition.

A BatchNorm subtracts the mean and divides by the deviation that its inputs had in training. Damage
changes both, in every layer, and the next layer never learned from that. With n samples of the
present condition,

    mean = w·(mean of the condition) + (1 − w)·(mean of training),    w = n / (n + calm),

and the same for the variance, features are again where the next layer expects them. The model and
its running statistics stay as they are: for one pass, a hook replaces what each BatchNorm returns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dasp.core.types import Inputs
from dasp.methods.base import Method, at_least_float32

Hook = Callable[[Any, Any, Any], Tensor]
"""Returns what a module should have returned; takes the module, its arguments and its output."""


class Moments(NamedTuple):
    """What all BatchNorms saw of one modality, relative to their running means."""

    samples: int
    values: Tensor  # (2, W): first and second moment of every channel of every norm


class ConditionNorms(nn.Module):
    """The moments of the present condition, by modality.

    They are buffers, so resets and saved states cover them. Of earlier samples at most `most`
    count.
    """

    moments: Tensor  # (M, 2, W)
    samples: Tensor  # (M,)

    def __init__(self, model: nn.Module, names: Sequence[str], calm: int, most: int) -> None:
        super().__init__()
        self.names, self.calm, self.most = list(names), calm, most
        norms, width = running_norms(model), 0
        self.places = {}
        for norm in norms:
            self.places[norm] = slice(width, width := width + norm.num_features)
        empty = torch.zeros(len(names), 2, width)
        self.register_buffer("moments", empty.to(statistics_of(norms[0])[0]) if norms else empty)
        self.register_buffer("samples", torch.zeros(len(names), dtype=torch.int64))

    def earlier(self) -> dict[str, Moments]:
        """Return what is remembered of each modality."""
        counts = self.samples.clamp(max=self.most).tolist()
        known = zip(self.names, counts, self.moments, strict=True)
        return {name: Moments(count, values) for name, count, values in known if count}

    def remember(self, found: Mapping[str, Moments]) -> None:
        """Keep these moments, and forget those of all other modalities."""
        self.samples, self.moments = torch.zeros_like(self.samples), torch.zeros_like(self.moments)
        for name, own in found.items():
            place = self.names.index(name)
            self.samples[place], self.moments[place] = own.samples, own.values

    @torch.no_grad()
    def encode(
        self, method: Method, inputs: Inputs, samples: int, earlier: Moments | None
    ) -> tuple[dict[str, Tensor], Moments]:
        """Encode one modality; return its tokens, and its moments from now on.

        `samples` is the number of all ranks' samples, `earlier` what was seen before them.
        """
        before, values = earlier or Moments(0, self.moments[0]), torch.zeros_like(self.moments[0])
        count, here = before.samples + samples, len(next(iter(inputs.values())))

        def normalised(norm: _BatchNorm, given: tuple[Tensor], usual: Tensor) -> Tensor:
            mean, variance = statistics_of(norm)
            rows = at_least_float32(given[0])
            each = moments_of(rows, mean)
            found = method.group.gather(each if here else each[:0]).mean(dim=0)  # (2, C)
            place = self.places[norm]
            values[:, place] = before.values[:, place].lerp(found, samples / count)
            first, second = values[:, place]
            weight = count / (count + self.calm)
            there = mean + weight * first, variance.lerp(second - first.square(), weight)
            scale, offset = (
                own if own is None else own.to(mean) for own in (norm.weight, norm.bias)
            )
            return F.batch_norm(rows, *there, scale, offset, eps=norm.eps).to(usual)

        with hooked(self.places, normalised):
            return method.encode(inputs), Moments(count, values)


def moments_of(rows: Tensor, centre: Tensor) -> Tensor:
    """Return the first and second moment of each row's channels (b, C, …), less a centre (C,).

    → (b, 2, C)
    """
    gap = rows.flatten(2).sub(centre[:, None]) if rows.ndim > 2 else (rows - centre)[..., None]
    return torch.stack([gap.mean(dim=2), gap.square().mean(dim=2)], dim=1)


def statistics_of(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    """Return the running mean and variance (C,) of a norm that has them, in float32 or better."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return at_least_float32(norm.running_mean), at_least_float32(norm.running_var)


def running_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorms that have running statistics."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    return [norm for norm in norms if norm.running_mean is not None]


@contextmanager
def hooked(modules: Iterable[nn.Module], hook: Hook) -> Iterator[None]:
    """Let a hook replace what modules return within this block."""
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

"""Encode a damaged modality again, with BatchNorms that know the samples of its condition.

A BatchNorm subtracts the mean and divides by the deviation that its inputs had in training. Damage
changes both, in every layer, and the next layer never learned from that. n samples of the present
condition have the mean m and the variance v, and g = m − (mean of training). With

    mean = w·m + (1 − w)·(mean of training),      w = n / (n + calm·v / (v + g²)),
    variance = u·v + (1 − u)·(that of training),  u = n / (n + calm),

features are again where the next layer expects them: a gap that is large against the deviation is
no chance, however few samples there are. The model and its running statistics stay as they are: for
one pass, and in this thread alone, the inputs of each BatchNorm are moved and scaled such that what
it does with them comes to that.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from dasp.core.types import Inputs
from dasp.methods.base import Method, at_least_float32

TINY = 1e-30  # avoids 0 / 0 where nothing varies
Change = Callable[[Any, Tensor], Tensor]
"""Returns what a module should be given instead of a tensor."""


class Moments(NamedTuple):
    """What all BatchNorms saw of one modality, relative to their running means."""

    samples: int
    values: Tensor  # (2, W): mean and variance of every channel of every norm

    def joined(self, count: int, later: Tensor, where: slice) -> Tensor:
        """Return the values (2, C) of some channels, with those of `count` later samples."""
        share, before = count / (self.samples + count), self.values[:, where]
        found = before.lerp(later, share)
        found[1] += share * (1 - share) * (later[0] - before[0]).square()
        return found


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
    ) -> tuple[dict[str, Tensor], Moments] | None:
        """Encode one modality; return its tokens, and its moments from now on.

        `samples` is the number of all ranks' samples, `earlier` what was seen before them. Return
        None if no BatchNorm took part, or if moments are too large for their kind of number.
        """
        before = earlier or Moments(0, torch.zeros_like(self.moments[0]))
        count, here = before.samples + samples, len(next(iter(inputs.values())))
        values, seen = before.values.clone(), dict[_BatchNorm, list[Tensor]]()

        def moved(norm: _BatchNorm, given: Tensor) -> Tensor:
            centre, usual = statistics_of(norm)
            rows, place = at_least_float32(given), self.places[norm]
            each = moments_of(rows, centre)
            seen.setdefault(norm, []).append(method.group.gather(each if here else each[:0]))
            every = torch.cat(seen[norm])  # some norms are called several times
            values[:, place] = before.joined(samples, pooled(every), place)
            gap, variance = values[:, place]
            alone = variance / (variance + gap.square()).clamp(min=TINY)
            shift = gap * count / (count + self.calm * alone)
            there = usual.lerp(variance, count / (count + self.calm))
            scale = ((usual + norm.eps) / (there + norm.eps)).sqrt()
            shape = -1, *[1] * (rows.ndim - 2)
            out: Tensor = (rows - (centre + shift).view(shape)) * scale.view(shape)
            return (out + centre.view(shape)).to(given)

        with changed_inputs(self.places, moved), without_compiled_code():
            tokens = method.encode(inputs)
        return (tokens, Moments(count, values)) if seen and values.isfinite().all() else None


def moments_of(rows: Tensor, centre: Tensor) -> Tensor:
    """Return mean, less a centre (C,), and variance of each row's channels (b, C, …): (b, 2, C)."""
    gap = rows.flatten(2).sub(centre[:, None]) if rows.ndim > 2 else (rows - centre)[..., None]
    variance, mean = torch.var_mean(gap, dim=2, correction=0)
    return torch.stack([mean, variance], dim=1)


def pooled(each: Tensor) -> Tensor:
    """Return the mean and variance (2, C) of all rows together, from those of each (b, 2, C)."""
    found = each.mean(dim=0)
    found[1] += each[:, 0].var(dim=0, correction=0)
    return found


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
def changed_inputs(modules: Iterable[nn.Module], change: Change) -> Iterator[None]:
    """Change the input of modules within this block, in this thread.

    A hook that an interrupt leaves behind does nothing.
    """
    owner, active = threading.get_ident(), [True]
    handles: list[RemovableHandle] = []

    def hook(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if not active or threading.get_ident() != owner:
            return None
        if given:
            return (change(module, given[0]), *given[1:]), named
        return given, named | {"input": change(module, named["input"])}

    try:
        handles.extend(m.register_forward_pre_hook(hook, with_kwargs=True) for m in modules)
        yield
    finally:
        active.clear()
        for handle in handles:
            handle.remove()


def without_compiled_code() -> AbstractContextManager[Any]:
    """Return a context in which compiled modules run as written: compiled code may have no hooks.

    If the compiler was never loaded, nothing is compiled.
    """
    compiler = "torch._dynamo" in sys.modules
    return torch.compiler.set_stance("force_eager") if compiler else nullcontext()

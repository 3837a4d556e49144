"""Encode a damaged modality again, with BatchNorms that know the samples of its condition.

A BatchNorm subtracts the mean and divides by the deviation that its inputs had in training. Damage
changes both, in every layer, and the next layer never learned from that. n samples of the present
condition have the mean m and the variance v, and g = m − (mean of training). With

    variance = u·v + (1 − u)·(that of training),  u = n / (n + calm),
    mean = w·m + (1 − w)·(mean of training),      w = n / (n + calm·s / (s + g²)),

and s the larger one of v and that variance, features are again where the next layer expects them: a
gap that is large against the deviation is no chance, however few samples there are. The model and
its running statistics stay as they are: for one pass, and in this thread alone,
`torch.nn.functional.batch_norm` is given others.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from dasp.core.types import Inputs
from dasp.methods.base import Method, at_least_float32

TINY = 1e-30  # avoids 0 / 0 where nothing varies
ENOUGH = 8  # samples among which one that is far off is seen
FAR = 10.0  # deviations from the median beyond which a sample counts no more
Statistics = tuple[Tensor, Tensor]
"""Mean and variance (C,)."""


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
        self.places, self.idle = dict[_BatchNorm, slice](), set[str]()  # whose encoders have none
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
        if self.idle.issuperset(inputs):
            return None
        before = earlier or Moments(0, torch.zeros_like(self.moments[0]))
        count, here = before.samples + samples, len(next(iter(inputs.values())))
        values, seen = before.values.clone(), dict[_BatchNorm, list[Tensor]]()

        def wanted(norm: _BatchNorm, given: Tensor) -> Statistics:
            (centre, usual), place = statistics_of(norm), self.places[norm]
            each = moments_of(at_least_float32(given), centre)
            seen.setdefault(norm, []).append(method.group.gather(each if here else each[:0]))
            every = torch.cat(seen[norm])  # some norms are called several times
            values[:, place] = before.joined(samples, pooled(every, usual), place)
            gap, variance = values[:, place]
            there = usual.lerp(variance, count / (count + self.calm))
            noise = there.maximum(variance)  # of one sample there may be no variance
            alone = noise / (noise + gap.square()).clamp(min=TINY)
            return centre + gap * count / (count + self.calm * alone), there

        with OtherStatistics(self.places, wanted), without_compiled_code():
            tokens = method.encode(inputs)
        if not seen:
            self.idle.update(inputs)
        return (tokens, Moments(count, values)) if seen and values.isfinite().all() else None


def moments_of(rows: Tensor, centre: Tensor) -> Tensor:
    """Return mean, less a centre (C,), and variance of each row's channels (b, C, …): (b, 2, C)."""
    gap = rows.flatten(2).sub(centre[:, None]) if rows.ndim > 2 else (rows - centre)[..., None]
    variance, mean = torch.var_mean(gap, dim=2, correction=0)
    return torch.stack([mean, variance], dim=1)


def pooled(each: Tensor, usual: Tensor) -> Tensor:
    """Return the mean and variance (2, C) of all rows together, from those of each (b, 2, C).

    What is far from the median counts as if it were at a limit, so that a sample with a glitch
    spoils no other; `usual` is the variance (C,) that rows have at least.
    """
    mean, variance = each.unbind(dim=1)
    if len(each) >= ENOUGH:
        middle = mean.median(dim=0).values
        spread = (mean - middle).abs().median(dim=0).values + usual.sqrt()
        mean = mean.clamp(middle - FAR * spread, middle + FAR * spread)
        variance = variance.minimum(FAR * (variance.median(dim=0).values + usual))
    return torch.stack([mean.mean(dim=0), variance.mean(dim=0) + mean.var(dim=0, correction=0)])


def statistics_of(norm: _BatchNorm) -> Statistics:
    """Return the running mean and variance (C,) of a norm that has them, in float32 or better."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return at_least_float32(norm.running_mean), at_least_float32(norm.running_var)


def running_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorms that have running statistics."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    return [norm for norm in norms if norm.running_mean is not None]


class OtherStatistics(TorchFunctionMode):
    """Inside this context, and in this thread, let BatchNorms normalise by other statistics.

    `wanted` is given one of the norms and its input (B, C, …).
    """

    def __init__(
        self, norms: Iterable[_BatchNorm], wanted: Callable[[_BatchNorm, Tensor], Statistics]
    ) -> None:
        super().__init__()
        self._norms = {id(norm.running_mean): norm for norm in norms}
        self._wanted = wanted

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (self._batch_norm if func is F.batch_norm else func)(*args, **(kwargs or {}))

    def _batch_norm(
        self, input: Tensor, running_mean: Tensor, running_var: Tensor, *args: Any, **kwargs: Any
    ) -> Tensor:
        if (norm := self._norms.get(id(running_mean))) is not None:
            found = self._wanted(norm, input)
            running_mean, running_var = (own.to(running_mean) for own in found)
        return F.batch_norm(input, running_mean, running_var, *args, **kwargs)


class _Uncompiled:
    """How many threads encode again: compiled modules run as written until the last is done."""

    lock, inside, stance = threading.Lock(), 0, ExitStack()


@contextmanager
def without_compiled_code() -> Iterator[None]:
    """Let compiled modules run as written within this block: their code has its own statistics.

    If the compiler was never loaded, nothing is compiled.
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with _Uncompiled.lock:
        if not _Uncompiled.inside:
            _Uncompiled.stance.enter_context(torch.compiler.set_stance("force_eager"))
        _Uncompiled.inside += 1
    try:
        yield
    finally:
        with _Uncompiled.lock:
            _Uncompiled.inside -= 1
            if not _Uncompiled.inside:
                _Uncompiled.stance.close()

"""How often a method sends samples through a model: counted by stage, forward and backward."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook

from dasp.core.clock import Clock

ENCODERS = ("encode", "encode_prompted")
"""Calls of a model, see `dasp.core.contract`, that run one encoder for each modality given."""
FUSIONS = ("fuse", "fuse_prepared", "fuse_with_attention", "fuse_own_norm")
"""Calls that run the fusion once on all modalities given; one on prepared tokens is a `fuse`."""


@dataclass(frozen=True, order=True)
class PassKind:
    """A part of the model as it is run: which call, on which modalities, kept for a gradient?"""

    call: str
    modalities: tuple[str, ...]
    gradient: bool


class Passes:
    """Samples that went through each stage; half a batch counts half of it.

    A sample of which some tokens are left out counts as one. A forward has a gradient if its
    output can be differentiated. A backward is counted each time a gradient arrives at that
    output.
    """

    def __init__(self) -> None:
        self.forward: Counter[PassKind] = Counter()
        self.backward: Counter[PassKind] = Counter()
        self._inside = False

    def run(self, name: str, call: Callable[..., Any], first: Any, *rest: Any, **more: Any) -> Any:
        """Run a call of the model and count it, unless another counted call makes it."""
        if self._inside:
            return call(first, *rest, **more)
        self._inside = True
        try:
            out = call(first, *rest, **more)
        finally:
            self._inside = False
        if name in ENCODERS:
            for modality, value in first.items():
                self._count(name, (modality,), len(value), out[modality])
        else:
            stage, fused = ("fuse", rest[0]) if name == "fuse_prepared" else (name, first)
            self._count(stage, tuple(fused), len(out.logits), out)
        return out

    def _count(self, call: str, modalities: tuple[str, ...], samples: int, out: Any) -> None:
        results = [value for value in tensors(out) if value.requires_grad]
        stage = PassKind(call, modalities, bool(results))
        self.forward[stage] += samples
        if results:

            def arrived(_: Tensor) -> None:
                self.backward[stage] += samples

            register_multi_grad_hook(results, arrived, mode="any")

    def rows(self) -> list[dict[str, Any]]:
        """Return the counts as plain data, encoders first."""
        order = sorted(self.forward, key=lambda stage: (stage.call not in ENCODERS, stage))
        return [
            {
                "call": stage.call,
                "modalities": list(stage.modalities),
                "gradient": stage.gradient,
                "forward": self.forward[stage],
                "backward": self.backward[stage],
            }
            for stage in order
        ]


@contextmanager
def counted_passes(model: nn.Module) -> Iterator[Passes]:
    """Count the passes through a model for as long as the block lasts."""
    passes = Passes()
    with _replaced(model, ENCODERS + FUSIONS, lambda name, call: partial(passes.run, name, call)):
        yield passes


class _TimedCall:
    """A call of a model that a clock counts as encoding; a copy of the model has its own, bare."""

    def __init__(self, call: Callable[..., Any], clock: Clock) -> None:
        self.call, self.clock = call, clock

    def __call__(self, *given: Any, **more: Any) -> Any:
        with self.clock.on("encode"):
            return self.call(*given, **more)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., Any]:
        return copy.deepcopy(self.call, memo)


@contextmanager
def timed_encoders(model: nn.Module, clock: Clock) -> Iterator[None]:
    """Count the time of a model's encoders as "encode" for as long as the block lasts."""
    with _replaced(model, ENCODERS, lambda _, call: _TimedCall(call, clock)):
        yield


@contextmanager
def _replaced(
    model: nn.Module, names: Sequence[str], wrap: Callable[[str, Callable[..., Any]], Any]
) -> Iterator[None]:
    """Put `wrap(name, call)` in the place of a model's calls while the block lasts."""
    before = dict(vars(model))
    present = [name for name in names if hasattr(model, name)]
    for name in present:
        setattr(model, name, wrap(name, getattr(model, name)))
    try:
        yield
    finally:
        for name in present:
            if name in before:
                setattr(model, name, before[name])
            else:
                delattr(model, name)


def tensors(value: Any) -> Iterator[Tensor]:
    """Give the tensors in what a model returned: a tensor, a map or a dataclass of them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))

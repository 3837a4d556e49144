"""Inputs and tokens of every domain, made once for all methods, protocols and models."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dasp.bench.gather import gather
from dasp.bench.material import Material
from dasp.bench.store import Array, Store, digest
from dasp.core.clock import Clock
from dasp.core.errors import DataError
from dasp.core.types import Inputs, Tokens
from dasp.data.timing import TimedSamples
from dasp.streams.domains import Domain
from dasp.streams.visits import Condition

CHUNK = 64
AHEAD = 2  # batches: one that waits, one on its way
FLOAT32, FLOAT16 = "float32", "float16"
PRECISIONS = (FLOAT32, FLOAT16)


@dataclass(frozen=True)
class Part:
    """One array of the store: a modality of a domain, raw or encoded."""

    modality: str
    domain: Domain | None
    encoded: bool
    precision: str = FLOAT32
    """In which tokens are kept: float32 as they come, or float16 at half the size."""


class Features:
    """The inputs (n, ...) and tokens (n, N, D) of a material under a model.

    `ahead` says how many batches a run may gather before it needs them, in a thread of its own:
    none where there is no store, and a batch may have to be made.
    """

    def __init__(self, material: Material, model: nn.Module, store: Store | None) -> None:
        self.material, self.model, self.store = material, model, store
        self.labels = torch.tensor(material.labels())
        self.device = next(iter(model.parameters()), torch.empty(0)).device
        self.ahead = 0 if store is None else AHEAD
        self._encoders: Callable[[Inputs], Tokens] = model.encode  # type: ignore[assignment]
        self.model_digest = model_digest(model)
        self._keys: dict[Part, dict[str, Any]] = {}

    def get(self, part: Part) -> Array:
        """Return the array of a part, from the store or made now."""
        if self.store is None:
            return np.concatenate(list(self._make(part, Clock())))
        return self.store.get(self.key(part), len(self.labels), partial(self._make, part))

    def batches(
        self,
        conditions: Sequence[Condition],
        encoded: bool,
        order: NDArray[np.int64],
        size: int,
        precision: str = FLOAT32,
    ) -> Iterator[tuple[NDArray[np.int64], dict[str, torch.Tensor]]]:
        """Give samples under conditions in an order, `size` at a time: numbers, and what they are.

        Number k·n + i is sample i of n under the k-th condition. Batches are float32, in whatever
        `precision` tokens are kept.
        """
        views = [self._view(condition, encoded, precision) for condition in conditions]
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            places, rows = np.divmod(numbers, len(self.labels))
            yield (
                numbers,
                {
                    name: self._put(gather([view[name] for view in views], places, rows))
                    for name in views[0]
                },
            )

    def _view(self, condition: Condition, encoded: bool, precision: str) -> dict[str, Array]:
        """Return the array of each modality that is there under a condition."""
        names: Sequence[str] = self.model.modalities  # type: ignore[assignment]
        return {
            name: self._constant(name, encoded, precision)
            if name in condition.constant
            else self.get(Part(name, condition.domain(name), encoded, precision))
            for name in names
            if name not in condition.missing
        }

    def _constant(self, modality: str, encoded: bool, precision: str) -> Array:
        """Return what a dead sensor gives: zeros of the raw shape, encoded like any input."""
        shape = self.get(Part(modality, None, encoded=False)).shape[1:]
        row: Array = np.zeros((1, *shape), np.float32)
        if encoded:
            row = next(self._encode(Part(modality, None, encoded, precision), row, Clock()))
        return np.broadcast_to(row, (len(self.labels), *row.shape[1:]))

    def key(self, part: Part) -> dict[str, Any]:
        """Return all that decides an array: data, domain as this code makes it, model."""
        if part not in self._keys:  # a probe is damaged for it: once is enough
            self._keys[part] = self._key(part)
        return self._keys[part]

    def _key(self, part: Part) -> dict[str, Any]:
        domain = own_domain(part)
        key: dict[str, Any] = {
            "kind": "tokens" if part.encoded else "inputs",
            "data": self.material.identity,
            "modality": part.modality,
            "domain": "clean" if domain is None else str(domain),
            "damage": "" if domain is None else self.material.damage(domain).fingerprint(),
        }
        if part.encoded:
            key["model"] = self.model_digest
            key["torch"] = torch.__version__
            if part.precision != FLOAT32:
                key["precision"] = part.precision
            if self.device.type != "cpu":  # it rounds in another way
                key["device"] = self.device.type
        return key

    def _make(self, part: Part, clock: Clock) -> Iterator[Array]:
        if part.encoded:
            inputs = self.get(Part(part.modality, part.domain, encoded=False))
            yield from self._encode(part, inputs, clock)
        else:
            samples = TimedSamples(self.material.samples(part.modality, own_domain(part)))
            for start in range(0, len(samples), CHUNK):
                indices = range(start, min(start + CHUNK, len(samples)))
                chunk = np.stack([samples[i].inputs[part.modality].numpy() for i in indices])
                clock.add(samples.clock.news())
                yield chunk

    @torch.no_grad()
    def _encode(self, part: Part, inputs: Array, clock: Clock) -> Iterator[Array]:
        for start in range(0, len(inputs), CHUNK):
            with clock.on("encode"):
                chunk = self._put(np.array(inputs[start : start + CHUNK]))
                tokens = self._encoders({part.modality: chunk})[part.modality]
                kept = _kept(tokens.cpu().numpy(), part)
            yield kept

    def _put(self, rows: Array) -> torch.Tensor:
        """Return rows where the model is."""
        return torch.from_numpy(rows).to(self.device)


def _kept(tokens: Array, part: Part) -> Array:
    """Return tokens as they are kept; what float16 cannot hold is refused, not made infinite."""
    if part.precision == FLOAT32:
        return tokens
    with np.errstate(over="ignore"):
        half = tokens.astype(np.float16)
    if np.isinf(half).any() and np.isfinite(tokens).all():
        raise DataError(
            f"tokens of {part.modality} reach {np.abs(tokens).max():.3g}, more than float16 holds: "
            "keep them as float32."
        )
    return half


def own_domain(part: Part) -> Domain | None:
    """A corruption of video leaves the audio untouched: it is the clean one."""
    return part.domain if part.domain and part.domain.modality == part.modality else None


def parts_of(
    conditions: Iterable[Condition],
    modalities: Sequence[str],
    encoded: bool,
    precision: str = FLOAT32,
) -> set[Part]:
    """Return the distinct arrays that these conditions need; of constants, a raw one's shape."""
    return {
        Part(name, condition.domain(name), True, precision)
        if encoded and name not in condition.constant
        else Part(name, condition.domain(name), False)
        for condition in conditions
        for name in modalities
        if name not in condition.missing
    }


def model_digest(model: nn.Module) -> str:
    """Hash a model's class, sizes and weights."""
    weights = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    config = getattr(model, "config", {})
    return digest([type(model).__qualname__, config, weights.hexdigest()])

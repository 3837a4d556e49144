"""Inputs and tokens of every domain, made once for all methods, protocols and models."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dasp.bench.material import Material
from dasp.bench.store import Array, Store, digest
from dasp.streams.domains import Domain
from dasp.streams.visits import Condition

CHUNK = 64


@dataclass(frozen=True)
class Part:
    """One array of the store: a modality of a domain, raw or encoded."""

    modality: str
    domain: Domain | None
    encoded: bool


class Features:
    """The inputs (n, ...) and tokens (n, N, D) of a material under a model."""

    def __init__(self, material: Material, model: nn.Module, store: Store | None) -> None:
        self.material, self.model, self.store = material, model, store
        self.labels = torch.tensor(material.labels())
        self.model_digest = model_digest(model)

    def get(self, part: Part) -> Array:
        """Return the array of a part, from the store or made now."""
        if self.store is None:
            return np.concatenate(list(self._make(part)))
        return self.store.get(self.key(part), len(self.labels), lambda: self._make(part))

    def batches(
        self, conditions: Sequence[Condition], encoded: bool, order: NDArray[np.int64], size: int
    ) -> Iterator[tuple[NDArray[np.int64], dict[str, torch.Tensor]]]:
        """Give samples under conditions in an order, `size` at a time: numbers, and what they are.

        Number k·n + i is sample i of n under the k-th condition.
        """
        views = [self._view(condition, encoded) for condition in conditions]
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            places, rows = np.divmod(numbers, len(self.labels))
            yield (
                numbers,
                {
                    name: torch.from_numpy(_rows([view[name] for view in views], places, rows))
                    for name in views[0]
                },
            )

    def _view(self, condition: Condition, encoded: bool) -> dict[str, Array]:
        """Return the array of each modality that is there under a condition."""
        names: Sequence[str] = self.model.modalities  # type: ignore[assignment]
        return {
            name: self._constant(name, encoded)
            if name in condition.constant
            else self.get(Part(name, condition.domain(name), encoded))
            for name in names
            if name not in condition.missing
        }

    def _constant(self, modality: str, encoded: bool) -> Array:
        """Return what a dead sensor gives: zeros of the raw shape, encoded like any input."""
        shape = self.get(Part(modality, None, encoded=False)).shape[1:]
        row = np.zeros((1, *shape), np.float32)
        if encoded:
            row = next(self._encode(modality, row))
        return np.broadcast_to(row, (len(self.labels), *row.shape[1:]))

    def key(self, part: Part) -> dict[str, Any]:
        """Return all that decides an array: data, domain as this code makes it, model."""
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
        return key

    def _make(self, part: Part) -> Iterator[Array]:
        raw = Part(part.modality, part.domain, encoded=False)
        if part.encoded:
            yield from self._encode(part.modality, self.get(raw))
        else:
            samples = self.material.samples(part.modality, own_domain(part))
            for start in range(0, len(samples), CHUNK):
                indices = range(start, min(start + CHUNK, len(samples)))
                yield np.stack([samples[i].inputs[part.modality].numpy() for i in indices])

    @torch.no_grad()
    def _encode(self, modality: str, inputs: Array) -> Iterator[Array]:
        for start in range(0, len(inputs), CHUNK):
            chunk = torch.from_numpy(np.array(inputs[start : start + CHUNK]))
            tokens = self.model.encode({modality: chunk})  # type: ignore[operator]
            yield tokens[modality].numpy()


def own_domain(part: Part) -> Domain | None:
    """A corruption of video leaves the audio untouched: it is the clean one."""
    return part.domain if part.domain and part.domain.modality == part.modality else None


def parts_of(
    conditions: Iterable[Condition], modalities: Sequence[str], encoded: bool
) -> set[Part]:
    """Return the distinct arrays that these conditions need; of constants, a raw one's shape."""
    return {
        Part(name, condition.domain(name), encoded and name not in condition.constant)
        for condition in conditions
        for name in modalities
        if name not in condition.missing
    }


def _rows(
    arrays: Sequence[Array], places: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Gather row `rows[i]` of the array `places[i]` for each i, into memory of its own."""
    found = np.empty((len(rows), *arrays[0].shape[1:]), arrays[0].dtype)
    for place in np.unique(places):
        mine = places == place
        found[mine] = arrays[place][rows[mine]]
    return found


def model_digest(model: nn.Module) -> str:
    """Hash a model's class, sizes and weights."""
    weights = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    config = getattr(model, "config", {})
    return digest([type(model).__qualname__, config, weights.hexdigest()])

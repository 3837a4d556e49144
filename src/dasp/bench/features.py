"""Inputs and tokens of every domain, made once for all methods, protocols and models."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dasp.bench.material import Material
from dasp.bench.store import Array, Store, digest
from dasp.streams.domains import Domain

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
        self._model_digest = model_digest(model)

    def get(self, part: Part) -> Array:
        """Return the array of a part, from the store or made now."""
        if self.store is None:
            return np.concatenate(list(self._make(part)))
        return self.store.get(self.key(part), len(self.labels), lambda: self._make(part))

    def batches(
        self, domain: Domain | None, encoded: bool, order: NDArray[np.int64], size: int
    ) -> Iterator[tuple[NDArray[np.int64], dict[str, torch.Tensor]]]:
        """Give the samples of a domain in an order, `size` at a time: rows, and what they are."""
        names: Sequence[str] = self.model.modalities  # type: ignore[assignment]
        arrays = {name: self.get(Part(name, domain, encoded)) for name in names}
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            yield rows, {name: torch.from_numpy(np.array(a[rows])) for name, a in arrays.items()}

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
            key["model"] = self._model_digest
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
    domains: Sequence[Domain | None], modalities: Sequence[str], encoded: bool
) -> set[Part]:
    """Return the distinct arrays that these domains need."""
    parts = {Part(name, domain, encoded) for domain in domains for name in modalities}
    return {Part(part.modality, own_domain(part), part.encoded) for part in parts}


def model_digest(model: nn.Module) -> str:
    """Hash a model's class, sizes and weights."""
    weights = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    config = getattr(model, "config", {})
    return digest([type(model).__qualname__, config, weights.hexdigest()])

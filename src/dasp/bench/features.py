"""Inputs and tokens of every domain, computed once for all methods and protocols."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dasp.bench.code import code_of_features
from dasp.bench.datasets import Dataset, Samples
from dasp.bench.references import model_digest
from dasp.bench.store import Array, Store, gather
from dasp.core.errors import DataError, naming
from dasp.core.types import Inputs, Tokens
from dasp.methods.base import device_of
from dasp.streams.domains import Domain
from dasp.streams.protocols import Condition

CHUNK = 64
AHEAD = 2  # batches: one that waits, one on its way
FLOAT32, FLOAT16 = "float32", "float16"

Item = TypeVar("Item")
_END: Any = object()  # follows the last item


@dataclass(frozen=True)
class FeatureSpec:
    """One array of the store: a modality of a domain, raw or encoded."""

    modality: str
    domain: Domain | None
    encoded: bool
    precision: str = FLOAT32  # of stored tokens: as they come, or float16 at half the size


class Features:
    """The inputs (n, ...) and tokens (n, N, D) of a data set under a model.

    `ahead` is the number of batches that a run may gather before it needs them, in a thread of its
    own: none without a store, where a batch may have to be computed.
    """

    def __init__(
        self, dataset: Dataset, model: nn.Module, store: Store | None, digest: str | None = None
    ) -> None:
        self.dataset, self.model, self.store = dataset, model, store
        self.identity = dataset.identity  # asked once: the files of clips are looked at for it
        self.labels = torch.tensor(dataset.labels())
        self.device = device_of(model)
        self.ahead = 0 if store is None else AHEAD
        self.modalities: tuple[str, ...] = tuple(model.modalities)  # type: ignore[arg-type]
        self._encoders: Callable[[Inputs], Tokens] = model.encode  # type: ignore[assignment]
        self.model_digest = digest_on(dataset, model) if digest is None else digest
        self._keys: dict[FeatureSpec, dict[str, Any]] = {}

    def get(self, spec: FeatureSpec) -> Array:
        """Return the array of a spec, from the store or made now."""
        if self.store is None:
            return np.concatenate(list(self._make(spec)))
        return self.store.get(self.key(spec), len(self.labels), partial(self._make, spec))

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
            batch = {name: gather([v[name] for v in views], places, rows) for name in views[0]}
            yield numbers, {name: self._put(values) for name, values in batch.items()}

    def _view(self, condition: Condition, encoded: bool, precision: str) -> dict[str, Array]:
        """Return the array of each modality that is there under a condition."""
        return {
            name: self._constant(name, encoded, precision)
            if name in condition.constant
            else self.get(FeatureSpec(name, condition.domain(name), encoded, precision))
            for name in self.modalities
            if name not in condition.missing
        }

    def _constant(self, modality: str, encoded: bool, precision: str) -> Array:
        """Return what a dead sensor gives: zeros of the raw shape, encoded like any input."""
        shape = self.get(FeatureSpec(modality, None, encoded=False)).shape[1:]
        row: Array = np.zeros((1, *shape), np.float32)
        if encoded:
            row = next(self._encode(FeatureSpec(modality, None, encoded, precision), row))
        return np.broadcast_to(row, (len(self.labels), *row.shape[1:]))

    def key(self, spec: FeatureSpec) -> dict[str, Any]:
        """Return all that decides an array: data, domain as this code makes it, model."""
        if spec in self._keys:  # a probe is damaged for it: once is enough
            return self._keys[spec]
        domain = own_domain(spec)
        key: dict[str, Any] = {
            "kind": "tokens" if spec.encoded else "inputs",
            "data": self.identity,
            "modality": spec.modality,
            "domain": "clean" if domain is None else str(domain),
            "damage": "" if domain is None else self.dataset.damage(domain).fingerprint(),
            "code": code_of_features(),
        }
        if spec.encoded:
            key |= {"model": self.model_digest, "torch": torch.__version__}
            if spec.precision != FLOAT32:
                key["precision"] = spec.precision
            if self.device.type != "cpu":  # it rounds in another way
                key["device"] = self.device.type
        self._keys[spec] = key
        return key

    def _make(self, spec: FeatureSpec) -> Iterator[Array]:
        if spec.encoded:
            inputs = self.get(FeatureSpec(spec.modality, spec.domain, encoded=False))
            yield from self._encode(spec, inputs)
            return
        samples = self.dataset.samples(spec.modality, domain := own_domain(spec))
        for start in range(0, len(samples), CHUNK):
            rows = range(start, min(start + CHUNK, len(samples)))
            yield np.stack([_read(samples, row, spec.modality, domain) for row in rows])

    @torch.no_grad()
    def _encode(self, spec: FeatureSpec, inputs: Array) -> Iterator[Array]:
        for start in range(0, len(inputs), CHUNK):
            chunk = self._put(np.array(inputs[start : start + CHUNK]))
            tokens = self._encoders({spec.modality: chunk})[spec.modality].cpu()
            kept = tokens.half() if spec.precision == FLOAT16 else tokens
            if kept.isinf().any() and tokens.isfinite().all():
                raise DataError(
                    f"tokens of {spec.modality} reach {tokens.abs().max():.3g}, more than float16 "
                    "holds: keep them as float32."
                )
            yield kept.numpy()

    def _put(self, rows: Array) -> torch.Tensor:
        """Return rows where the model is."""
        return torch.from_numpy(rows).to(self.device)


def own_domain(spec: FeatureSpec) -> Domain | None:
    """A corruption of video leaves the audio untouched: it is the clean one."""
    return spec.domain if spec.domain and spec.domain.modality == spec.modality else None


def _read(samples: Samples, row: int, modality: str, domain: Domain | None) -> Array:
    """Return one modality of a sample; an error of a user's own data set names both."""
    with naming(f"reading {modality} of sample {row} ({domain or 'clean'})"):
        return samples[row].inputs[modality].numpy()


def digest_on(dataset: Dataset, model: nn.Module, reference: str = "") -> str:
    """Return the digest of a model; a user's own is asked about the first sample of a data set."""

    def first() -> Inputs:
        names: tuple[str, ...] = tuple(model.modalities)  # type: ignore[arg-type]
        samples = {name: _read(dataset.samples(name, None), 0, name, None) for name in names}
        tensors = {name: torch.from_numpy(value) for name, value in samples.items()}
        return {name: value[None].to(device_of(model)) for name, value in tensors.items()}

    return model_digest(model, reference, first)


@contextmanager
def drawn_ahead(items: Generator[Item, None, None], depth: int) -> Iterator[Iterator[Item]]:
    """Yield an iterator over the items; a thread makes up to `depth` of them in advance.

    An error in making an item is raised where the item is asked for. The thread ends with the
    block, even when not all items were taken. With depth 0 no thread is used.
    """
    with closing(items), ThreadPoolExecutor(1, "drawn ahead") as pool:
        ready = deque(pool.submit(next, items, _END) for _ in range(depth))

        def take() -> Iterator[Item]:
            while (item := ready.popleft().result()) is not _END:
                ready.append(pool.submit(next, items, _END))
                yield item

        try:
            yield take() if depth else items
        finally:
            pool.shutdown(cancel_futures=True)

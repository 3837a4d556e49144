"""What a source model shows of a shift: entropy, confidence and redundancy of each modality.

Nothing adapts here. Each modality is judged alone, from its own tokens through the fusion, as
DASP's diagnosis sees it; the joint accuracy stands beside it.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dasp.bench.features import CHUNK, Features, Part, own_domain
from dasp.core.errors import DataError
from dasp.core.seeding import numpy_generator
from dasp.corruptions.base import registry
from dasp.methods.losses import entropy
from dasp.methods.redundancy import paper_redundancy, released_redundancy
from dasp.streams.domains import Domain

INDICATORS = {"entropy": 1, "confidence": -1, "released": 1, "paper": 1}
"""Each indicator, and 1 where the highest modality looks shifted, -1 where the lowest does."""
DRAWS = 32  # of Gaussians for the noise floor

Score = dict[str, float | None]


@dataclass(frozen=True)
class Alone:
    """What the model makes of all samples of one modality, seen alone."""

    embedding: Tensor  # (n, D)
    right: int
    entropy: Tensor  # (n,)
    confidence: Tensor  # (n,)


class Measure:
    """Measures the domains of one model; a modality's clean samples are passed once for all."""

    def __init__(self, features: Features, seed: int) -> None:
        self.features, self.seed = features, seed
        self.modalities: tuple[str, ...] = tuple(features.model.modalities)  # type: ignore[arg-type]
        self.width: int = features.model.embed_dim  # type: ignore[assignment]
        self._clean: dict[str, Alone] = {}

    def domain(self, domain: Domain | None, batch_sizes: Sequence[int]) -> list[dict[str, Any]]:
        """Return what is seen in one domain (None: clean), for each batch size."""
        name = "clean" if domain is None else str(domain)
        alone = {
            modality: self._alone(Part(modality, domain, True)) for modality in self.modalities
        }
        joint = int((self._pass(self.modalities, domain)[1].argmax(1) == self.labels).sum())
        # The order in which a run meets this domain: the scores are those that DASP sees there.
        order = numpy_generator(self.seed, "order", name).permutation(len(self.labels))
        return [
            {
                "name": name,
                "family": None if domain is None else family(domain),
                "seen": len(self.labels),
                "joint": joint,
                **by_batch(alone, list(whole_batches(order, size))),
            }
            for size in batch_sizes
        ]

    @property
    def labels(self) -> Tensor:
        """Return the label of each sample, (n,)."""
        return self.features.labels

    def _alone(self, part: Part) -> Alone:
        clean = own_domain(part) is None
        if clean and part.modality in self._clean:
            return self._clean[part.modality]
        embedding, logits = self._pass((part.modality,), part.domain)
        right = int((logits.argmax(dim=1) == self.labels).sum())
        found = Alone(embedding, right, entropy(logits), logits.softmax(dim=1).amax(dim=1))
        if clean:
            self._clean[part.modality] = found
        return found

    @torch.no_grad()
    def _pass(self, names: Sequence[str], domain: Domain | None) -> tuple[Tensor, Tensor]:
        """Fuse these modalities' tokens chunk by chunk: embedding (n, D), logits (n, C)."""
        arrays = {name: self.features.get(Part(name, domain, True)) for name in names}
        embeddings, logits = [], []
        for start in range(0, len(self.labels), CHUNK):
            rows = slice(start, start + CHUNK)
            tokens = {n: torch.from_numpy(np.array(array[rows])) for n, array in arrays.items()}
            fused = self.features.model.fuse(tokens)  # type: ignore[operator]
            embeddings.append(fused.embedding.float())
            logits.append(fused.logits.float())
        found = torch.cat(embeddings), torch.cat(logits)
        if not all(bool(value.isfinite().all()) for value in found):
            raise DataError(
                f"the model gives values that are not finite for {', '.join(names)} in "
                f"{domain or 'clean'}: look at its weights and at these samples."
            )
        return found


def whole_batches(order: np.ndarray[Any, Any], size: int) -> Iterator[Tensor]:
    """Give the batches of an order, each (size,); a shorter rest only if it is all there is.

    Both redundancies depend on the size of a batch, so a short last one would blur them.
    """
    for start in range(0, max(len(order) - size, 0) + 1, size):
        yield torch.from_numpy(order[start : start + size])


def by_batch(alone: Mapping[str, Alone], batches: Sequence[Tensor]) -> dict[str, Any]:
    """Return each modality's indicators, and in how many batches each one points at it."""
    values: dict[str, dict[str, list[float]]] = {
        indicator: {modality: [] for modality in alone} for indicator in INDICATORS
    }
    for rows in batches:
        embeddings = {modality: found.embedding[rows] for modality, found in alone.items()}
        released = released_redundancy(embeddings)
        for modality, found in alone.items():
            values["entropy"][modality].append(float(found.entropy[rows].mean()))
            values["confidence"][modality].append(float(found.confidence[rows].mean()))
            values["released"][modality].append(float(released[modality]))
            values["paper"][modality].append(float(paper_redundancy(embeddings[modality])))
    return {
        "batches": len(batches),
        "modalities": {
            modality: {
                "right": found.right,
                **{indicator: spread(values[indicator][modality]) for indicator in INDICATORS},
                "named": {
                    indicator: named(values[indicator], sign).count(modality)
                    for indicator, sign in INDICATORS.items()
                },
            }
            for modality, found in alone.items()
        },
    }


def named(values: Mapping[str, Sequence[float]], sign: int) -> list[str | None]:
    """Return the one modality with the highest value × sign of each batch, None in a tie.

    >>> named({"audio": [1.0, 2.0, 3.0], "video": [2.0, 1.0, 3.0]}, 1)
    ['video', 'audio', None]
    """
    found: list[str | None] = []
    for batch in zip(*values.values(), strict=True):
        top = max(value * sign for value in batch)
        best = [name for name, value in zip(values, batch, strict=True) if value * sign == top]
        found.append(best[0] if len(best) == 1 else None)
    return found


def noise_floor(measure: Measure, batch_size: int) -> dict[str, Score]:
    """Return both scores of Gaussians of the model's width that have nothing in common."""
    rows, width = min(batch_size, len(measure.labels)), measure.width
    values: dict[str, list[float]] = {"released": [], "paper": []}
    for draw in range(DRAWS):
        generator = numpy_generator(measure.seed, "noise floor", f"{rows} {width}", str(draw))
        noise = {
            name: torch.from_numpy(generator.standard_normal((rows, width), np.float32))
            for name in measure.modalities
        }
        values["released"] += map(float, released_redundancy(noise).values())
        values["paper"] += [float(paper_redundancy(value)) for value in noise.values()]
    return {name: spread(found) for name, found in values.items()}


def spread(values: Sequence[float]) -> Score:
    """Return mean and sample standard deviation; one value has no deviation.

    >>> spread([1.0, 3.0])
    {'mean': 2.0, 'std': 1.414214}
    """
    deviation = round(statistics.stdev(values), 6) if len(values) > 1 else None
    return {"mean": round(statistics.fmean(values), 6), "std": deviation}


def family(domain: Domain) -> str:
    """Return the kind of a corruption, such as "noise" or "blur"."""
    return registry(domain.modality)[domain.corruption].family

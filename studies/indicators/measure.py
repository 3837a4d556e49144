"""Measure what source models show under every corruption; nothing adapts.

Each modality is judged alone, from its own tokens through the fusion, as DASP's diagnosis sees it.
`sights` counts which modality entropy, confidence and redundancy point at; `flags` counts which
modality each indicator flags, at several thresholds.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from indicators import COMBINATIONS, INDICATORS, Look, clean_levels, deviations
from torch import Tensor

from dasp.bench.features import CHUNK, Features, FeatureSpec
from dasp.core.seeding import numpy_generator
from dasp.core.types import Fused
from dasp.methods.dasp import redundancy
from dasp.methods.losses import entropy
from dasp.streams.domains import Domain, all_domains
from dasp.streams.protocols import sample_order

POINTERS = {"entropy": 1, "confidence": -1, "released": 1, "paper": 1}
"""Each score, and 1 if the highest modality looks shifted, -1 if the lowest does."""
THRESHOLDS = (*(step / 2 for step in range(2, 13)), 7.0, 8.0, 10.0, 12.0, 16.0, 20.0)
ORDERS = ("shuffled", "sorted")
CLEAN_ORDERS = 8  # of clean samples: one order alone gives too few batches
CLEAN_SAMPLES = 128  # of the training split, from which levels are learned
SEED = 0
NOISE_DRAWS = 32
Rows = list[dict[str, Any]]


class Watch:
    """Looks at the domains of one model; clean samples of a modality are passed once for all."""

    def __init__(self, features: Features) -> None:
        self.features, self.labels = features, features.labels
        self.modalities: tuple[str, ...] = tuple(features.model.modalities)
        self._clean: dict[str, Fused] = {}

    def look(self, domain: Domain | None) -> Look:
        """Return what the model makes of all samples of a domain (None: clean)."""
        seen = {}
        for name in self.modalities:
            if domain is not None and domain.modality == name:
                seen[name] = self._pass((name,), domain)
            else:
                if name not in self._clean:
                    self._clean[name] = self._pass((name,), None)
                seen[name] = self._clean[name]
        return Look(seen, self._pass(self.modalities, domain).logits)

    @torch.no_grad()
    def _pass(self, names: Sequence[str], domain: Domain | None) -> Fused:
        """Fuse the tokens of these modalities chunk by chunk: embedding (n, D), logits (n, C)."""
        arrays = {name: self.features.get(FeatureSpec(name, domain, True)) for name in names}
        parts = []
        for start in range(0, len(self.labels), CHUNK):
            rows = slice(start, start + CHUNK)
            tokens = {n: torch.from_numpy(np.array(array[rows])) for n, array in arrays.items()}
            parts.append(self.features.model.fuse(tokens))
        embedding = torch.cat([part.embedding.float() for part in parts])
        return Fused(embedding, torch.cat([part.logits.float() for part in parts]))


def whole_batches(order: np.ndarray, size: int) -> Iterator[Tensor]:
    """Yield the batches of an order; a shorter rest only if it is all there is.

    Redundancy depends on the size of a batch.
    """
    for start in range(0, max(len(order) - size, 0) + 1, size):
        yield torch.from_numpy(order[start : start + size])


def sights(watch: Watch, severity: int, sizes: Sequence[int]) -> dict[str, Rows]:
    """Return what each modality shows in each domain, and redundancy of pure noise."""
    rows: Rows = []
    for domain in [None, *all_domains(watch.modalities, (), (severity,))]:
        name = "clean" if domain is None else str(domain)
        look = watch.look(domain)
        values = {
            name: {
                "entropy": entropy(view.logits),
                "confidence": view.logits.softmax(dim=1).amax(dim=1),
            }
            for name, view in look.seen.items()
        }
        # The order in which a run meets this domain: the scores are those that DASP sees there.
        order = numpy_generator(SEED, "order", name).permutation(len(watch.labels))
        for size in sizes:
            batches = list(whole_batches(order, size))
            found = _by_batch(look, values, batches)
            for modality in watch.modalities:
                right = look.seen[modality].logits.argmax(dim=1) == watch.labels
                row = {
                    "severity": severity,
                    "batch_size": size,
                    "domain": name,
                    "damaged": None if domain is None else domain.modality,
                    "modality": modality,
                    "seen": len(watch.labels),
                    "right": int(right.sum()),
                    "batches": len(batches),
                }
                for score, sign in POINTERS.items():
                    mine = found[score][modality]
                    row[score] = round(statistics.fmean(mine), 6)
                    row[f"{score}_named"] = pointed_at(found[score], sign).count(modality)
                rows.append(row)
    noise = [
        {"severity": severity, "batch_size": size, **noise_floor(watch, size)} for size in sizes
    ]
    return {"sights": rows, "noise": noise}


def _by_batch(
    look: Look, values: Mapping[str, Mapping[str, Tensor]], batches: Sequence[Tensor]
) -> dict[str, dict[str, list[float]]]:
    """Return each score of each modality, batch by batch."""
    found: dict[str, dict[str, list[float]]] = {s: {m: [] for m in look.seen} for s in POINTERS}
    for rows in batches:
        embeddings = {name: view.embedding[rows] for name, view in look.seen.items()}
        released = redundancy(embeddings, "cosine", "joint")
        paper = redundancy(embeddings, "correlation", "own")
        for name in look.seen:
            for score, samples in values[name].items():
                found[score][name].append(float(samples[rows].mean()))
            found["released"][name].append(float(released[name]))
            found["paper"][name].append(float(paper[name]))
    return found


def pointed_at(values: Mapping[str, Sequence[float]], sign: int) -> list[str | None]:
    """Return the one modality with the highest value × sign of each batch, None in a tie.

    >>> pointed_at({"audio": [1.0, 2.0, 3.0], "video": [2.0, 1.0, 3.0]}, 1)
    ['video', 'audio', None]
    """
    found: list[str | None] = []
    for batch in zip(*values.values(), strict=True):
        top = max(value * sign for value in batch)
        best = [name for name, value in zip(values, batch, strict=True) if value * sign == top]
        found.append(best[0] if len(best) == 1 else None)
    return found


def noise_floor(watch: Watch, batch_size: int) -> dict[str, float]:
    """Return both redundancies of Gaussians of the model's width that have nothing in common."""
    rows, width = min(batch_size, len(watch.labels)), watch.features.model.embed_dim
    released, paper = [], []
    for draw in range(NOISE_DRAWS):
        generator = numpy_generator(SEED, "noise floor", f"{rows} {width}", str(draw))
        noise = {
            name: torch.from_numpy(generator.standard_normal((rows, width), np.float32))
            for name in watch.modalities
        }
        released += map(float, redundancy(noise, "cosine", "joint").values())
        paper += map(float, redundancy(noise, "correlation", "own").values())
    values = {"released": statistics.fmean(released), "paper": statistics.fmean(paper)}
    return {name: round(value, 6) for name, value in values.items()}


def flags(watch: Watch, severity: int, sizes: Sequence[int]) -> dict[str, Rows]:
    """Return how many batches each indicator flags, by threshold, and the clean levels.

    `what` is "clean" (any modality of clean data), "healthy" (an undamaged modality of any domain),
    or a domain (its damaged modality).
    """
    features = watch.features
    source = features.dataset.source(CLEAN_SAMPLES)
    training = Features(source, features.model, features.store, features.model_digest)
    clean = Watch(training).look(None)
    levels = {
        size: clean_levels(clean, size, numpy_generator(SEED, "clean batches", str(size)))
        for size in sizes
    }
    rows: Rows = []
    healthy: dict[tuple[int, str], list[np.ndarray]] = {}
    for domain in [None, *all_domains(watch.modalities, (), (severity,))]:
        look = watch.look(domain)
        for size, order in product(sizes, ORDERS):
            batches = _batches(watch, domain, order, size)
            off = [deviations(look[own], clean, levels[size]) for own in batches]
            hits, others = flagged(off, None if domain is None else domain.modality)
            key = {"severity": severity, "batch_size": size, "order": order}
            if domain is None:
                rows += _counts(key | {"what": "clean"}, others)
            else:
                rows += _counts(key | {"what": str(domain)}, hits)
                healthy.setdefault((size, order), []).append(others)
    for (size, order), each in healthy.items():
        key = {"severity": severity, "batch_size": size, "order": order, "what": "healthy"}
        rows += _counts(key, np.concatenate(each, axis=2))
    known = [
        {"severity": severity, "batch_size": size, "indicator": name, "modality": modality,
         "mean": round(mean, 6), "std": round(std, 6)}
        for size, own in levels.items()
        for name, by_modality in own.items()
        for modality, (mean, std) in by_modality.items()
    ]  # fmt: skip
    return {"flags": rows, "levels": known}


def _batches(watch: Watch, domain: Domain | None, order: str, size: int) -> Iterator[Tensor]:
    """Yield the rows of each whole batch of a domain, clean samples in several orders."""
    name = "clean" if domain is None else str(domain)
    for again in range(CLEAN_ORDERS if domain is None else 1):
        # The first order is the one in which a run meets this domain.
        draws = numpy_generator(SEED, "order", name, *([str(again)] if again else []))
        yield from whole_batches(sample_order(order, watch.labels.numpy(), size, draws), size)


def flagged(
    batches: Sequence[Mapping[str, Mapping[str, float]]], damaged: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """Tell whether the damaged modality is flagged, and any other: (indicators, thresholds, n)."""
    modalities = list(next(iter(batches[0].values())))
    values = [[list(found.values()) for found in batch.values()] for batch in batches]
    # (modalities, indicators, thresholds, batches)
    over = np.array(values).T[:, :, None, :] > np.array(THRESHOLDS)[:, None]
    mine = np.array([name == damaged for name in modalities])
    return over[mine].any(axis=0), over[~mine].any(axis=0)


def _counts(key: dict[str, Any], found: np.ndarray) -> Rows:
    names = [*INDICATORS, *COMBINATIONS]
    counts = found.sum(axis=2).tolist()
    return [
        key | {"indicator": name, "batches": found.shape[2]}
        | {str(t): n for t, n in zip(THRESHOLDS, own, strict=True)}
        for name, own in zip(names, counts, strict=True)
    ]  # fmt: skip

"""The part of the contract that concerns batches in which a modality is missing."""

from collections.abc import Iterator
from itertools import combinations

import torch

from dasp.bench.trial import trial, trial_batches
from dasp.core.types import Inputs
from dasp.methods import Adaptation, Method


def missing_modalities_are_handled(
    build: type[Method], modalities: tuple[str, ...], lr: float
) -> Iterator[str]:
    """Try every non-empty part of the modalities on an adaptation whose optimiser has momenta."""
    for size in range(1, len(modalities)):
        for part in combinations(modalities, size):
            tta, batches = trial(build, modalities, lr=lr), trial_batches(modalities)
            for batch in batches:
                tta(batch)
            try:
                for batch in batches:
                    yield from _on_part(tta, {name: batch[name] for name in part})
            except Exception as error:
                yield f"fails on {' and '.join(part)} alone ({type(error).__name__}: {error})"


def _on_part(tta: Adaptation, batch: Inputs) -> Iterator[str]:
    before, seen = tta.memory.capture().tensors, tta.memory.batch_index
    with tta.frozen():
        tta(batch)
    if set(tta.alone(batch)) != set(batch):
        yield "alone() speaks of a modality that is missing"
    outcome = tta(batch)
    shown = " and ".join(batch)
    if outcome.rejected or not torch.isfinite(outcome.logits).all():
        yield f"gives no prediction from {shown} alone"
    if tta.memory.batch_index != seen + 1:
        yield f"{shown} alone does not count as one batch"
    if outcome.diagnosis is not None and set(outcome.diagnosis.scores) != set(batch):
        yield "its diagnosis scores a modality that is missing"
    after = tta.memory.capture().tensors
    absent = set(tta.method.model.modalities) - set(batch)
    owned = [path for path in before if absent & set(path.replace("/", ".").split("."))]
    moved = [path for path in owned if not torch.equal(before[path], after[path])]
    if moved:
        yield f"{shown} alone moves what belongs to a missing modality: {', '.join(moved)}"

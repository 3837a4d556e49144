"""Compare variants of triage on validation streams: the figures behind docs/triage.md.

    python studies/triage/streams.py sounding_shapes sounding_shapes_0
    python studies/triage/streams.py dsa dsa_0 --root DIR --samples 76
    python studies/triage/streams.py grid grid_0 --root DIR --samples 64 --streams interleaved mixed
    python studies/triage/streams.py … --constants MOST 1 MOST 4     # other values of constants

Samples are those of the *validation* split, corrupted by other draws than any test stream (seed 1),
severity 5. Prints the accuracy of each variant on each stream: of all samples, and of those with
one modality corrupted. Inputs and tokens are made once and kept in the store. With --constants,
only triage runs, once with its own constants and once with each other value.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro

import dasp
from dasp.bench.datasets import DataOptions
from dasp.bench.features import Features, FeatureSpec
from dasp.bench.references import find_model
from dasp.bench.store import Store
from dasp.core.seeding import numpy_generator
from dasp.methods import triage
from dasp.streams.domains import Domain
from dasp.streams.protocols import sample_order, visits

VARIANTS: dict[str, dict[str, Any]] = {
    "source": {"method": "source"},
    "triage": {},
    "without learning": {"learn": False},
    "without alignment": {"align": False},
    "without belief": {"believe": False},
    "without balance": {"balance": False},
    "not fitted": {"fit": False},
}
ALL = {"sounding_shapes": 1024, "grid": 64, "dsa": None}  # samples encoded, of which some are used
Condition = dict[str, Domain]


@dataclass(frozen=True)
class Options:
    """What is compared, and on what."""

    data: Annotated[str, tyro.conf.Positional]
    """sounding_shapes, grid or dsa."""
    model: Annotated[str, tyro.conf.Positional]
    streams: tuple[str, ...] = ("interleaved", "pairs", "sorted")
    """interleaved, pairs, mixed, sorted, uneven, clean, all, all/sorted, or continual/MODALITY."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    samples: int = 256
    """Per domain."""
    batch: int = 64
    lr: float = 3e-3
    root: Path | None = None
    """Directory of the recordings."""
    constants: tuple[tuple[str, float], ...] = ()
    """Names of constants in `dasp.methods.triage` and other values."""
    learn: bool = True
    """With --constants: whether triage learns."""
    store: Path = field(default=Path("out/store"))


def conditions(options: Options, names: tuple[str, ...], stream: str) -> list[Condition]:
    """Return the corrupted modalities of each domain of a stream."""
    order = "interleaved/sensors" if options.data == "dsa" else "interleaved"
    single = [c.domains[0] for visit in visits(order, 5) for c in visit.conditions]
    kind, _, modality = stream.partition("/")
    if kind == "clean":
        return [{}]
    if kind == "all":
        own = [[d for d in single if d.modality == name] for name in names]
        count = max(map(len, own))
        return [{d[i % len(d)].modality: d[i % len(d)] for d in own} for i in range(count)]
    if kind != "pairs":
        return [{d.modality: d} for d in single if modality in ("", d.modality)]
    few, many = sorted(
        ([d for d in single if d.modality == name] for name in names[:2]), key=len
    )  # fmt: skip
    return [
        {d.modality: d, few[i % len(few)].modality: few[i % len(few)]} for i, d in enumerate(many)
    ]


def frequent(labels: np.ndarray) -> np.ndarray:
    """Return the places of all samples of odd classes, and of a quarter of those of even ones."""
    places = [np.flatnonzero(labels == name) for name in np.unique(labels)]
    return np.concatenate([own[:: 1 if labels[own[0]] % 2 else 4] for own in places])


def batches(
    options: Options, features: Features, stream: str, encoded: bool
) -> Iterator[tuple[list[str], np.ndarray, dict[str, torch.Tensor]]]:
    """Yield each batch of a stream: what is corrupted in each sample, their numbers, and they.

    In the mixed stream each sample has a corruption of its own; in the others, each domain. The
    uneven one is interleaved, with a quarter of the samples of every other class. In `all`, every
    modality is corrupted at once.
    """
    labels = features.labels[: options.samples].numpy()
    kept = frequent(labels) if stream == "uneven" else np.arange(len(labels))
    order = "sorted" if stream.endswith("sorted") else "shuffled"
    found = conditions(options, features.modalities, stream)
    samples = []
    for number, condition in enumerate(found):
        named = {name: str(domain) for name, domain in condition.items()}
        rng = numpy_generator(0, "order", str(named))
        ordered = kept[sample_order(order, labels[kept], options.batch, rng)]
        samples.append([(number, row) for row in ordered])
    if stream == "mixed":
        together = [sample for own in samples for sample in own]
        mixed = numpy_generator(0, "order", stream).permutation(len(together))
        samples = [[together[place] for place in mixed]]
    for own in samples:
        for start in range(0, len(own), options.batch):
            part = own[start : start + options.batch]
            batch = {}
            for name in features.modalities:
                arrays = {
                    number: features.get(FeatureSpec(name, found[number].get(name), encoded))
                    for number in {number for number, _ in part}
                }
                batch[name] = torch.tensor(np.stack([arrays[n][row] for n, row in part]))
            corrupted = ["+".join(found[number]) or "clean" for number, _ in part]
            yield corrupted, np.array([row for _, row in part]), batch


def main(options: Options) -> None:
    """Run every variant on every stream and print its accuracies."""
    torch.set_num_threads(1)
    count = ALL[options.data]
    data = DataOptions(options.data, options.root, count, "validation", seed=1).open()
    model, store = find_model(options.model), Store(options.store)
    features, source = Features(data, model, store), Features(data.source(128), model, store)
    clean = {
        name: torch.tensor(np.array(source.get(FeatureSpec(name, None, encoded=True))))
        for name in features.modalities
    }
    if options.constants:
        usual = {name: getattr(triage, name) for name, _ in options.constants}
        for changed in ({}, *({name: value} for name, value in options.constants)):
            for name, value in {**usual, **changed}.items():
                setattr(triage, name, type(usual[name])(value))
            label = " ".join(f"{name}={value:g}" for name, value in changed.items()) or "triage"
            compare(options, features, clean, label, {"learn": options.learn})
        return
    for label in options.variants:
        compare(options, features, clean, label, VARIANTS[label])


def compare(
    options: Options,
    features: Features,
    clean: dict[str, torch.Tensor],
    label: str,
    settings: dict[str, Any],
) -> None:
    """Run one variant on every stream and print its accuracies."""
    settings = dict(settings)
    method, fit = settings.pop("method", "triage"), settings.pop("fit", True)
    for stream in options.streams:
        tta = dasp.adapt(features.model, method, lr=options.lr, **settings)
        if fit and method == "triage":
            tta.fit_on_tokens([clean])
        right, seen = Counter[str](), Counter[str]()
        encoded = not tta.method.takes_inputs
        for corrupted, rows, batch in batches(options, features, stream, encoded):
            outcome = tta.on_tokens(batch) if encoded else tta(batch)
            hits = outcome.logits.argmax(dim=1) == features.labels[rows]
            for name, hit in zip(corrupted, hits.tolist(), strict=True):
                for group in ("all", name):
                    right[group] += hit
                    seen[group] += 1
        shares = ", ".join(f"{name} {100 * right[name] / seen[name]:.2f}" for name in seen)
        print(f"{options.model} {stream}: {label}: {shares}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
